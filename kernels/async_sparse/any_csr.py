"""The best kernel for a matrix in CSR that someone brings: a model proposes some, a race decides, the choice is kept.

"auto_fp32" chooses among kernels whose errors are as small as float32's: CUDA cores, and three products in TF32.
"auto_tf32" also takes TF32, which holds 11 bits of a value: for operands that hold no more.
"auto_half" is for B and C in 16 bits, and takes tensor cores where A's values have no more.
"in_place" has those of "auto_fp32" that read A's entries where they lie, so that its values may change.

The model: microseconds are a sum of terms, each with a weight of the kernel's that is not negative. The weights in
model.csv were fitted to what artifact/systems/async_sparse/candidates*.csv hold, by `scripts.py` there: real matrices
on an H200 and an H100. Elsewhere the ranking may be worse; what is chosen is measured all the same.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import ceil
from operator import mul
from pathlib import Path

from .. import autotune, jit
from ..autotune import Choices, Rounds
from ..contract import Family, Kernel, Problem, require
from ..formats import half, intake
from ..formats.csr import Csr
from . import heads, per_warp, planning, subwarp, windows
from .family import DTYPES, HERE, TARGETS, dtype_of, prepare_config
from .heads import Heads
from .per_warp import PerWarp
from .subwarp import Subwarp
from .windows import HALF_SOURCE, SHORT_SOURCE, SOURCE, UNION_SOURCE, Union, Windows

Config = Union | Windows | Subwarp
Tried = Config | Heads | PerWarp  #: the model ranks all but the last two
IN_PLACE = "in_place"
ACCURACIES = {"auto_fp32": "fp32", "auto_tf32": "tf32", "auto_half": "half"}
#: Candidates that are tried, beside the fastest of each kind of kernel that is not among them: a model that is wrong
#: about a kind is wrong about all of it.
MOST, OTHERS = 5, 2
#: … and where the fastest of cuSPARSE's algorithms is expected to take no longer, rows with heads, by columns of B that
#: they are for at most.
SHORT_US = 14.0
SHORT = (
    *((16, (Heads(), Heads(rounds=2))), (32, (Heads(), Heads(16)))),
    *((64, (Heads(32, 2), Heads(16))), (128, (Heads(32, 2), Heads(rounds=2)))),
)
#: … and where no row is so many times as long as the average, rows side by side.
EVEN, SIDE_BY_SIDE = 4, (PerWarp(32), PerWarp(128))
#: A reference, with and without signs; for each candidate a check and four launches of which three count; two more and
#: a check of the winner; it and the reference on whole numbers.
ROUNDS = Rounds(first=3, final=1, finalists=1, short_us=0, factor=1, hot_s=0.0)
MORE = max(len(of) for _, of in SHORT) + len(SIDE_BY_SIDE)
LAUNCHES = 2 + (MOST + OTHERS + MORE) * (1 + 1 + ROUNDS.first) + (1 + ROUNDS.final) + 1 + 2

HEIGHTS = intake.HEIGHTS  #: rows of a window or group
FILE = HERE / "model.csv"
#: Of a launch: once; what is gathered of B, B and C once, what windows of 64 rows need of B, tasks, steps of the
#: longest task, whether windows are cut, the longest row.
TERMS = ("launch", "gathered", "dense", "least", "tasks", "steps", "cut", "longest")

_UNIONS = tuple(
    Union(rows, 4, loads, unroll, -1, order)
    for rows, loads, unroll in ((1, 1, 8), (1, 2, 4), (2, 1, 8), (2, 2, 4), (4, 1, 4), (4, 1, 8))
    for order in planning.ORDERS
)
_EXACT = tuple(Windows(window, 1, True, -1, True, order) for window in (8, 16, 32) for order in planning.ORDERS)
_TF32 = tuple(Windows(window, 1, False, -1, True, order) for window in (8, 16, 32, 64) for order in planning.ORDERS)
_SUBWARPS = (
    *(Subwarp(1, slots) for slots in subwarp.SLOTS[:-1]),
    *(Subwarp(rows, rounds=rounds) for rows, rounds in ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4))),
    *(Subwarp(columns=16, rounds=rounds) for rounds in (1, 2)),
    Subwarp(quads=False, rounds=2),
)
#: accuracy -> configurations that have it. TF32 is where either the operands hold no more, or the caller wants no more.
POOLS: dict[str, tuple[Config, ...]] = {
    "fp32": _SUBWARPS + _UNIONS + _EXACT,
    "tf32": _SUBWARPS + _UNIONS + _EXACT + _TF32,
    #: Of 16-bit types, where B and C have them; windows where A's values do as well.
    "half": _SUBWARPS
    + tuple(c for c in _UNIONS if windows.made_for(c, "bfloat16"))
    + tuple(c for c in _TF32 if c.window < 64),
}
#: Whose terms the time of cuSPARSE's algorithms is a sum of: one row after another.
LIKE = Union(1)
#: Columns of B up to which rows by a few lanes take part, and from which on groups of rows do, and windows.
FEW, SEVERAL, MANY = 128, 16, 64

KERNELS: dict[str, Kernel] = {
    "auto_fp32": Kernel(
        "auto_fp32",
        UNION_SOURCE,
        "the fastest kernel with float32's accuracy on the matrix: groups of rows, or windows in 3xTF32",
        "1.6 times the fastest of cuSPARSE's algorithms for CSR, nowhere less than it.",
        windows.KERNELS["union_rows"].entries,
        spill_free=False,
    ),
    "auto_tf32": Kernel(
        "auto_tf32",
        SOURCE,
        "… or windows in TF32",
        "1.1 times auto_fp32; on finite elements twice as fast.",
        windows.KERNELS["windows"].entries,
        targets=TARGETS,
    ),
    "auto_half": Kernel(
        "auto_half",
        HALF_SOURCE,
        "the fastest of them for 16-bit types: groups of rows, or windows on tensor cores",
        "1.5 times auto_fp32, with half of the bytes; on finite elements twice that.",
        windows.KERNELS["union_half"].entries,
        spill_free=False,
    ),
}

CHOICES: Choices[Tried] = Choices(
    "async_sparse/csr",
    HERE / "choices" / "csr",
    {"m": int, "n": int, "k": int, "nnz": int, "pattern": str, "accuracy": str},
    {"union": Union, "windows": Windows, "subwarp": Subwarp, "heads": Heads, "per_warp": PerWarp},
    lambda config: [
        *(UNION_SOURCE, HALF_SOURCE, SOURCE, SHORT_SOURCE, subwarp.SOURCE),
        *[heads.SOURCE] * isinstance(config, Heads),
        *[per_warp.SOURCE] * isinstance(config, PerWarp),
    ],
)


# ---------------------------------------------------------------- the model


@dataclass(frozen=True)
class Statistics:
    """Of an m x k matrix with nnz entries."""

    m: int
    k: int
    nnz: int
    longest: int  #: entries of the row that has most
    #: Order of rows (`planning.ORDERS`) -> for each of `HEIGHTS` the columns that windows of so many rows have.
    columns: dict[str, tuple[int, ...]]
    ascending: bool = True  #: False: of some row columns do not ascend, or repeat, so groups of rows are costly to make


def statistics(a: Csr, at_a_glance: bool = False) -> Statistics:
    """Statistics of A by a sample of columns, in both orders of its rows.

    at_a_glance: in the given one alone, by the sample that its facts have.
    """
    facts = intake.facts_of(a)
    given = {"": facts.columns}
    columns = given if at_a_glance else {how: intake.shared(planning.ordered(a, how)[1]) for how in planning.ORDERS}
    return Statistics(a.m, a.k, a.nnz, facts.longest, columns, facts.ascending)


def takes_part(config: Config, n: int) -> bool:
    """Whether a configuration is among those that are ranked for n columns."""
    if isinstance(config, Subwarp):
        return config.columns < n <= FEW
    return n >= (SEVERAL if isinstance(config, Union) else MANY)


def kernel(config: Config, n: int, dtype: str = "tf32") -> str:
    """Return the name of a configuration's weights for n columns; dtype: of B, "tf32" for float32."""
    if dtype in half.DTYPES:
        return f"half_{kernel(config, n)}"
    if isinstance(config, Subwarp):
        how = f"rounds_{config.rounds}" if config.rounds else f"slots_{config.slots}"
        return (
            f"subwarp_{config.rows}_{how}{f'_{config.columns}' * (config.columns > 0)}{'_turns' * (not config.quads)}"
        )
    if isinstance(config, Union):  # of few columns, lanes have nothing to do
        return f"{'few_' * (n <= FEW)}union_rows_{config.rows}_{config.loads}_{config.unroll}"
    return f"windows{'_exact' * config.exact}_{config.window}_{config.groups}"


