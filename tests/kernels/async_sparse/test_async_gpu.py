"""The room on a GPU: exact products at ragged sizes, races, launches again and again, and wrong kernels."""

from __future__ import annotations

import functools
import math
import os
import secrets
from dataclasses import dataclass, replace

import compiled
import numpy as np
import pytest

from artifact.measure import bench, check
from kernels import async_sparse as room
from kernels import jit, tuning
from kernels.async_sparse import family, launch, operands, published, unit
from kernels.async_sparse.family import Unit
from kernels.contract import Operands, Problem
from kernels.formats import bcsr, half
from kernels.formats.half import Half

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
RUNGS = tuple(published.KERNELS)
NAN = 0x7FFF  # of either 16-bit dtype
#: Variants whose blocks claim tiles from counters in global memory.
CLAIMING = ("opt6_atomic", "opt6_stealing", "unit_ring")
BLOCKS = (16, 32, 64, 128, (128, 32), (64, 128), (16, 128), (128, 16))
gpu = pytest.mark.gpu

#: m, n, k of the rungs, for few widths of wgmma, 8, 40, 96 and 256: smaller than a block, around blocks and tiles,
#: n = 1, k that TMA cannot address, three panels, more tiles than an H200 has multiprocessors.
SHAPES = (
    (1, 1, 1),
    (64, 1, 64),
    (300, 77, 1000),
    (77, 192, 100),
    (129, 77, 63),
    (129, 1536, 130),
    (64 * 150 - 9, 512, 264),
)
#: What of them a dtype is tried with: a conversion and an instruction are all that differs.
OF_DTYPE = {
    "bfloat16": SHAPES,
    "float16": [s for s in SHAPES if s[1] == 77],
    "tf32": [s for s in SHAPES if s[1] in (77, 1536, 512)],
}


# ------------------------------------------------------------------------------------- exact products


@dataclass
class Case:
    """A problem of small whole numbers, whose float32 sums are exact, and what C must be."""

    problem: Problem
    product: np.ndarray  #: float32 (m, n), A·B before it is rounded to the dtype

    @functools.cached_property
    def rounded(self) -> np.ndarray:
        dtype = family.dtype_of(self.problem.host().b)
        if dtype == "tf32":
            return self.product
        return half.from_bits(half.to_bits(self.product, dtype), dtype)

    def check(self, out: np.ndarray, who: str) -> None:
        """Every element is the one that rounding once makes; NaN, one left unwritten, is wrong."""
        p, exact = self.problem, self.rounded
        assert out.shape == exact.shape
        wrong = ~(out == exact)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise AssertionError(
                f"{who} at m={p.m}, n={p.n}, k={p.k}, {p.label or 'bfloat16'}, seed {SEED}: {wrong.sum()} of "
                f"{wrong.size} elements are wrong, the first at row {row}, column {column}: "
                f"{out[row, column]} instead of {exact[row, column]}"
            )


def whole(shape, numbers, *seed: int) -> np.ndarray:
    rng = np.random.default_rng((SEED, *seed))
    return rng.choice(np.array(numbers, np.float32), shape)


def stored(x: np.ndarray, dtype: str):
    """As an array holds it: bit patterns, or the numbers."""
    return x if dtype == "tf32" else half.to_bits(x, dtype)


def ordered(array: np.ndarray, order: str) -> np.ndarray:
    return np.ascontiguousarray(array.T).T if order == "F" else np.ascontiguousarray(array)


@functools.cache
def case(
    m: int,
    n: int,
    k: int,
    density: float = 0.3,
    block=64,
    dtype: str = "bfloat16",
    layout: str = "source",
    seed: int = 0,
) -> Case:
    """Blocks at random places; seed: of B alone."""
    p = room.problem(m, n, k, density, SEED, block=block, dtype=dtype, layout=layout)
    a, order = p.host().a, operands.LAYOUTS[layout]
    numbers = whole(a.val.shape, (-2, -1, 1, 2), m, k) * (a.val != 0)  # the padding stays 0
    a = replace(a, val=stored(numbers.astype(np.float32), dtype))
    b = whole((k, n), (-2, -1, 0, 1, 2), k, n, seed)
    product = bcsr.to_dense(a) @ b
    b = ordered(stored(b, dtype), order[0])

    def wrap(array):
        return array if dtype == "tf32" else Half(dtype, array)

    def there() -> Operands:
        import cupy

        def up(array, order):
            on_gpu = cupy.asarray(np.ascontiguousarray(array.T if order == "F" else array))
            return on_gpu.T if order == "F" else on_gpu

        c = np.zeros((m, n), b.dtype)
        return Operands(bcsr.to_device(a), wrap(up(b, order[0])), wrap(up(c, order[1])))

    made = replace(p, make_host=lambda: Operands(a, wrap(b)), make_device=there, _host=None, _device=None)
    return Case(made, product)


