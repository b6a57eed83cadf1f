"""Which index? The smallest case in which the published gather is wrong, computed, and run where there is a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artifact.measure.run import Run
from kernels import nm_cuda_core as room
from kernels.contract import Problem
from kernels.formats import nm

SMALLEST = {"m": 32, "n": 32, "k": 64}


@dataclass(frozen=True)
class Gathered:
    """A · B and what the published gather multiplies instead, for an element-wise 2:4 matrix."""

    problem: Problem
    right: np.ndarray  #: A · B, in float64
    gathered: np.ndarray  #: A · as_gathered(B)
    same_if_shared: bool  #: whether both are one matrix where columns share their indices

    @property
    def error(self) -> float:
        """Distance of the two in the norm, over that of A · B."""
        return float(np.linalg.norm(self.gathered - self.right) / np.linalg.norm(self.right))

    @property
    def right_columns(self) -> list[int]:
        """Columns of C that the published gather gets right."""
        off = np.abs(self.gathered - self.right).max(axis=0)
        return np.flatnonzero(off <= 1e-6 * np.abs(self.right).max()).tolist()


def smallest(seed: int) -> Gathered:
    case = room.problem(**SMALLEST, seed=seed, vector=1)
    a, b = case.host().a.astype(np.float64), case.host().b
    shared = room.problem(**SMALLEST, seed=seed).host().b
    same = np.array_equal(nm.to_dense(room.as_gathered(shared)), nm.to_dense(shared))
    return Gathered(case, a @ nm.to_dense(b), a @ nm.to_dense(room.as_gathered(b)), same)


def run_it(run: Run, case: Gathered) -> tuple[float, float] | None:
    """Distance of what the kernel itself computes from A · B, and from A · as_gathered(B); None without a GPU."""
    if run.device is None:
        return None
    import cupy

    bound = room.bind("baseline", case.problem, run.device, shared_indices=False)
    bound.launch(run.device.default_stream)
    run.device.sync()
    out = cupy.asnumpy(bound.result())
    case.problem.release()
    off = [np.linalg.norm(out - x) / np.linalg.norm(x) for x in (case.right, case.gathered)]
    return float(off[0]), float(off[1])
