"""Fixtures of GPUs that are not there. Pytest puts this folder on the path: tests below it import its helpers."""

from emulated import anything_there, by_the_host, moved, there  # noqa: F401
from pretend import pretended  # noqa: F401