def test_products_of_the_cases_are_exact():
    """In float32 and in any order, since every partial sum is a whole number below 2^24."""
    for dtype in family.DTYPES:
        made = case(130, 77, 200, 0.4, 32, dtype, "linear")
        ops = made.problem.host()
        bcsr.validate(ops.a)
        b = half.to_dense(ops.b) if isinstance(ops.b, Half) else ops.b
        exact = bcsr.to_dense(ops.a).astype(np.float64) @ b.astype(np.float64)
        assert np.array_equal(made.product, exact) and np.abs(made.product).max() <= 4 * 200
        assert set(np.unique(bcsr.to_dense(ops.a))) == {-2, -1, 0, 1, 2}
        made.check(made.rounded, "itself")
        off = made.rounded.copy()
        off[5, 7] += 8
        with pytest.raises(AssertionError, match="1 of 10010 elements .* row 5, column 7"):
            made.check(off, "another")


def jobs() -> set[tuple]:
    """(source, entry) of what most tests launch, to compile it on all processors at once."""
    wanted = set()
    for dtype, shapes in OF_DTYPE.items():
        for name in RUNGS[1:]:
            groups = 2 if name in published.PAIRS else 1
            for n in {n for _, n, _ in shapes}:
                for order in "CF":
                    width = published.wgmma_n(n, groups)
                    wanted.add((name, published.entry(name, dtype, order, width)))
    wanted |= {("opt5", published.entry("opt5", "bfloat16", "C", n)) for n in published.WIDTHS}
    made = {(family.HERE / f"{name}.cu", entry) for name, entry in wanted}
    for dtype in family.DTYPES:
        for block in BLOCKS:
            for layout, (b, c) in operands.LAYOUTS.items():
                if dtype != "tf32" or layout != "row":
                    b_row, b_col = bcsr.sides(block)
                    shape = family.Shape(dtype, max(64, b_row), b_col, b, c)
                    made.add((family.SOURCE, family.entry(deep(256, shape), shape)))
    shape = family.Shape("bfloat16", 64, 64, "F", "C")
    return made | {(family.SOURCE, family.entry(c, shape)) for n in family.WIDTHS for c in shallow(n, shape)}


def deep(width: int, shape: family.Shape) -> Unit:
    """Rings as deep as an H100's or H200's shared memory."""
    return family.filled(Unit(width, tall=shape.b_row == 128), shape, 232_448)


def shallow(width: int, shape: family.Shape) -> tuple[Unit, Unit]:
    """Rings as short as they may be, with groups of one panel; a little longer, with all panels in a group and block
    rows as they lie."""
    config = deep(width, shape)
    return (
        replace(config, shared=2, private=3, buffers=1, group_kib=0),
        replace(config, shared=3, private=4, group_kib=2**20, longest_first=False),
    )


def test_what_is_compiled_ahead_can_be():
    made = jobs()
    assert len({source for source, _ in made}) == len(RUNGS)
    assert all(source.is_file() for source, _ in made)
    declared = {e for e in room.VARIANTS["unit_ring"].entries}
    assert declared <= {entry for _, entry in made}


@pytest.fixture(scope="module")
def hopper(device):
    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("this GPU has no wgmma")
    compiled.cubins(sorted(jobs()), family.TARGETS)
    return device


@pytest.fixture(scope="module")
def stream(hopper):
    """For all tests on the GPU; at the end their operands are forgotten."""
    yield hopper.create_stream()
    import cupy

    for made in (case, drawn):
        made.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


