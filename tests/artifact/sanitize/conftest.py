"""Tests below this folder share `pretend` and `racing` with those of the kernels."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "kernels"))
