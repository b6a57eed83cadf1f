"""Former name of `artifact.systems`: imports and `python -m` of its modules still work."""

from artifact import systems

__path__ = systems.__path__


def __getattr__(name: str):
    """Return what the package has under this name."""
    return getattr(systems, name)
