"""What Nsight Compute counted, looked up by variant, size and metric."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.measure.run import Run
from artifact.rooms.nm_cuda_core.figures import STALL
from artifact.rooms.nm_cuda_core.trial import LETTER, PUBLISHED, VARIANTS

FFMA = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"
READS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
TRAFFIC = "l1tex__t_bytes.sum"
#: What is busy -> metric, in per cent of its peak.
PIPES = {
    "shared": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "FMA": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
FIG3_SIZES = (256, 2048)


@dataclass(frozen=True)
class Counters:
    """The counters of a run."""

    rows: pd.DataFrame  #: as `records.read_counters` has them
    values: dict[tuple[str, int, str], float]

    @property
    def metrics(self) -> set[str]:
        """What was counted at all."""
        return set(self.rows["metric"])

    @property
    def of_fig3(self) -> pd.DataFrame:
        """Those of the sizes of Fig. 3."""
        return self.rows[self.rows["m"].isin(FIG3_SIZES)]

    @property
    def of_variants(self) -> pd.DataFrame:
        """Those of Fig. 3's sizes, of the room's own variants."""
        rows = self.of_fig3
        return rows[rows["variant"].isin(VARIANTS)]

    @property
    def as_published(self) -> list[str]:
        """The report's kernels: to the letter, or ours where a profile is older than these."""
        profiled = set(self.rows["variant"])
        return LETTER if set(LETTER) <= profiled else PUBLISHED

    def get(self, variant: str, size: int, metric: str) -> float:
        """A counter; NaN for one that this GPU does not have."""
        return self.values.get((variant, size, metric), np.nan)

    def stalled(self, variant: str, size: int, reason: str) -> float:
        """Warps that wait for `reason` per instruction issued."""
        return self.get(variant, size, STALL.format(reason))

    def wavefronts(self, variant: str, size: int) -> float:
        """Of a 16-byte read from shared memory; 16 multiply-adds follow two of them."""
        return self.get(variant, size, READS) / (self.get(variant, size, FFMA) / 32 / 16 * 2)


def read(run: Run) -> Counters | None:
    """Those of a run; None where there are none."""
    path = run.folder / "counters.csv"
    if not path.exists():
        return None
    rows = records.read_counters(path)
    return Counters(rows, rows.set_index(["variant", "m", "metric"])["value"].to_dict())
