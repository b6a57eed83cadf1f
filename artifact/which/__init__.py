"""Former name of `artifact.recommend`: imports and `python -m` of its modules still work."""

from artifact import recommend

__path__ = recommend.__path__


def __getattr__(name: str):
    """Return what the package has under this name."""
    return getattr(recommend, name)