def staged(bound):
    """The lines that the kernel writes: C itself, or padded ones on their way to it."""
    keep = bound.keep
    return None if len(keep) == 1 else keep[6] if len(keep) == 7 else keep[3]


def poison(bound) -> None:
    """Fill with NaN what a launch writes, the padded lines on their way to C as well."""
    bound.result().fill(math.nan)
    lines = staged(bound)
    if lines is not None:
        lines.fill(NAN if lines.dtype == np.uint16 else math.nan)


def numbers(out) -> np.ndarray:
    return half.to_dense(half.to_host(out)) if isinstance(out, Half) else out.get()


def run(bound, device, stream) -> np.ndarray:
    """One launch into an output full of NaN, as float32 (m, n)."""
    poison(bound)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return numbers(bound.result())


@gpu
@pytest.mark.parametrize("layout", ["source", "linear"])
@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_at_ragged_sizes(hopper, stream, name, dtype, layout):
    for shape in OF_DTYPE[dtype]:
        made = case(*shape, dtype=dtype, layout=layout)
        made.check(run(room.bind(name, made.problem, hopper), hopper, stream), f"{name} {layout}")


@gpu
@pytest.mark.parametrize("name", [*RUNGS, "unit_ring"])
def test_rows_without_blocks_one_block_and_all(hopper, stream, name):
    """0.02 of 40 x 4 blocks leave most block rows empty."""
    for density in (0, 1 / 160, 0.02, 1):
        for layout in ("source", "linear"):
            made = case(64 * 40 - 3, 192, 250, density, layout=layout)
            row_ptr = made.problem.host().a.row_ptr
            assert (np.diff(row_ptr) == 0).any() == (density < 1)
            assert made.problem.host().a.blocks == round(160 * density)
            bound = room.bind(name, made.problem, hopper)
            for _ in range(2):
                made.check(run(bound, hopper, stream), f"{name}, density {density}, {layout}")


@gpu
def test_opt0_takes_a_row_major_b(hopper, stream):
    for dtype in family.DTYPES:
        made = case(77, 192, 100, dtype=dtype, layout="row")
        made.check(run(room.bind("opt0", made.problem, hopper), hopper, stream), "opt0")


@gpu
@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_unit_ring_with_every_block_dtype_and_layout(hopper, stream, block, dtype, layout):
    if dtype == "tf32" and layout == "row":
        made = case(77, 77, 100, block=block, dtype=dtype, layout=layout)
        with pytest.raises(ValueError, match="^a row-major B of tf32 "):
            room.bind("unit_ring", made.problem, hopper)
        return
    for m, n, k, density in (
        (1, 1, 1, 1),
        (64, 1, 64, 1),
        (77, 77, 100, 0.5),
        (300, 1030, 333, 0.3),
        (200, 9, 264, 0),
        (300, 512, 200, 1),
    ):
        made = case(m, n, k, density, block, dtype, layout)
        bound = room.bind("unit_ring", made.problem, hopper)
        made.check(run(bound, hopper, stream), f"unit_ring, blocks of {block}, {layout}")


@gpu
@pytest.mark.parametrize("width", family.WIDTHS)
def test_every_width_of_unit_ring(hopper, stream, width):
    """Rings as deep as they go and as short as they may be, groups of one panel and of all; tall tiles, TF32, a
    row-major B where the width allows it."""
    wanted = [(64, "bfloat16", "source"), (128, "tf32", "linear")]
    wanted += [((128, 32), "float16", "row")] if width % 64 == 0 else [(32, "float16", "linear")]
    for block, dtype, layout in wanted:
        made = case(700, 1030, 520, 0.3, block, dtype, layout)
        shape = family.shape_of(made.problem)
        more = shallow(width, shape) if (block, dtype) == (64, "bfloat16") else ()
        for config in (deep(width, shape), *more):
            bound = unit.bind(str(config), made.problem, hopper, config)
            made.check(run(bound, hopper, stream), f"{config}, {dtype}, {layout}")


