"""Nothing but places: tests here share helpers with those of the kernels."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
