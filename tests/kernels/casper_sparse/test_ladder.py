"""Every variant against a float64 product, on a GPU: shapes around every tile, and awkward matrices."""

from __future__ import annotations

import functools
import math
import os
import secrets
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.sparse import csr_array

from artifact.baselines import cusparse
from artifact.measure import bench, check
from kernels import casper_sparse as room
from kernels import jit
from kernels.casper_sparse import launch
from kernels.contract import Operands, Problem
from kernels.formats import csr

pytestmark = pytest.mark.gpu

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
VARIANTS = tuple(room.VARIANTS)
#: Variants that load float4 and nothing else.
NEED_FOURS = ("warp_per_row", "no_staging", "shared_tiles")
#: Variants whose sums may come in another order from run to run: atomics, or a choice by time.
ANY_ORDER = ("split_rows", "auto")
PREPROCESSED = ("split_rows", "shared_tiles", "auto")

#: Around every vector, group of lanes, panel and tile.
COLUMNS = (1, 2, 3, 4, 5, 8, 31, 32, 33, 36, 64, 100, 127, 128, 132, 257, 260, 512)
#: (rows, columns of A): around a block's rows, and around the tile of 1800 or so rows of B.
SHAPES = (
    (1, 1),
    (1, 1363),
    (7, 53),
    (8, 1),
    (9, 1817),
    (33, 53),
    (33, 4000),
    (1023, 53),
    (1025, 1363),
    (1025, 1817),
    (1023, 4000),
)


@dataclass
class Case:
    """A problem on host and device, its product in float64, and how far a float32 sum may be off."""

    problem: Problem
    exact: np.ndarray
    slack: np.ndarray

    def check(self, out: np.ndarray, who: str) -> None:
        """Every element is finite and within its own rounding errors, whatever the order of a sum."""
        p = self.problem
        where = f"{who} on {p.label}: m={p.m}, n={p.n}, k={p.k}, nnz={p.nnz}, seed {SEED}"
        assert out.shape == self.exact.shape and out.dtype == np.float32, where
        wrong = ~(np.abs(out - self.exact) <= self.slack)  # NaN, an element left unwritten, is wrong
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise AssertionError(
                f"{where}: {wrong.sum()} of {wrong.size} elements are wrong, the first at row {row}, "
                f"column {column}: {out[row, column]} instead of {self.exact[row, column]}"
            )


def make_case(label: str, a: csr.Csr, n: int, rng: np.random.Generator) -> Case:
    """Values and B have signs; rows of B that no non-zero refers to hold infinities and NaN."""
    csr.validate(a)
    b = rng.uniform(-1, 1, (a.k, n)).astype(np.float32)
    unused = np.setdiff1d(np.arange(a.k), a.col_idx)
    b[unused] = 0
    exact = product(a, a.val, b)
    terms = product(a, np.abs(a.val), np.abs(b))
    b[unused] = np.resize(np.array([np.inf, np.nan, -np.inf], np.float32), unused.size)[:, None]
    # The error of a sum grows like the root of its length, in units of the last place of its terms;
    # a lost term of a row of `length` shows as terms / length.
    length = np.diff(a.row_ptr)[:, None]
    slack = 2.0**-24 * (8 + 6 * np.sqrt(length)) * terms

    def on_device() -> Operands:
        import cupy

        return Operands(csr.to_device(a), cupy.asarray(b), cupy.empty((a.m, n), cupy.float32))

    problem = Problem(
        room=room.__name__,
        label=label,
        m=a.m,
        n=n,
        k=a.k,
        nnz=a.nnz,
        density=0.0,
        seed=SEED,
        useful_flops=2 * a.nnz * n,
        flops_def="",
        least_bytes=1,
        requested_bytes=1,
        make_host=lambda: Operands(a, b),
        make_device=on_device,
    )
    return Case(problem, exact, slack)


