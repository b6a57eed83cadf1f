"""Numbers in words: what sentences of several chapters are made of."""

import re
from collections.abc import Iterable, Sequence


def listed(words: Iterable[object]) -> str:
    """Return "a, b and c"; nothing for nothing."""
    said = [str(word) for word in words]
    return "".join(said) if len(said) < 2 else f"{', '.join(said[:-1])} and {said[-1]}"


#: Letters that are spoken with a vowel first: an H200, an RTX 4090.
SPOKEN = "AEFHILMNORSX"


def article(name: str) -> str:
    """Return a name with its indefinite article: "an NVIDIA H200", "a GeForce GTX 1080"."""
    word = name.split()[0]
    return f"{'an' if word[0] in (SPOKEN if word.upper() == word else 'AEIOU') else 'a'} {name}"


def cube(size: int) -> str:
    """Return the name of a cube: "4096³"."""
    return f"{size}³"


def shape(sizes: Sequence[int]) -> str:
    """(M, N, K): "4096³" or "4096 × 512 × 128"."""
    return cube(sizes[0]) if len(set(sizes)) == 1 else " × ".join(map(str, sizes))


def more(share: float, what: str) -> str:
    """Return a difference: "12% more bytes"."""
    return f"{abs(share):.0%} {'more' if share >= 0 else 'fewer'} {what}"


def change(ratio: float) -> str:
    """Return a speedup: "12% faster"; less than 2% is none."""
    if abs(ratio - 1) < 0.02:
        return "the same within 2%"
    return f"{abs(ratio - 1):.0%} {'faster' if ratio > 1 else 'slower'}"


def times(text: str) -> str:
    """Return a prediction as a page writes it: in the sources it is plain ASCII, "1.3x over mma_sp at 512 cubed"."""
    return re.sub(r"(?<=\d)x(?=[ :,;.)]|$)", "×", text).replace(" cubed", "³")