def terms(config: Config, of: Statistics, n: int, dtype: str = "tf32") -> tuple[float, ...]:
    """`TERMS` of a launch on n columns, each in units that make its weight about 1; dtype: of B, "tf32" for float32."""
    columns, gathered = of.columns[config.order], n * DTYPES[dtype][1] / 8e6
    if isinstance(config, Subwarp):
        groups, (lanes, slots) = ceil(of.m / config.rows), config.fitted(n, dtype)
        stored: float = columns[HEIGHTS.index(config.rows)]
        room, side = subwarp.WARP // lanes.lanes, float(slots)
        if config.rounds:
            side = min(room, max(1.0, stored / max(1, groups) / (subwarp.UNROLL * config.rounds)))
        width, groups = lanes.columns, ceil(groups * side / room)  # whole warps
        together, chunk = subwarp.UNROLL * side, subwarp.ROUNDS * subwarp.UNROLL * ceil(side)
    elif isinstance(config, Union):
        groups, width = ceil(of.m / config.rows), windows.columns_of(windows.fitted(config, n, dtype), dtype)
        stored = columns[HEIGHTS.index(config.rows)]
        chunk = ceil(max(1, windows.LONG * stored / max(1, groups)) / planning.STEP) * planning.STEP
        together = float(config.unroll)
    else:
        groups, width = ceil(of.m / config.window), windows.group_columns(dtype) * config.groups
        # Half of the padding to whole slices, on average.
        stored = columns[HEIGHTS.index(config.window)] + (16 / DTYPES[dtype][1] - 0.5) * groups
        chunk, together = windows.LEAST_CHUNK, planning.STEP
    return (
        1.0,
        stored * gathered,
        2 * (of.m + of.k) * gathered,
        columns[-1] * gathered,
        groups * ceil(n / width) / 1e4,
        min(of.longest, chunk) / together / 10,
        float(of.longest > chunk),
        of.longest / 100,
    )


