"""What the tests of systems share: a folder for figures."""

from drawn import folder  # noqa: F401
