"""Tests here share helpers and a fixture with those of the kernels."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))

from pretend import pretended  # noqa: F401