def product(a: csr.Csr, val: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Float64. Not with abs() of a SciPy matrix, which would add repeated entries up in place."""
    matrix = csr_array((val.astype(np.float64), a.col_idx, a.row_ptr), shape=(a.m, a.k))
    return np.asarray(matrix @ b.astype(np.float64))


def rows_of(lengths, k: int, rng: np.random.Generator, least_column: int = 0) -> csr.Csr:
    """Rows of given lengths; columns drawn one by one, so unsorted, and repeated where k is small."""
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    nnz = int(row_ptr[-1])
    columns = rng.integers(min(least_column, k - 1), k, nnz) if nnz else np.empty(0)
    values = rng.uniform(-1, 1, nnz).astype(np.float32)
    return csr.Csr(len(lengths), k, row_ptr, columns.astype(np.int32), values)


@functools.cache
def shape_case(m: int, k: int, n: int) -> Case:
    """Rows of 0 to 40 non-zeros; column 0 of A is empty where k allows."""
    rng = np.random.default_rng((SEED, m, k, n))
    return make_case("shapes", rows_of(rng.integers(0, 41, m), k, rng, 1), n, rng)


# Every one at m rows; what a kernel does at the ends of rows, of chunks and of the matrix.
MATRICES = {
    "no non-zeros": lambda rng: rows_of([0] * 70, 300, rng),
    "one non-zero": lambda rng: rows_of([0] * 69 + [1], 300, rng, 1),
    "empty rows": lambda rng: rows_of([0, 0, 5, 0, 70, 0, 0, 31, 0], 300, rng, 1),
    "a full row": lambda rng: rows_of([3] * 20 + [1363] + [3] * 20, 1363, rng),
    "one enormous row": lambda rng: rows_of([4] * 300 + [6000] + [4] * 300, 4000, rng, 1),
    "enormous rows only": lambda rng: rows_of([5000, 0, 4097], 1817, rng, 1),
    "first and last row long": lambda rng: rows_of([2000] + [1] * 500 + [2001], 1363, rng, 1),
    "lengths around every chunk": lambda rng: rows_of(
        [c + d for c in (4, 8, 16, 32, 64, 128, 256, 512) for d in (-1, 0, 1)], 1900, rng, 1
    ),
    "one row": lambda rng: rows_of([777], 1817, rng, 1),
    "one column": lambda rng: rows_of([1, 0, 40, 2] * 30, 1, rng),
    "few columns, many repeats": lambda rng: rows_of([100] * 50, 3, rng, 1),
    "sorted columns": lambda rng: in_order(rows_of([60] * 100, 1363, rng, 1)),
    "falling columns": lambda rng: in_order(rows_of([60] * 100, 1363, rng, 1), falling=True),
    "the last column only": lambda rng: rows_of([2] * 40, 1817, rng, 1816),
    "a tail without rows": lambda rng: rows_of([20] * 5 + [0] * 2000, 1363, rng, 1),
}


def in_order(a: csr.Csr, falling: bool = False) -> csr.Csr:
    for start, stop in zip(a.row_ptr[:-1], a.row_ptr[1:], strict=True):
        a.col_idx[start:stop] = np.sort(a.col_idx[start:stop])[:: -1 if falling else 1]
    return a


@functools.cache
def matrix_case(label: str, n: int) -> Case:
    rng = np.random.default_rng((SEED, list(MATRICES).index(label), n))
    return make_case(label, MATRICES[label](rng), n, rng)


@pytest.fixture(scope="module")
def stream(device):
    return device.create_stream()


@pytest.fixture(scope="module", autouse=True)
def memory():
    """Forget the operands of all cases at the end."""
    yield
    import cupy

    shape_case.cache_clear()
    matrix_case.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


def run(bound, device, stream) -> np.ndarray:
    """One launch into an output full of NaN."""
    bound.result().fill(math.nan)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return bound.result().get()


def try_case(variant: str, case: Case, device, stream) -> None:
    p = case.problem
    if (p.n % 4 and variant in NEED_FOURS) or (p.nnz == 0 and variant == "shared_tiles"):
        with pytest.raises(ValueError, match=f"N is {p.n}:|without non-zeros"):
            room.bind(variant, p, device)
        return
    case.check(run(room.bind(variant, p, device), device, stream), variant)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_around_every_tile(device, stream, shape):
    for n in COLUMNS:
        case = shape_case(*shape, n)
        for variant in VARIANTS:
            try_case(variant, case, device, stream)
        case.problem.release()


#: k from 1 to 1100, and all around the edges of shared_tiles: its tile of k + 1 rows of 128 bytes and 8 KiB of static
#: memory are 48 KiB together at k = 319, the tile alone at k = 383.
DEPTHS = sorted({*range(1, 1101, 16), *range(1, 9), *range(316, 324), *range(380, 388), 1023, 1024, 1025, 1100})


#: An odd n has no shared_tiles, and auto no branch that depends on k. All depths in one test would take a minute.
AT_DEPTHS = [(64, DEPTHS[i::6]) for i in range(6)]
AT_DEPTHS += [(n, [1, 319, 320, 350, 383, 384, 1100]) for n in (63, 1)]


@pytest.mark.parametrize(("n", "depths"), AT_DEPTHS)
def test_auto_and_shared_tiles_at_every_depth(device, stream, n, depths):
    """k = 320 to 383 failed for a launch's static memory; m = 512 as it was seen."""
    rng = np.random.default_rng((SEED, n))
    for k in depths:
        made = make_case(f"depth {k}", rows_of(rng.integers(0, 41, 512), k, rng, 1), n, rng)
        for variant in ("shared_tiles", "auto"):
            try_case(variant, made, device, stream)


@pytest.mark.parametrize("label", MATRICES)
def test_awkward_matrices(device, stream, label):
    for n in (1, 2, 4, 33, 68, 128, 260):
        for variant in VARIANTS:
            try_case(variant, matrix_case(label, n), device, stream)


@pytest.mark.parametrize(("m", "k"), [(0, 5), (5, 0), (0, 0)])
def test_a_matrix_without_rows_or_columns(device, stream, m, k):
    empty = np.zeros(0, np.int32)
    a = csr.Csr(m, k, np.zeros(m + 1, np.int32), empty, empty.astype(np.float32))
    p = room.problem_from_csr(a, 8)
    for variant in VARIANTS:
        if variant == "shared_tiles" and m:
            with pytest.raises(ValueError, match="without non-zeros"):
                room.bind(variant, p, device)
            continue
        out = run(room.bind(variant, p, device), device, stream)
        assert out.shape == (m, 8) and not out.any(), variant


@pytest.mark.parametrize(("n", "density"), [(512, 0.05), (256, 0.005), (260, 0.01)])
def test_the_sources_matrices_pass_the_harness(device, stream, n, density):
    """The check that guards every record, on the source's generators, at a size that fills the GPU."""
    p = room.problem(m=4096, n=n, k=2048, density=density, seed=SEED)
    reference = check.oracle(p)
    for variant in VARIANTS:
        errors = check.check(room.bind(variant, p, device), p, reference, stream)
        assert 0 < errors.rel_err < 1e-6 and errors.max_err < 1e-5, f"{variant}, seed {SEED}"


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in ANY_ORDER])
def test_the_same_launch_gives_the_same_bits(device, stream, variant):
    """A result that moves is a race."""
    case = shape_case(1025, 1817, 260)
    bound = room.bind(variant, case.problem, device)
    first = run(bound, device, stream)
    case.check(first, variant)
    for _ in range(20):
        assert np.array_equal(run(bound, device, stream), first), f"{variant}, seed {SEED}"