def ranked(accuracy: str, of: Statistics, n: int) -> list[Config]:
    """Those of `POOLS` whose order of rows has statistics, the fastest by prediction first."""
    require(accuracy in POOLS, f"accuracy is {accuracy!r}, but must be one of {', '.join(POOLS)}")
    dtype = "bfloat16" if accuracy == "half" else "tf32"
    pool = (c for c in POOLS[accuracy] if takes_part(c, n) and c.order in of.columns)
    return sorted(pool, key=lambda c: expected_us(c, of, n, dtype))


def expected_us(config: Config, of: Statistics, n: int, dtype: str = "tf32") -> float:
    """Return the microseconds that a launch is expected to take. Raises KeyError for what was never fitted."""
    return sum(map(mul, weights()[kernel(config, n, dtype)], terms(config, of, n, dtype)))


def library_us(of: Statistics, n: int, dtype: str = "tf32") -> float:
    """Return the same of the fastest of cuSPARSE's algorithms for CSR that are right."""
    return sum(map(mul, weights()[library(n, dtype)], terms(LIKE, of, n, dtype)))


def library(n: int, dtype: str = "tf32") -> str:
    """Return the name of the weights of cuSPARSE's algorithms for n columns; dtype: of B, "tf32" for float32."""
    return f"{'half_' * (dtype in half.DTYPES)}{'few_' * (n <= FEW)}cusparse"


@cache
def weights() -> dict[str, tuple[float, ...]]:
    """Kernel -> its weights of `TERMS`, as model.csv has them."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return {row["kernel"]: tuple(float(row[t]) for t in TERMS) for row in csv.DictReader(file)}


# ---------------------------------------------------------------- the choice


def key(problem: Problem, accuracy: str) -> tuple:
    """Return what a choice is kept under: sizes, places of non-zeros, and the accuracy, or 16-bit dtype.

    Raises ValueError, one sentence, where A is not CSR, or B and C are not row-major.
    """
    operands = problem.device()
    windows.require_rows(f"auto_{accuracy}", operands)
    a = operands.a
    kind = dtype_of(operands.b) if accuracy == "half" else accuracy
    return problem.m, problem.n, problem.k, a.nnz, f"{intake.facts_of(a).fingerprint:016x}", kind


def fits(config: Tried, problem: Problem, device, accuracy: str = "") -> bool:
    """Whether the GPU takes it, windows being wgmma's, and the kernel A's values: choices are kept for a pattern.

    accuracy: "in_place" where these may change; else one of `POOLS`, or any.
    """
    if accuracy == IN_PLACE and not reads_in_place(config):
        return False
    a, dtype = problem.device().a, dtype_of(problem.device().b)
    if not isinstance(config, Windows):
        return dtype not in half.DTYPES or not isinstance(config, PerWarp)
    taken = half.first_not_held(a.val, dtype) is None if dtype in half.DTYPES else not config.exact or windows.splits(a)
    return jit.arch_of(device) in TARGETS and taken


def reads_in_place(config: Tried) -> bool:
    """Whether it multiplies A's values where they are: others have copies, in groups, tables or another order."""
    return not isinstance(config, Windows | Heads) and config.rows == 1 and not config.order


