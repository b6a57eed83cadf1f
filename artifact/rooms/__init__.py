"""Former name of `artifact.systems`: imports and `python -m` of its modules still work."""

from artifact import systems

__path__ = systems.__path__