@gpu
@pytest.mark.parametrize("width", published.WIDTHS)
def test_every_width_of_the_sweep(hopper, stream, width):
    """n = 333 is no multiple of any; some columns of tiles lie beyond C."""
    made = case(200, 333, 200)
    name = f"opt5_n{width}"
    made.check(run(room.bind(name, made.problem, hopper), hopper, stream), name)
    if width in (24, 128, 208, 248):
        for dtype in ("float16", "tf32"):
            made = case(200, 333, 200, dtype=dtype, layout="linear")
            made.check(run(room.bind(name, made.problem, hopper), hopper, stream), name)


# ------------------------------------------------------------------------------- random values


@functools.cache
def drawn(m: int, n: int, k: int, density: float, **how) -> tuple[Problem, check.Reference]:
    """A problem of random values and its product, of which nothing may change."""
    p = room.problem(m, n, k, density, SEED, **how)
    return p, check.oracle(p)


@gpu
@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("layout", ["source", "linear"])
def test_every_variant_passes_the_harness(hopper, stream, layout, dtype):
    """The check that guards every record, on the operands that records are made with."""
    n = 77 if dtype == "float16" else 512  # which other tests have compiled
    p, reference = drawn(1000, n, 1500, 0.2, dtype=dtype, layout=layout)
    for name in (*RUNGS, "unit_ring"):
        bound = room.bind(name, p, hopper)
        poison(bound)
        errors = check.check(bound, p, reference, stream)
        assert 0 < errors.rel_err < 0.6 * check.LIMITS[dtype].rel_err, f"{name}, seed {SEED}"


@gpu
@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("block", [16, 64, 128, (128, 32), (64, 128)], ids=str)
def test_thin_and_odd_problems_pass_the_harness(hopper, stream, block, layout):
    """As the room makes them: n = 1 has lines that lie 2 bytes apart, whatever their length."""
    for m, n, k in ((64, 1, 64), (1, 64, 128), (333, 77, 1111), (1001, 1003, 1005)):
        p, reference = drawn(m, n, k, 0.6, block=block, layout=layout)
        bound = room.bind("unit_ring", p, hopper)
        poison(bound)
        errors = check.check(bound, p, reference, stream)
        assert errors.rel_err < check.LIMITS["bfloat16"].rel_err, f"seed {SEED}"
        if block == 64 and n == 1 and layout == "source":
            for name in RUNGS:
                bound = room.bind(name, p, hopper)
                poison(bound)
                check.check(bound, p, reference, stream)


# --------------------------------------------------------------------------------- again and again


@gpu
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("opt6_atomic", {}),
        ("opt6_stealing", {}),
        ("unit_ring", {}),
        (64, {}),
        (16, {}),
        ("unit_ring", {"block": 128}),
        ("unit_ring", {"block": 32, "layout": "linear"}),
        ("unit_ring", {"dtype": "tf32"}),
        ("unit_ring", {"layout": "row"}),
    ],
    ids=str,
)
def test_the_same_launch_gives_the_same_bits(hopper, stream, name, how):
    """A result that moves is a race: thousands of tiles, block rows of all lengths and empty ones, rings that are
    always full or always empty. Random values, so that another order of additions would show."""
    import cupy

    p = room.problem(64 * 1000, 1024, 512, 0.15, SEED, **how)
    if isinstance(name, int):
        bound = unit.bind("unit_ring", p, hopper, deep(name, family.shape_of(p)))
    else:
        bound = room.bind(name, p, hopper)
    poison(bound)
    assert check.check(bound, p, check.oracle(p), stream).rel_err > 0, f"seed {SEED}"
    out = bound.result()
    array = out.bits if isinstance(out, Half) else out
    first = array.copy(order="A")
    for _ in range(20):
        poison(bound)
        hopper.sync()
        bound.launch(stream)
        stream.sync()
        assert bool(cupy.array_equal(array, first)), f"{name}, {how}, seed {SEED}"
    p.release()
    del bound, out, array, first
    cupy.get_default_memory_pool().free_all_blocks()