def test_split_rows_gives_the_same_bits_where_it_cuts_nothing(device, stream):
    rng = np.random.default_rng((SEED, 1))
    case = make_case("even rows", rows_of([50] * 1025, 1363, rng, 1), 260, rng)
    bound = room.bind("split_rows", case.problem, device)
    assert len(bound.steps) == 1, "nothing to clear"
    first = run(bound, device, stream)
    case.check(first, "split_rows")
    assert all(np.array_equal(run(bound, device, stream), first) for _ in range(20))


def test_cut_rows_do_not_pile_up_over_launches(device, stream):
    """They are added to with atomics: without clearing, a second launch would double them."""
    case = matrix_case("one enormous row", 68)
    bound = room.bind("split_rows", case.problem, device)
    assert len(bound.steps) == 2
    for _ in range(3):
        bound.launch(stream)
    stream.sync()
    case.check(bound.result().get(), "split_rows, launched three times")


@pytest.mark.parametrize("variant", VARIANTS)
def test_preprocessing_is_accounted_for(device, variant):
    bound = room.bind(variant, shape_case(1025, 1817, 260).problem, device)
    assert bound.name == variant
    if variant in PREPROCESSED:
        assert 0 < bound.prepare_ms < 10_000
    else:
        assert bound.prepare_ms == 0
    held = [x for kept in bound.keep for x in vars(kept).values() if hasattr(x, "nbytes")]
    assert bound.prepare_bytes == sum(x.nbytes for x in held)
    if variant != "auto":
        assert bool(held) == (variant in PREPROCESSED)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_launch_can_be_captured(device, stream, variant):
    """A measurement may replay a launch from a CUDA graph."""
    case = matrix_case("first and last row long", 128)
    bound = room.bind(variant, case.problem, device)
    case.check(run(bound, device, stream), variant)
    graph = bench.capture(bound.name, bound, stream)
    for _ in range(2):
        bound.result().fill(math.nan)
        device.sync()
        graph.launch(stream)
        stream.sync()
        case.check(bound.result().get(), f"{variant} from a graph")