def candidates(problem: Problem, device, accuracy: str, at_a_glance: bool = True) -> list[Config]:
    """Return what takes the problem, the best first by the model.

    at_a_glance: which looks at few numbers of A, and leaves out what is costly to make of it.
    """
    in_place = accuracy == IN_PLACE
    of = statistics(problem.device().a, at_a_glance or in_place)
    if in_place:
        return [c for c in ranked("fp32", of, problem.n) if reads_in_place(c)]
    cheap = of.ascending or not at_a_glance
    every = (c for c in ranked(accuracy, of, problem.n) if cheap or getattr(c, "rows", 0) == 1)
    windows_fit = cache(lambda exact: fits(Windows(exact=exact), problem, device))  # A's values are looked at once
    return [c for c in every if not isinstance(c, Windows) or windows_fit(c.exact)]


def proposed(configs: Sequence[Config]) -> list[Config]:
    """Return what is tried of configurations in their order: the `MOST` first, and the first of each other kind."""
    first = list(configs[:MOST])
    others = {type(c): c for c in reversed(configs[MOST:])}
    return first + [c for kind, c in others.items() if kind not in set(map(type, first))]


def short(of: Statistics, n: int, dtype: str = "tf32") -> tuple[Heads, ...]:
    """Return the rows with heads that are tried, where a launch takes as long as its chain of loads, else none."""
    tried = next((configs for most, configs in SHORT if n <= most), ())
    return tried if tried and library_us(of, n, dtype) <= SHORT_US else ()


def side_by_side(of: Statistics, n: int) -> tuple[PerWarp, ...]:
    """Return the rows side by side that are tried, where a warp's are about as long, else none."""
    even = n <= FEW and of.longest * of.m <= EVEN * of.nnz
    return SIDE_BY_SIDE[: 1 + (n > SIDE_BY_SIDE[0].columns)] if even else ()  # of few columns both are one


def tune(problem: Problem, device, accuracy: str) -> autotune.Winner:
    """Return the fastest of the candidates that are `proposed`, whose output is that of single rows."""
    dtype, of = dtype_of(problem.device().b), statistics(problem.device().a, at_a_glance=True)
    configs: list[Tried] = [*proposed(candidates(problem, device, accuracy, False))]
    kind = "bfloat16" if dtype in half.DTYPES else "tf32"  # whose weights there are
    more: list[Tried] = [*side_by_side(of, problem.n), *short(of, problem.n, kind)]
    configs += [c for c in more if fits(c, problem, device, accuracy)]
    return autotune.tune(
        problem,
        configs,
        lambda p, config: config.prepare("auto", p, device),
        (lambda p: Union(1).prepare("single rows", p, device),),
        device,
        ROUNDS,
        [entry_of(config, problem.n, dtype) for config in configs],
    )


def entry_of(config: Tried, n: int, dtype: str = "tf32") -> tuple[Path, str]:
    """(source, template instantiation) of a configuration on n columns of B; dtype: of B, "tf32" for float32."""
    if isinstance(config, Subwarp | Heads | PerWarp):
        return {Subwarp: subwarp, Heads: heads, PerWarp: per_warp}[type(config)].SOURCE, config.entry(n, dtype)
    in_half = dtype in half.DTYPES
    if isinstance(config, Windows):
        return SHORT_SOURCE if in_half else SOURCE, config.entry(dtype)
    return HALF_SOURCE if in_half else UNION_SOURCE, windows.fitted(config, n, dtype).entry(dtype)


FAMILIES = {
    name: Family(
        prepare_config,
        partial(candidates, accuracy=accuracy),
        partial(fits, accuracy=accuracy),
        partial(tune, accuracy=accuracy),
        CHOICES,
        partial(key, accuracy=accuracy),
    )
    for name, accuracy in (*ACCURACIES.items(), (IN_PLACE, IN_PLACE))
}