@gpu
@pytest.mark.parametrize("name", [*RUNGS, "unit_ring"])
def test_launches_one_after_the_other(hopper, stream, name):
    """Three without a word from the host in between; then other numbers in the same place; counters are 0 again."""
    import cupy

    for layout, n in (("source", 192), ("linear", 77)):  # as they are, and through padded lines
        made, other = (case(64 * 150, n, 500, 0.1, layout=layout, seed=seed) for seed in (0, 1))
        bound = room.bind(name, made.problem, hopper)
        poison(bound)
        hopper.sync()
        for _ in range(3):
            bound.launch(stream)
        stream.sync()
        made.check(numbers(bound.result()), f"{name}, three launches")
        b = made.problem.device().b.bits
        for now in (other, made):
            b.T[...] = cupy.asarray(np.ascontiguousarray(now.problem.host().b.bits.T))
            now.check(run(bound, hopper, stream), f"{name}, other numbers")
        if name in CLAIMING:
            counters = bound.keep[4]
            assert counters.dtype == np.uint32 and not counters.get().any(), name


@gpu
@pytest.mark.parametrize("name", [*RUNGS, "unit_ring"])
def test_a_launch_can_be_captured(hopper, stream, name):
    """A measurement may replay a launch from a CUDA graph: clusters, counters and copies of lines included."""
    for n in (192, 77):
        made = case(64 * 150, n, 500, 0.1, layout="linear")
        bound = room.bind(name, made.problem, hopper)
        made.check(run(bound, hopper, stream), name)
        graph = bench.capture(bound.name, bound, stream)
        for _ in range(3):
            poison(bound)
            hopper.sync()
            graph.launch(stream)
            stream.sync()
            made.check(numbers(bound.result()), f"{name} from a graph")


# --------------------------------------------------------------------------------- large and odd


def many_rows(rows: int, n: int):
    """(problem of one column of blocks, what its rows with a block are, which these are)."""
    p = room.problem(64 * rows, n, 64, 500 / rows, SEED)
    ops = p.host()
    filled = bcsr.block_rows_of(ops.a)
    blocks = half.from_bits(ops.a.val, "bfloat16").astype(np.float64)
    return p, blocks @ half.to_dense(ops.b).astype(np.float64), filled


def test_of_many_block_rows_few_have_a_block():
    p, exact, filled = many_rows(5000, 8)
    whole = bcsr.to_dense(p.host().a).astype(np.float64) @ half.to_dense(p.host().b)
    assert p.host().a.blocks == len(filled) == 500 and (np.diff(filled) > 0).all()
    of_rows = whole.reshape(5000, 64, 8)
    assert np.allclose(of_rows[filled], exact) and np.count_nonzero(of_rows.any(axis=(1, 2))) == 500


@gpu
def test_a_million_block_rows(hopper, stream):
    """C has 2^29 elements; 500 rows of blocks have one, the others are zeros."""
    import cupy

    rows, n = 10**6, 8
    p, exact, filled = many_rows(rows, n)
    for name in (*RUNGS, "unit_ring"):
        bound = room.bind(name, p, hopper)
        poison(bound)
        hopper.sync()
        bound.launch(stream)
        stream.sync()
        c = bound.result().bits.reshape(rows, 64 * n)
        found = half.from_bits(c[cupy.asarray(filled)].get(), "bfloat16").reshape(exact.shape)
        off = np.linalg.norm(found - exact) / np.linalg.norm(exact)
        assert 0 < off < check.LIMITS["bfloat16"].rel_err, f"{name}, seed {SEED}"
        c &= 0x7FFF  # a zero's sign does not count
        assert int(c.any(axis=1).sum()) == len(filled), f"{name}: not 0 where no block is"
        bound = c = None
    p.release()
    cupy.get_default_memory_pool().free_all_blocks()


@gpu
def test_more_panels_than_the_second_dimension_of_a_grid(hopper, stream):
    """n a little over 2^20, which the kernels with a grid of two dimensions refuse."""
    import cupy

    p = room.problem(130, 2**20 + 16, 64, 0.7, SEED)
    reference = check.oracle(p)
    for name in ("opt0", *published.PERSISTENT, "unit_ring"):
        bound = room.bind(name, p, hopper)
        poison(bound)
        assert check.check(bound, p, reference, stream).rel_err > 0, f"{name}, seed {SEED}"
        bound = None
    for other in ("opt2", "opt5", "opt7", "opt5_n8"):
        with pytest.raises(ValueError, match=f"^{other} .* at most 65535: use unit_ring$"):
            room.bind(other, p, hopper)
    p.release()
    reference = None
    cupy.get_default_memory_pool().free_all_blocks()


