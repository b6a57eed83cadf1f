"""Former name of `kernels.autotune`: imports and `python -m` of its modules still work."""

from .. import autotune

__path__ = autotune.__path__


def __getattr__(name: str):
    """Return what the package has under this name."""
    return getattr(autotune, name)
