"""What the tests of the map share: a folder for figures."""

from drawn import folder  # noqa: F401
