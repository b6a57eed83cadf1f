"""What tests ask of an error: that it is one sentence, and which words are in it."""

from collections.abc import Callable

import pytest


def says(words, work) -> None:
    """`work()` raises ValueError, one sentence with all of `words`."""
    with pytest.raises(ValueError) as caught:
        work()
    message = str(caught.value)
    assert "\n" not in message and ". " not in message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


def said(work) -> str:
    """The message of the ValueError that `work()` raises; "" where it raises none."""
    try:
        work()
    except ValueError as error:
        return str(error)
    return ""


def refused(says: str, call: Callable, *given, kind: type[BaseException] = ValueError, **how) -> None:
    """A call raises an error of this kind, one sentence in which the regular expression is found."""
    with pytest.raises(kind, match=says) as caught:
        call(*given, **how)
    assert "\n" not in str(caught.value)
