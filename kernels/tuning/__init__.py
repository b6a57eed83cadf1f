"""Former name of `kernels.autotune`: imports and `python -m` of its modules still work."""

from .. import autotune

__path__ = autotune.__path__