@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
def test_cusparse_agrees(device, stream, algorithm):
    """Each of the baseline's algorithms, on the matrices of the ladder's own tests.

    B is the generator's here: ALG1 and ALG3 also read rows of B that no non-zero names, so the
    ladder's own B, with infinities there, makes them return NaN.
    """
    for label in ("a full row", "one enormous row", "empty rows"):
        for n in (1, 3, 4, 68, 260):
            p = room.problem_from_csr(matrix_case(label, n).problem.host().a, n, seed=SEED)
            if algorithm == "alg3" and label == "one enormous row":
                with pytest.raises(ValueError, match="6000 in 4000"):
                    cusparse.bind(algorithm, p, device)
                continue
            check.check(cusparse.bind(algorithm, p, device), p, check.oracle(p), stream)


@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
def test_cusparse_refuses_more_entries_than_places(device, algorithm):
    with pytest.raises(ValueError, match="refuses|more entries than A has columns"):
        cusparse.bind(algorithm, matrix_case("few columns, many repeats", 4).problem, device)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if room.VARIANTS[name].entries])
def test_every_entry_loads_on_this_gpu(device, variant):
    kernel = room.VARIANTS[variant]
    for entry in kernel.entries:
        assert jit.load(jit.compile_cubin(kernel.source, entry, jit.arch_of(device)))


def test_auto_chooses_no_kernel_that_is_wrong_or_fails_however_fast(device, monkeypatch):
    """One that multiplies nothing is the fastest of all."""
    p, in_flight = room.problem(2000, 64, 3000, 0.1, SEED), launch._BIND["in_flight"]

    def idle(*asked):
        bound = in_flight(*asked)
        bound.steps.clear()
        return bound

    def refused(*asked):
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE")

    monkeypatch.setitem(launch._BIND, "in_flight", idle)
    monkeypatch.setitem(launch._BIND, "shared_tiles", refused)
    with pytest.warns(UserWarning) as caught:
        bound = room.bind("auto", p, device)
    wrong, failed = (str(w.message) for w in caught)
    assert wrong.startswith("the tuner skips in_flight: its output is not that of scalar: ")
    assert failed == "the tuner skips shared_tiles: CUDA_ERROR_INVALID_VALUE"
    assert bound.name == "auto" and bound.steps and bound.prepare_ms > 0
    assert check.check(bound, p, check.oracle(p), device.create_stream()).rel_err > 0


def test_preprocessing_on_the_gpu_makes_what_numpy_makes(device):
    """test_launch.py checks the NumPy side in detail."""
    for label in MATRICES:
        a = matrix_case(label, 4).problem.host().a
        there = csr.to_device(a)
        for chunk in (None, 32, 256):
            ours, theirs = launch.split(a, chunk), launch.split(there, chunk)
            assert np.array_equal(ours.item, theirs.item.get()), f"{label}, seed {SEED}"
            assert np.array_equal(ours.cut, theirs.cut.get()), f"{label}, seed {SEED}"
        if a.nnz == 0:
            continue
        for k_tile in (17, a.k):
            ours, theirs = (launch.cut_columns(x, k_tile, 128) for x in (a, there))
            assert (ours.k_tile, ours.m_pad) == (theirs.k_tile, theirs.m_pad)
            for name in ("order", "ptr", "pair"):
                made = getattr(theirs, name).get()
                assert np.array_equal(getattr(ours, name), made), f"{name} of {label}, seed {SEED}"