def moved(array):
    """The same in another place, lines of the same lengths that begin beside a multiple of 16 bytes."""
    import cupy

    flat = cupy.empty(array.size + 16, array.dtype)[4 if array.itemsize == 2 else 2 :][: array.size]
    there = flat.reshape(array.shape[::-1]).T if family.order(array) == "F" else None
    there = flat.reshape(array.shape) if there is None else there
    there[...] = array
    assert there.data.ptr % 16 == 8
    return there


@gpu
@pytest.mark.parametrize("name", [*RUNGS, "unit_ring"])
def test_addresses_that_tma_cannot_take_are_copied(hopper, stream, name):
    """Parts of other arrays, for A's values as well, whose copy must be there when another stream launches."""
    for layout in ("source", "linear"):
        made = case(200, 192, 200, layout=layout)
        for which in ("val", "b", "c"):
            ops = replace(made.problem.device())
            if which == "val":
                ops.a = replace(ops.a, val=moved(ops.a.val))
            else:
                setattr(ops, which, Half("bfloat16", moved(getattr(ops, which).bits)))
            p = replace(made.problem, make_device=lambda ops=ops: ops, _device=None)
            bound = room.bind(name, p, hopper)
            made.check(run(bound, hopper, stream), f"{name}, {which} moved")
            assert bound.result() is ops.c


@gpu
@pytest.mark.parametrize("name", [*RUNGS, "unit_ring"])
def test_nothing_beside_the_operands_is_read_into_a_sum_or_written(hopper, stream, name):
    """B lies between NaN, C between numbers that must stay; no size is a multiple of a block."""
    import cupy

    margin, filler = 2**16, 0x1234

    def within(array, fill: int):
        buffer = cupy.full(array.size + 2 * margin, fill, cupy.uint16)
        flat = buffer[margin:-margin]
        view = flat.reshape(array.shape[::-1]).T if family.order(array) == "F" else None
        view = flat.reshape(array.shape) if view is None else view
        view[...] = array
        return buffer, view

    for layout in ("source", "linear"):
        for m, n, k in ((200, 192, 200), (77, 192, 100), (129, 77, 63)):
            made = case(m, n, k, 0.5, layout=layout)
            ops = made.problem.device()
            buffer, c = within(ops.c.bits, filler)
            b = Half("bfloat16", within(ops.b.bits, NAN)[1])
            inside = Operands(ops.a, b, Half("bfloat16", c))
            p = replace(made.problem, make_device=lambda inside=inside: inside, _device=None)
            bound = room.bind(name, p, hopper)
            made.check(run(bound, hopper, stream), f"{name} between margins, {layout}")
            for side in (buffer[:margin], buffer[-margin:]):
                assert bool((side == filler).all()), f"{name}, {layout}, {m}, {n}, {k}"


# ------------------------------------------------------------------------------------- the tuner


@gpu
@pytest.mark.alone
@pytest.mark.parametrize("how", [{}, {"block": 32, "layout": "linear"}, {"layout": "row"}, {"dtype": "tf32"}], ids=str)
def test_the_second_bind_finds_the_choice_and_both_are_right(hopper, stream, tmp_path, how):
    path = tmp_path / "choices.csv"
    p, reference = drawn(1000, 1024, 1000, 0.2, **how)
    first = launch.bind_auto("auto", p, hopper, file=path)
    assert check.check(first, p, reference, stream).rel_err > 0
    text, (choice,) = path.read_text(), tuning.read(family.CHOICES, path).values()
    assert choice.config in family.candidates(p, hopper) and 1 < choice.median_us < 10_000
    second = launch.bind_auto("auto", p, hopper, file=path)
    assert check.check(second, p, reference, stream).rel_err > 0
    assert path.read_text() == text and first.name == second.name == "auto"
    assert second.prepare_ms < first.prepare_ms / 2, "no trial, nothing to compile"


