"""What the tests of rooms share: a folder for figures."""

from drawn import folder  # noqa: F401
