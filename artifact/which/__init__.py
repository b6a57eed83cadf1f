"""Former name of `artifact.recommend`: imports and `python -m` of its modules still work."""

from artifact import recommend

__path__ = recommend.__path__
