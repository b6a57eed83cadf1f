"""Where things lie. Nothing else in the harness spells out a folder."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Everything that is made, and nothing else; $SPARSITY_BUILD moves it.
BUILD = Path(os.environ.get("SPARSITY_BUILD") or ROOT / "build").resolve()
RECORDED = ROOT / "artifact" / "recorded"  #: the records we ship
SCALED = ROOT / "artifact" / "distributed" / "recorded"  #: those of several GPUs
#: The GPU that the prose of the chapters was written for; minutes that stand without a GPU's name are its.
HOME = "nvidia-h200"
RECORDS = BUILD / "records"  #: fresh records
FIGURES = BUILD / "figures"
FROM_PAGES = "../figures"  #: from the notebooks to a copy of FIGURES beside them; `build` copies it beside the pages
#: In the built book, beside the pages: what makes the ledger's table searchable.
TABLES = "itables.js"
