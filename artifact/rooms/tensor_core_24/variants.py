"""What the chapter asks of the kernels' configurations: tiles, shared memory, what fits where, what was chosen.

The room's only module that reads the configurations of both families; a machine is a run's machine.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from artifact.drawing import words
from artifact.measure.run import Run
from kernels import tensor_core_24 as room
from kernels import tuning
from kernels.tensor_core_24 import family

BYTES_PER_CLOCK = 128  #: of an SM's shared memory
PORT_BYTES = 64  #: that an SM gets from L2 in a clock, about
RESERVED = 1024  #: bytes of shared memory that CUDA keeps of each block
#: Who is looked at in most figures: the source's kernel, our best, and the libraries.
MAIN = ("mma_sp", "auto", "cusparselt_default", "cusparselt", "cublaslt")
#: Variants for their looks: the source's kernel first, our best last.
ORDER = ("mma_sp", *room.RUNGS, "auto")
STUDIES = tuple(name for name in room.VARIANTS if name.startswith("mma_sp_"))
Machine = Mapping[str, Any]


def is_hopper(machine: Machine) -> bool:
    return machine["compute_capability"] == "9.0"


def takes(machine: Machine, variant: str, m: int, n: int, k: int) -> bool:
    """Whether a kernel exists for a GPU, fits into its shared memory, and has work for all of it at a size."""
    block = machine["shared_bytes_per_sm"] - RESERVED
    if variant not in room.RUNGS:
        return family.STUDIES.get(variant, family.PUBLISHED).shared_bytes <= block
    try:
        room.RUNGS[variant][0].check(m, n, k, machine["sm_count"], block)
    except ValueError:
        return False
    return is_hopper(machine)


def takes_all(machine: Machine, variant: str, shapes: Iterable[Mapping[str, int]]) -> bool:
    """`takes` for all shapes of a sweep."""
    return all(takes(machine, variant, s["m"], s["n"], s["k"]) for s in shapes)


# ---------------------------------------------------------------- the published kernel


@dataclass(frozen=True)
class Step:
    """A step of a block of the published kernel: 64 columns of A."""

    flop: int  #: dense-equivalent
    read: int  #: bytes of shared memory that its warps read by ldmatrix
    written: int  #: bytes that cp.async writes there

    @property
    def clocks(self) -> float:
        """Clocks that shared memory takes for both."""
        return (self.read + self.written) / BYTES_PER_CLOCK


def step() -> Step:
    c = family.PUBLISHED
    warps = c.threads // 32
    read = warps * (c.wm * c.bk + 2 * c.bk * c.wn + c.wm * c.bk // 8)
    return Step(2 * c.bm * c.bn * c.bk, read, c.shared_bytes // c.stages)


def blocks_by_registers(machine: Machine) -> int:
    """Blocks of the published kernel for which an SM has registers, 256 a thread."""
    return machine["registers_per_sm"] // (256 * family.PUBLISHED.threads)


def blocks_by_shared(machine: Machine, variant: str = "mma_sp") -> int:
    """Blocks of the published kernel, or of a study, for which an SM has shared memory."""
    config = family.STUDIES.get(variant, family.PUBLISHED)
    return machine["shared_bytes_per_sm"] // (config.shared_bytes + RESERVED)


# ---------------------------------------------------------------- the ladder


@dataclass(frozen=True)
class Rung:
    """A kernel of the Hopper ladder."""

    name: str
    file: str
    m: int  #: of C that a block computes
    n: int
    rows_of_64: int  #: of A that a block multiplies by the same B
    shared_kib: int  #: of a block, with its barriers
    idea: str
    prediction: str  #: what it should gain, written down before it was measured
    before: str  #: the kernel that it builds on

    def tiles(self, size: int) -> int:
        """Tiles of C at M = N = size."""
        return -(-size // self.m) * -(-size // self.n)

    @property
    def l2_bytes(self) -> float:
        """What a step brings from L2, for each element of C."""
        return (self.m * 72 + self.n * 128) / (self.m * self.n)

    @property
    def b_bytes(self) -> int:
        """What a step's instructions read of B from shared memory: all of it for every 64 rows of A."""
        return self.rows_of_64 * STEP_K * self.n * 2


STEP_K = family.K  #: columns of A in a step
begin_at = family.begin_at


def rungs() -> dict[str, Rung]:
    """The ladder by name. A rung builds on what its prediction names, else on the one before; split-K is
    for other shapes."""
    found, last = {}, "mma_sp"
    for name, (c, idea, prediction) in room.RUNGS.items():
        named = re.search(r"over (wgmma_\w+)", prediction)
        before = named[1] if named else "wgmma_keep" if name == "wgmma_split_k" else last
        shared = round((c.shared_bytes + RESERVED) / 1024)
        found[name] = Rung(
            name, c.source.name, c.m, c.n, c.groups * c.blocks, shared, idea, words.times(prediction), before
        )
        last = name
    return found


def prediction(variant: str) -> str:
    """What a variant should gain, as a page writes it."""
    return words.times(room.VARIANTS[variant].prediction)


# ---------------------------------------------------------------- the tuner


@dataclass(frozen=True)
class Chosen:
    """What the tuner chose for a shape."""

    kernel: str
    m: int  #: of C that a block computes
    n: int
    splits: int = 1
    keeps: str = ""  #: the operand that L2 is asked to keep
    copied: bool = False  #: whether B is copied first, to rows that begin at multiples of 128 bytes


def chosen(run: Run, shapes: Iterable[tuple[int, int, int]]) -> dict[tuple, Chosen]:
    """(m, n, k) -> choice, where there is one: looked up where `run` measures, else in the shipped file."""
    path = family.CHOICES.shipped / f"{run.gpu}.csv"
    known = tuning.read(family.CHOICES, path) if run.device is None and path.is_file() else {}
    found = {}
    for shape in shapes:
        if run.device is None:
            choice = known.get((*shape, "bfloat16"))
        else:
            key = family.key(room.problem(*shape, seed=run.seed))
            choice = tuning.look_up(family.CHOICES, key, run.device, lambda config: True)
        if choice is not None:
            found[shape] = _chosen(choice.config)
    return found


def _chosen(c: family.Wgmma | family.MmaSp) -> Chosen:
    if isinstance(c, family.Wgmma):
        return Chosen(c.kernel, c.m, c.n, c.splits, c.keep, c.copied)
    return Chosen("mma_sp", c.bm, c.bn)