@gpu
@pytest.mark.alone
def test_a_candidate_that_multiplies_nothing_is_the_fastest_and_not_chosen(hopper, monkeypatch):
    p, _ = drawn(1000, 1024, 1000, 0.2)
    idle, bind = [], unit.bind

    def without_a_kernel(name, problem, device, config):
        bound = bind(name, problem, device, config)
        if len(idle) < 2:
            idle.append(config)
            bound.steps.clear()
        return bound

    monkeypatch.setattr(unit, "bind", without_a_kernel)
    with pytest.warns(UserWarning, match="its output is not that of opt5") as caught:
        winner = launch.tune(p, hopper)
    assert len(caught) == 2 and winner.config not in idle and winner.median_us > 1


# ----------------------------------------------------------------------------------- wrong on purpose

#: The loop of unit_ring, which stands in units.cuh for gated as well, up to what tells its first step.
LAST_STEP = """}} else {{  // as in `multiply`
            int shared_before = 0, private_before = 0;
            for (int step = 0; step < count; ++step) {{
                wait(&shared_full[in_shared.stage], in_shared.parity);
                wait(&private_full[mine][landed.stage], landed.parity);
                const unsigned char* both = shared_ring + in_shared.stage * SHARED_BYTES;
                const unsigned char* own = private_ring + in_private.stage * PRIVATE_BYTES;
                multiply_step<T, B, N, P>(acc, TALL ? own : both, TALL ? both : own, {})"""
#: A bug -> the file where it would be, the text there, the text instead, and a variant on which it shows.
MUTANTS = {
    "sums_of_the_tile_before": (
        "units.cuh",
        LAST_STEP.format("step > 0"),
        LAST_STEP.format("true"),
        "unit_ring",
    ),
    "counters_not_cleared": ("units.cuh", "counter[0] = counter[1] = 0;", ";", "unit_ring"),
    "panels_of_the_first_group": ("loader.cuh", "left + rest % wide", "rest % wide", "unit_ring"),
    "columns_after_32_blocks": ("units.cuh", "columns = col_idx[block + lane];", "columns += 0;", "unit_ring"),
    "store_not_swizzled": ("output.cuh", "(unit ^ line / (8 / UNITS) % UNITS)", "unit", "opt5"),
    "load_not_swizzled": ("opt1.cu", "16 * (unit ^ line % 8)", "16 * unit", "opt1"),
    "counter_not_cleared": ("opt6_atomic.cu", "counters[0] = counters[1] = 0;", ";", "opt6_atomic"),
    "second_half_of_the_first": ("specialised.cuh", "(2 * panel + 1) * N, full", "2 * panel * N, full", "opt4"),
}


@pytest.fixture
def mutant(monkeypatch, tmp_path):
    """mutant(bug): from now on the room compiles sources with one text changed, which must be there once."""

    def change(bug: str) -> None:
        *edit, _ = MUTANTS[bug]
        compiled.changed(family.HERE, tmp_path, *edit)
        monkeypatch.setattr(family, "SOURCE", tmp_path / "unit_ring.cu")
        monkeypatch.setattr(published, "HERE", tmp_path)

    return change


def entry_of(name: str) -> str:
    return room.VARIANTS[name].entries[0]


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_compiles(mutant, tmp_path, bug):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    name = MUTANTS[bug][-1]
    before = jit.compile_cubin(room.VARIANTS[name].source, entry_of(name), "sm_90a").code
    mutant(bug)
    assert jit.compile_cubin(tmp_path / f"{name}.cu", entry_of(name), "sm_90a").code != before


@gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_is_caught(hopper, stream, mutant, bug):
    """By the check of every record, in its second launch at the latest; 40 blocks in a row, panels in groups."""
    name = MUTANTS[bug][-1]
    p, reference = drawn(1500, 5 * 1024, 64 * 50, 0.8)

    def bound():
        if name != "unit_ring":
            return room.bind(name, p, hopper)
        config = replace(launch.usual(p, hopper), group_kib=4096 * 2)
        return unit.bind(name, p, hopper, config)

    right = bound()
    for _ in range(2):
        poison(right)
        assert check.check(right, p, reference, stream).rel_err > 0
    mutant(bug)
    wrong = bound()
    with pytest.raises(check.WrongResult, match="is wrong: |unwritten or NaN"):
        for _ in range(2):
            poison(wrong)
            check.check(wrong, p, reference, stream)
