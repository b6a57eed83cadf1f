"""What Nsight Compute counted at 4096³, looked up by contender, density and metric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.measure.run import Run
from artifact.profiling import ncu
from artifact.rooms.nm_spmm.contenders import LADDER, nmsparse_in
from artifact.rooms.nm_spmm.trial import BIG

FFMA = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"
ISSUED = "smsp__inst_executed.sum"
#: Column of the table -> metric.
PIPES = {
    "FMA pipe [%]": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "issue slots [%]": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "shared memory [%]": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "L2 [%]": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM [%]": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps [%]": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
#: Column of the table -> reason of a stall, as the metric names it.
STALLS = {
    "dispatch": "dispatch_stall",
    "shared": "short_scoreboard",
    "memory": "long_scoreboard",
    "barrier": "barrier",
    "instructions": "no_instruction",
    "not selected": "not_selected",
}
SHOWN = ("v1", "v2", "v3", *LADDER, "auto", "nm_baseline", "nmsparse_vw32", "cublas")
DENSITIES = (0.5, 0.125)  #: that the tables show


@dataclass(frozen=True)
class Counters:
    """Counters of 4096³; empty where none were recorded."""

    rows: pd.DataFrame  #: as `records.read_counters` has them
    values: dict[tuple[str, float, str], float]

    @property
    def profiled(self) -> list[str]:
        """Contenders that were profiled, in the order in which they are shown."""
        return [v for v in SHOWN if (v, 0.5, ncu.TIME) in self.values]

    @property
    def in_roofline(self) -> list[str]:
        """Those of Fig. 10, nmSPARSE by whom `nmsparse_in` finds."""
        profiled = self.profiled
        return [v for v in ("auto", "v3", nmsparse_in(profiled), "cublas") if v in profiled]

    def get(self, variant: str, density: float, metric: str) -> float:
        """A counter; NaN for one that this GPU does not have."""
        return self.values.get((variant, density, metric), np.nan)

    def stalled(self, variant: str, density: float, reason: str) -> float:
        """Warps that wait for `reason` per instruction issued."""
        return self.get(variant, density, ncu.STALLED.format(reason))

    def ffma_share(self, variant: str, density: float) -> float:
        """Multiply-adds of all instructions that were issued."""
        return self.get(variant, density, FFMA) / 32 / self.get(variant, density, ISSUED)

    def memory(self) -> dict[str, float]:
        """V3 and `auto` -> what the busier of L2 and DRAM reaches of its peak, in per cent."""
        where = [(c, d) for c in ("L2 [%]", "DRAM [%]") for d in DENSITIES]
        return {v: max(self.get(v, d, PIPES[c]) for c, d in where) for v in ("v3", "auto")}


def read(run: Run) -> Counters:
    """Those of a run; empty where there are none."""
    path = run.folder / "counters.csv"
    if not path.exists():
        return Counters(pd.DataFrame(columns=list(records.COUNTER_COLUMNS)), {})
    rows = records.read_counters(path)
    rows = rows[(rows[["m", "n", "k"]] == BIG).all(axis=1)]
    return Counters(rows, rows.set_index(["variant", "density", "metric"])["value"].to_dict())
