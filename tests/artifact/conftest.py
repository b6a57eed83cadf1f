"""Tests below this folder import its helpers, where pytest puts it on the path, and those of the kernels' tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))

from emulated import by_the_host  # noqa: F401
