"""Every variant against a float64 product, on a GPU: sizes around the tile and the step, and every pattern."""

from __future__ import annotations

import functools
import math
import os
import secrets
from dataclasses import dataclass, replace

import numpy as np
import pytest

from artifact.measure import bench, check
from kernels import jit
from kernels import nm_cuda_core as room
from kernels.contract import Operands, Problem
from kernels.formats import nm
from kernels.nm_cuda_core import launch

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
VARIANTS = tuple(room.VARIANTS)
gpu = pytest.mark.gpu
#: Variants that read the indices of a block's first column only.
GATHER = tuple(name for name in VARIANTS if name != "element_wise")
#: Variants that add up the products of an element in the same order, one after the other.
ONE_SUM = tuple(name for name in VARIANTS if name not in ("double_buffer", "verbatim_double_buffer"))

#: Rows and columns of C, around one tile and several.
SIZES = (32, 64, 96, 160)
PATTERNS = ((2, 4), (1, 4), (4, 8), (8, 32), (16, 32), (4, 4))


def depths(keep: int, group: int) -> list[int]:
    """K around every step: of 64 rows of A, of 32 and 64 compressed rows, of two and three of them."""
    groups = {max(1, w // keep + d) for w in (32, 64, 96, 128, 192) for d in (-1, 0, 1)}
    edges = {g * group + d for g in groups for d in (-1, 0, 1)}
    return sorted({1, 2, 3, 4, 5, 8, 60, 63, 64, 65, 127, 128, 132, 1021, 1024} | edges)


@dataclass
class Case:
    """A problem on host and device, its product in float64, and how far a float32 sum may be off."""

    problem: Problem
    exact: np.ndarray
    slack: np.ndarray

    def check(self, out: np.ndarray, who: str) -> None:
        """Every element is finite and within its own rounding errors, whatever the order of a sum."""
        p, b = self.problem, self.problem.host().b
        where = f"{who} on {b.keep}:{b.group} in vectors of {b.vector}: m={p.m}, n={p.n}, k={p.k}, seed {SEED}"
        assert out.shape == self.exact.shape and out.dtype == np.float32, where
        wrong = ~(np.abs(out - self.exact) <= self.slack)  # NaN, an element left unwritten, is wrong
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise AssertionError(
                f"{where}: {wrong.sum()} of {wrong.size} elements are wrong, the first at row {row}, "
                f"column {column}: {out[row, column]} instead of {self.exact[row, column]}"
            )


def make_case(b: nm.Nm, m: int, rng: np.random.Generator, multiplied: nm.Nm | None = None) -> Case:
    """A and B have signs; columns of A that no index names hold infinities and NaN.

    multiplied: what the product is expected of, where that is not B itself.
    """
    signs = rng.choice(np.array([-1, 1], np.float32), b.val.shape)
    b = nm.validate(replace(b, val=b.val * signs))
    dense = nm.to_dense(b if multiplied is None else replace(multiplied, val=b.val))
    a = rng.uniform(-1, 1, (b.k, m)).astype(np.float32).T
    exact, slack = expect(a, dense, b.w)
    unused = np.setdiff1d(np.arange(b.k), b.index)
    a[:, unused] = np.resize(np.array([np.inf, np.nan, -np.inf], np.float32), unused.size)

    def on_device() -> Operands:
        import cupy

        there = cupy.asarray(a.T).T
        return Operands(there, nm.to_device(b), cupy.empty((m, b.n), cupy.float32, order="F"))

    problem = room.problem_from_nm(b, m, SEED)
    return Case(replace(problem, make_host=lambda: Operands(a, b), make_device=on_device), exact, slack)


def expect(a: np.ndarray, dense: np.ndarray, w: int) -> tuple[np.ndarray, np.ndarray]:
    """The product in float64, and how far a sum of w products in float32 may be off.

    The error of a sum grows like the root of its length, in units of the last place of its terms; a
    lost term of w shows as terms / w.
    """
    exact = a.astype(np.float64) @ dense.astype(np.float64)
    terms = np.abs(a).astype(np.float64) @ np.abs(dense).astype(np.float64)
    return exact, 2.0**-24 * (8 + 6 * math.sqrt(w)) * terms


@functools.cache
def shape_case(m: int, n: int, k: int, keep: int, group: int, vector: int) -> Case:
    rng = np.random.default_rng((SEED, m, n, k, keep, group, vector))
    return make_case(nm.random(k, n, keep, group, vector, SEED), m, rng)


@functools.cache
def gathered_case(m: int, n: int, k: int, vector: int) -> Case:
    """2:4 in narrow vectors, and the product with what the published kernels gather."""
    rng = np.random.default_rng((SEED, m, n, k, vector))
    b = nm.random(k, n, 2, 4, vector, SEED)
    return make_case(b, m, rng, room.as_gathered(b))


@pytest.fixture(scope="module")
def stream(device):
    """For all tests on the GPU; at the end their operands are forgotten."""
    yield device.create_stream()
    import cupy

    shape_case.cache_clear()
    gathered_case.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


def run(bound, device, stream) -> np.ndarray:
    """One launch into an output full of NaN."""
    bound.result().fill(math.nan)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return bound.result().get()


def try_case(variant: str, case: Case, device, stream) -> None:
    case.check(run(room.bind(variant, case.problem, device), device, stream), variant)


# ------------------------------------------------------------------- the cases, without a GPU


def in_float32(case: Case, rows: int | None = None) -> np.ndarray:
    """The sum that a variant makes, one compressed row after the other; `rows` of them, or all."""
    ops = case.problem.host()
    index, acc = nm.per_column_index(ops.b), np.zeros(case.exact.T.shape, np.float32)
    for row in range(ops.b.w if rows is None else rows):
        acc += ops.b.val[row][:, None] * ops.a.T[index[row]]
    return acc.T


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_the_slack_takes_rounding_and_nothing_else(pattern):
    for k in (64, 128, 1024):  # without surplus rows
        case = shape_case(64, 96, k, *pattern, 32)
        case.check(in_float32(case), "NumPy")
        w = case.problem.host().b.w
        with pytest.raises(AssertionError, match=f"k={k}, seed {SEED}: .* elements are wrong"):
            case.check(in_float32(case, w - 1), "NumPy without the last row")


def test_the_depths_lie_around_every_step():
    for keep, group in PATTERNS:
        found = depths(keep, group)
        w = {math.ceil(k / group) * keep for k in found}
        for step in (32, 64, 128):
            assert {step - keep, step, step + keep} <= w, f"{keep}:{group}"
        assert {63, 64, 65, 127, 128} <= set(found), "element_wise counts rows of A"
        assert any(k % group for k in found if k > group) or group == 1


@pytest.mark.parametrize("vector", [1, 4, 16])
def test_a_gathered_product_is_another_product(vector):
    """What the published kernels compute differs from A · B by far more than rounding."""
    case = gathered_case(64, 96, 132, vector)
    truth = true_case(case)
    wrong = np.abs(truth.exact - case.exact) > 100 * (case.slack + truth.slack)
    others = [j for j in range(96) if j % 32 >= vector]
    assert wrong[:, others].mean() > 0.7, f"seed {SEED}"
    assert not wrong[:, [j for j in range(96) if j % 32 < vector]].any(), f"seed {SEED}"
    truth.check(in_float32(truth), "NumPy")


def true_case(case: Case) -> Case:
    """The same operands, and A · B; no sum has a column of A that no index names."""
    ops = case.problem.host()
    a = np.where(np.isin(np.arange(ops.b.k), ops.b.index), ops.a, 0)
    exact, slack = expect(a, nm.to_dense(ops.b), ops.b.w)
    return replace(case, exact=exact, slack=slack)


# ------------------------------------------------------------------------------ sizes and patterns


@gpu
@pytest.mark.parametrize("m", SIZES)
def test_sizes_around_the_tile(device, stream, m):
    for n in SIZES:
        for k in (4, 60, 63, 128, 132, 1024):
            for variant in VARIANTS:
                try_case(variant, shape_case(m, n, k, 2, 4, 32), device, stream)


@gpu
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_depths_around_every_step(device, stream, pattern):
    for k in depths(*pattern):
        for variant in VARIANTS:
            try_case(variant, shape_case(64, 96, k, *pattern, 32), device, stream)


@gpu
@pytest.mark.parametrize("vector", [1, 4, 5, 32, 48, 100])
def test_element_wise_takes_any_vector(device, stream, vector):
    """Of one column, of several, ragged ones at the end, and ones that end within a tile."""
    for pattern in ((2, 4), (1, 4), (8, 32), (16, 32)):
        for n in (32, 96, 160):
            for k in (4, 60, 63, 65, 128, 132, 1024):
                try_case("element_wise", shape_case(64, n, k, *pattern, vector), device, stream)


@gpu
@pytest.mark.parametrize("vector", [64, 96, 128, 160, 320])
def test_vectors_of_several_blocks(device, stream, vector):
    for n in (96, 160):
        for k in (60, 132, 1021):
            for variant in VARIANTS:
                try_case(variant, shape_case(64, n, k, 2, 4, vector), device, stream)


@gpu
@pytest.mark.parametrize("vector", [1, 4, 16])
def test_without_shared_indices_the_published_kernels_multiply_with_another_matrix(device, stream, vector):
    """That of `as_gathered`, to the last bit of rounding; A · B only in the first column of a block."""
    for m, n, k in ((32, 32, 60), (64, 96, 132), (96, 160, 1021)):
        case = gathered_case(m, n, k, vector)
        truth, others = true_case(case), [j for j in range(n) if j % 32 >= vector]
        for variant in GATHER:
            with pytest.raises(ValueError, match=f"among {vector} columns, not 32: use element_w"):
                room.bind(variant, case.problem, device)
            bound = room.bind(variant, case.problem, device, shared_indices=False)
            out = run(bound, device, stream)
            case.check(out, f"{variant}, gathered,")
            off = np.abs(out - truth.exact) > truth.slack
            assert not off[:, ::32].any(), f"{variant}, seed {SEED}"
            assert off[:, others].mean() > 0.7, f"{variant}, seed {SEED}"
        try_case("element_wise", truth, device, stream)


# ------------------------------------------------------------------------------- launches


@gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_launches_do_not_pile_up(device, stream, variant):
    """split-K adds to C: without clearing, a second launch would double it."""
    case = shape_case(96, 160, 1021, 2, 4, 32)
    bound = room.bind(variant, case.problem, device)
    case.check(run(bound, device, stream), variant)
    for _ in range(2):
        bound.launch(stream)
    stream.sync()
    case.check(bound.result().get(), f"{variant}, launched three times")


@gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_launch_gives_the_same_bits(device, stream, variant):
    """A result that moves is a race. Split-K 2 adds two sums to zero, in either order the same."""
    case = shape_case(160, 160, 1021, 2, 4, 32)
    bound = room.bind(variant, case.problem, device)
    first = run(bound, device, stream)
    case.check(first, variant)
    for _ in range(20):
        assert np.array_equal(run(bound, device, stream), first), f"{variant}, seed {SEED}"


@gpu
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_variants_that_add_in_the_same_order_give_the_same_bits(device, stream, pattern):
    """All but split-K: they differ in how the operands travel, and not in a single multiply-add."""
    for k in (60, 132, 1021):
        case = shape_case(96, 64, k, *pattern, 32)
        outs = [run(room.bind(name, case.problem, device), device, stream) for name in ONE_SUM]
        for name, out in zip(ONE_SUM, outs, strict=True):
            assert np.array_equal(out, outs[0]), f"{name} at k={k}, seed {SEED}"


@gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_launch_can_be_captured(device, stream, variant):
    """A measurement may replay a launch from a CUDA graph; clearing belongs to it."""
    case = shape_case(64, 96, 1024, 2, 4, 32)
    bound = room.bind(variant, case.problem, device)
    case.check(run(bound, device, stream), variant)
    graph = bench.capture(bound.name, bound, stream)
    for _ in range(2):
        bound.result().fill(math.nan)
        device.sync()
        graph.launch(stream)
        stream.sync()
        case.check(bound.result().get(), f"{variant} from a graph")


@gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_beside_the_operands_is_read_into_a_sum_or_written(device, stream, variant):
    """A and B lie between NaN, C between numbers that must stay; the last step is not a whole one."""
    import cupy

    margin = 4096  # floats, more than a step

    def within(array, fill: float):
        """A view of a larger buffer, with the contents and the memory order of `array`."""
        whole = cupy.full(array.size + 2 * margin, fill, cupy.float32)
        order = "C" if array.flags.c_contiguous else "F"
        view = whole[margin:-margin].reshape(array.shape, order=order)
        view[...] = array
        return whole, view

    for k in (4, 60, 132):
        case = shape_case(64, 96, k, 2, 4, 32)
        ops = case.problem.device()
        buffer, c = within(ops.c, 7.0)
        b = replace(ops.b, val=within(ops.b.val, math.nan)[1])
        inside = Operands(within(ops.a, math.nan)[1], b, c)
        bound = room.bind(variant, replace(case.problem, make_device=lambda ops=inside: ops, _device=None), device)
        assert bound.result().data.ptr == buffer.data.ptr + 4 * margin
        case.check(run(bound, device, stream), f"{variant} between margins")
        assert bool((buffer[:margin] == 7).all()) and bool((buffer[-margin:] == 7).all()), variant


@gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_preprocessing_is_accounted_for(device, variant):
    case = shape_case(64, 96, 132, 2, 4, 32)
    bound = room.bind(variant, case.problem, device)
    b = case.problem.host().b
    assert bound.name == variant and 0 < bound.prepare_ms < 10_000
    assert bound.prepare_bytes == 4 * b.w * b.n
    index = bound.keep[1]
    assert index.nbytes == bound.prepare_bytes
    assert np.array_equal(index.get(), nm.per_column_index(b))


# ------------------------------------------------------------------------------ the room's problems


@gpu
@pytest.mark.parametrize("vector", [32, 1])
def test_the_rooms_problems_pass_the_harness(device, stream, vector):
    """The check that guards every record, and the report's own: 1e-3 of every element."""
    for sizes, density, group in (
        ((512, 512, 512), 0.5, 4),
        ((256, 128, 4096), 0.5, 4),
        ((1024, 2048, 1024), 0.25, 32),
        ((128, 1024, 1000), 0.5, 32),
    ):
        p = room.problem(*sizes, density, SEED, group=group, vector=vector)
        reference = check.oracle(p)
        for variant in VARIANTS if vector == 32 else ("element_wise",):
            errors = check.check(bound := room.bind(variant, p, device), p, reference, stream)
            where = f"{variant} at {sizes}, seed {SEED}"
            assert 0 < errors.rel_err < 1e-6 and errors.max_err < 1e-5, where
            off = abs(bound.result() - reference.values) / reference.values
            assert float(off.max()) < 1e-3, where


@gpu
@pytest.mark.parametrize("vector", [32, 1])
def test_device_operands_have_the_hosts_bits(device, vector):
    p = room.problem(64, 96, 131, 0.25, SEED, vector=vector)
    host, there = p.host(), p.device()
    assert there.a.flags.f_contiguous and there.c.flags.f_contiguous and there.c.shape == (64, 96)
    assert there.a.shape == (64, 131) and np.array_equal(there.a.get(), host.a)
    nm.validate(there.b)
    assert np.array_equal(there.b.val.get(), host.b.val)
    assert np.array_equal(there.b.index.get(), host.b.index)
    gathered = nm.to_host(nm.validate(room.as_gathered(there.b)))
    assert np.array_equal(gathered.index, room.as_gathered(host.b).index)


@gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_entry_loads_on_this_gpu(device, variant):
    kernel = room.VARIANTS[variant]
    for entry in kernel.entries:
        assert jit.load(jit.compile_cubin(kernel.source, entry, jit.arch_of(device)))


# ------------------------------------------------------------------------------ beyond 2^31

#: The operand that is large -> (m, n, k) with a little over 2^29 elements of it, so over 2^31 bytes;
#: which size grows to make that 2^31 elements; GiB needed, a part that grows with it and the rest.
LARGE = {
    "A": ((1025 * 32, 32, 2**14), "k", (2, 2)),
    "B": ((32, 129 * 32, 2**18), "k", (4.1, 2)),
    "C": ((4097 * 32, 2**12, 4), "n", (2, 2)),
}


@gpu
@pytest.mark.alone
@pytest.mark.parametrize("scale", [1, 4], ids=["bytes", "elements"])
@pytest.mark.parametrize("operand", LARGE)
def test_offsets_beyond_31_bits(device, stream, operand, scale):
    """Small whole numbers, so that sums are exact: one row from a wrong address shows."""
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    (m, n, k), grows, (share, rest) = LARGE[operand]
    n, k = n * (scale if grows == "n" else 1), k * (scale if grows == "k" else 1)
    assert max(m * k, k // 2 * n, m * n) > 2**29 * scale
    need, free = int((share * scale + rest) * 2**30), cupy.cuda.runtime.memGetInfo()[0]
    if free < need:
        pytest.skip(f"{need / 2**30:.0f} GiB of GPU memory needed, {free / 2**30:.1f} free")
    for variant, where, same in large_products(m, n, k, device, stream):
        assert same, f"{variant}, {operand} with {scale} x 2^31 bytes, {where}, seed {SEED}"
    pool.free_all_blocks()


def large_products(m: int, n: int, k: int, device, stream):
    """(variant, columns, whether they are right) for a 2:4 problem that is made on the GPU."""
    import cupy

    rng = np.random.default_rng((SEED, m, n, k))

    def periodic(rows: int, columns: int):
        """Rows that repeat after a prime number of them, so never at a power of two."""
        period = min(rows, 1021)
        numbers = cupy.asarray(rng.integers(-3, 4, (period, columns), np.int8))
        array = cupy.empty((rows, columns), cupy.float32)
        for i in range(0, rows, period):
            array[i : i + period] = numbers[: rows - i]
        return array

    # One of rows 0 and 1 and one of rows 2 and 3 of each group, the same for all columns.
    w = k // 2
    index = (2 * np.arange(w) + rng.integers(0, 2, w)).astype(np.int32)[:, None]
    b = nm.Nm(k, n, 2, 4, n, periodic(w, n), cupy.asarray(index))
    ops = Operands(periodic(k, m).T, b, cupy.empty((m, n), cupy.float32, order="F"))
    problem = replace(room.problem(m, n, k), make_device=lambda: ops)
    small = max(m * k, k // 2 * n, m * n) < 2**31
    for variant in VARIANTS if small else [x for x in VARIANTS if x not in launch.VERBATIM]:
        bound = None  # the indices that the one before holds go before the next ones come
        bound = room.bind(variant, problem, device)
        ops.c.fill(math.nan)
        device.sync()
        bound.launch(stream)
        stream.sync()
        for j in range(0, n, 128):
            width = min(128, n - j)
            values = cupy.ascontiguousarray(b.val[:, j : j + width])
            exact = check.dense_product(ops.a, nm.Nm(k, width, 2, 4, width, values, b.index))
            same = bool((ops.c[:, j : j + width] == exact).all())
            yield variant, f"columns from {j}", same
