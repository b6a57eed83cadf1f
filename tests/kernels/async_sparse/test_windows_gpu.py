"""Kernels for windows on a GPU: exact products of every pattern that could go wrong, errors, launches again."""

from __future__ import annotations

import functools
import math
import os
import secrets
from dataclasses import replace

import compiled
import numpy as np
import pytest
from test_operands import pattern

from artifact.baselines import cusparse
from artifact.measure import check
from kernels import async_sparse as room
from kernels import jit
from kernels.async_sparse import family, operands, wcsr, windows
from kernels.async_sparse.wcsr import Config
from kernels.async_sparse.windows import Windows
from kernels.contract import Operands, Problem
from kernels.formats import csr, half
from kernels.formats.csr import Csr
from kernels.formats.half import Half

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
gpu = pytest.mark.gpu

#: Configurations: whole windows, and tasks as short as may be; every width, height and number of warpgroups.
PUBLISHED = [Config(width, chunk) for width in wcsr.WIDTHS for chunk in (0, 32)] + [Config()]
OURS = [
    Windows(window, groups, exact, chunk, longest_first=chunk != 32)
    for window in windows.HEIGHTS
    for groups in (1, 2)
    for exact in (False, True)
    for chunk in (0, 32, -1)
]


# ------------------------------------------------------------------------------------ exact products


def places(which: str, m: int, k: int) -> np.ndarray:
    """bool (m, k): where the matrix has non-zeros."""
    rng = np.random.default_rng((SEED, m, k))
    made = rng.random((m, k)) < 0.05
    if which == "none":
        made[:] = False
    elif which == "all":
        made[:] = True
    elif which == "empty windows":  # of 64 rows and of 8, at the ends as well
        made[:64] = made[70:80] = made[128:192] = made[-70:] = False
    elif which == "a heavy row":
        made[rng.random((m, k)) < 0.9] = False
        made[m // 3] = True
    elif which == "every padding":  # windows of 8 rows with 0, 1, 2 ... columns
        made[:] = False
        for window in range(-(-m // 8)):
            columns = rng.choice(k, min(window % 70, k), replace=False)
            made[rng.integers(8 * window, min(m, 8 * window + 8), columns.size), columns] = True
    else:
        assert which == "random"
    return made


#: Pattern, m, n, k: n = 1, n that no tile divides and no 16 bytes, one element, one row, more tiles than SMs.
SHAPES = (
    ("random", 300, 77, 1000),
    ("random", 1, 1, 1),
    ("random", 1, 256, 300),
    ("random", 65, 1, 200),
    ("random", 2000, 512, 300),
    ("none", 100, 40, 50),
    ("all", 130, 130, 200),
    ("empty windows", 333, 128, 500),
    ("a heavy row", 700, 260, 3000),
    ("every padding", 1130, 65, 90),
    ("random", 64 * 40 - 3, 1030, 130),
)


@functools.cache
def case(which: str, m: int, n: int, k: int, dtype: str = "tf32") -> tuple[Problem, np.ndarray]:
    """A problem of small whole numbers, whose float32 sums are exact, and what C must be."""
    rng = np.random.default_rng((SEED, m, n, k))
    dense = rng.choice(np.array([-2, -1, 1, 2], np.float32), (m, k)) * places(which, m, k)
    row, column = np.nonzero(dense)
    a = Csr(
        m,
        k,
        np.searchsorted(row, np.arange(m + 1)).astype(np.int32),
        column.astype(np.int32),
        dense[row, column],
    )
    b = rng.choice(np.array([-2, -1, 0, 1, 2], np.float32), (k, n))
    product = dense @ b
    if dtype in half.DTYPES:
        product = half.from_bits(half.to_bits(product, dtype), dtype)
        b = Half(dtype, half.to_bits(b, dtype))
    p = room.problem_from_csr(a, n, SEED, which, dtype=dtype, format="csr", reorder="")

    def there() -> Operands:
        import cupy

        c = cupy.zeros((m, n), cupy.uint16 if isinstance(b, Half) else cupy.float32)
        if isinstance(b, Half):
            return Operands(csr.to_device(a), half.to_device(b), Half(dtype, c))
        return Operands(csr.to_device(a), cupy.asarray(b), c)

    made = replace(p, make_host=lambda: Operands(a, b), make_device=there, _host=None, _device=None)
    return made, product


def wanted() -> set[tuple]:
    """(source, entry) of what these tests launch, to compile it on all processors at once."""
    made = {(wcsr.SOURCE, wcsr.entry(d, c.width)) for d in family.DTYPES for c in PUBLISHED}
    made |= {(windows.SOURCE, windows.entry(config)) for config in OURS}
    made |= {(windows.SOURCE, f"clear_cut<{window}>") for window in windows.HEIGHTS}
    return made | {(wcsr.SOURCE, e) for e in ("clear_cut<64>", "round_cut<BF16, 64>", "round_cut<F16, 64>")}


def test_what_is_compiled_ahead_is_what_the_variants_declare():
    declared = {(kernel.source, e) for kernel in (wcsr.KERNELS | windows.KERNELS).values() for e in kernel.entries}
    assert declared <= wanted()


@pytest.mark.parametrize("dtype", [*operands.DTYPES, "float32"])
def test_products_of_the_cases_are_exact(dtype):
    """In float32 and in any order, since every partial sum is a whole number below 2^24."""
    for shape in SHAPES if dtype == "tf32" else SHAPES[:1]:
        p, product = case(*shape, dtype)
        ops = p.host()
        csr.validate(ops.a)
        b = half.to_dense(ops.b) if isinstance(ops.b, Half) else ops.b
        exact = csr.to_dense(ops.a).astype(np.float64) @ b.astype(np.float64)
        if dtype in half.DTYPES:
            exact = half.from_bits(half.to_bits(exact.astype(np.float32), dtype), dtype)
        assert np.array_equal(product, exact) and p.nnz == ops.a.nnz
    with pytest.raises(AssertionError, match="1 of 23100 elements .* row 5, column 7"):
        off = case(*SHAPES[0])[1].copy()
        off[5, 7] += 1
        same(off, case(*SHAPES[0])[1], "another")


def test_patterns_of_the_cases_are_what_they_are_called():
    for which, m, _, k in SHAPES:
        made = places(which, m, k)
        rows = made.sum(axis=1)
        if which == "a heavy row":
            assert rows.max() == k > 100 * np.median(rows)
        if which == "empty windows":
            assert not made[:64].any() and not made[-70:].any() and made[64:70].any()
        if which == "every padding":
            columns = [made[i : i + 8].any(axis=0).sum() for i in range(0, m, 8)]
            assert set(columns) == set(range(70))


@pytest.fixture(scope="module")
def hopper(device):
    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("this GPU has no wgmma")
    compiled.cubins(sorted(wanted()), family.TARGETS)
    return device


@pytest.fixture(scope="module")
def stream(hopper):
    """For all tests on the GPU; at the end their operands are forgotten."""
    yield hopper.create_stream()
    import cupy

    for made in (case, drawn):
        made.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


def numbers(out) -> np.ndarray:
    return half.to_dense(half.to_host(out)) if isinstance(out, Half) else out.get()


def run(bound, device, stream) -> np.ndarray:
    """One launch into an output full of NaN, as float32 (m, n)."""
    bound.result().fill(math.nan)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return numbers(bound.result())


def same(out: np.ndarray, exact: np.ndarray, who) -> None:
    """Every element is exact; NaN, one left unwritten, is wrong."""
    wrong = ~(out == exact)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise AssertionError(
            f"{who}, seed {SEED}: {wrong.sum()} of {wrong.size} elements are wrong, the first at row {row}, column "
            f"{column}: {out[row, column]} instead of {exact[row, column]}"
        )


@gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("config", PUBLISHED, ids=str)
def test_the_published_kernel_on_every_pattern(hopper, stream, config, shape):
    for dtype in family.DTYPES if config.width == 128 else ("tf32",):
        p, exact = case(*shape, dtype)
        bound = wcsr.bind("wcsr", p, hopper, config)
        for _ in range(2):
            same(run(bound, hopper, stream), exact, f"{config} at {shape}, {dtype}")


@gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("config", OURS, ids=str)
def test_windows_of_every_height_on_every_pattern(hopper, stream, config, shape):
    p, exact = case(*shape)
    bound = windows.bind("windows", p, hopper, config)
    for _ in range(2):
        same(run(bound, hopper, stream), exact, f"{config} at {shape}")


@gpu
@pytest.mark.parametrize("dtype", [*operands.DTYPES, "float32"])
def test_kernels_for_blocks_take_a_csr_matrix(hopper, stream, dtype):
    shape = "a heavy row", 300, 192, 500
    names = ("opt0", "unit_ring") if dtype in half.DTYPES else ("opt0",)
    for name in names:
        p, exact = case(*shape, dtype)
        bound = room.bind(name, p, hopper)
        same(run(bound, hopper, stream), exact, f"{name}, {dtype}")
        assert bound.prepare_ms > 0 and bound.prepare_bytes > 64 * 64 * family.DTYPES["bfloat16"][1]


# -------------------------------------------------------------------------------------- random values


@functools.cache
def drawn(dtype: str, n: int = 200) -> tuple[Problem, check.Reference]:
    """A matrix with 40 non-zeros a row and a heavy row, random values, and its product, of which nothing may change."""
    made = pattern(3000, 1280, SEED % 1000)
    row_ptr = made.row_ptr.copy()
    row_ptr[1001:] += 20_000  # row 1000 names many columns, most of them again and again
    at = made.row_ptr[1000]
    extra = np.random.default_rng(SEED).integers(0, 1280, 20_000).astype(np.int32)
    col_idx = np.concatenate((made.col_idx[:at], extra, made.col_idx[at:]))
    a = Csr(3000, 1280, row_ptr, col_idx, np.ones(col_idx.size, np.float32))
    p = room.problem_from_csr(a, n, SEED, dtype=dtype, format="csr")
    return p, check.oracle(p)


@gpu
@pytest.mark.parametrize("dtype", [*operands.DTYPES, "float32"])
def test_every_variant_passes_the_harness(hopper, stream, dtype):
    """The check that guards every record; three products are as accurate as float32 sums can be asked to be."""
    p, reference = drawn(dtype)
    takes = {
        "tf32": ("wcsr", "wcsr_whole", "windows", "windows_exact", *wcsr.TRIALS, *windows.TRIALS),
        "float32": ("windows_exact", *(t for t in windows.TRIALS if "exact" in t)),
    }
    for name in takes.get(dtype, ("wcsr", "wcsr_whole")):
        bound = room.bind(name, p, hopper)
        errors = check.check(bound, p, reference, stream)
        most = 2e-6 if dtype == "float32" else 0.6 * check.LIMITS[dtype].rel_err
        assert errors.rel_err < most, f"{name}, seed {SEED}"
        assert bound.name == name and bound.prepare_ms > 0 and bound.prepare_bytes > 0


@gpu
@pytest.mark.parametrize("dtype", [*operands.DTYPES, "float32"])
def test_cusparse_takes_the_same_problem(hopper, stream, dtype):
    p, reference = drawn(dtype)
    # Of 16-bit types the others add up heavy rows in 16 bits: the check finds 10% in bfloat16.
    for algorithm in ("alg3",) if dtype in half.DTYPES else ("alg1", "alg2", "alg3"):
        bound = cusparse.bind(algorithm, p, hopper)
        check.check(bound, p, reference, stream)
        assert (bound.prepare_bytes > 2 * p.nnz) or dtype not in half.DTYPES


@gpu
def test_tf32_refuses_digits_that_it_would_lose(hopper):
    p, _ = drawn("float32")
    for name in ("wcsr", "windows"):
        with pytest.raises(ValueError, match=f"^{name} would lose digits of its operands"):
            room.bind(name, p, hopper)


@gpu
def test_other_operands_are_refused(hopper):
    blocks = room.problem(128, 64, 128, 1, dtype="tf32", layout="source")
    columns = room.problem_from_csr(pattern(), 64, dtype="tf32", format="csr", layout="source")
    sixteen = room.problem_from_csr(pattern(), 64, dtype="bfloat16", format="csr")
    for name in ("wcsr", "windows", "windows_exact"):
        with pytest.raises(ValueError, match="A is Bcsr"):
            room.bind(name, blocks, hopper)
        with pytest.raises(ValueError, match="B is column-major"):
            room.bind(name, columns, hopper)
    with pytest.raises(ValueError, match="multiplies float32 arrays, but B is bfloat16"):
        room.bind("windows", sixteen, hopper)
    with pytest.raises(ValueError, match="a row-major B of tf32"):
        room.bind("unit_ring", drawn("tf32")[0], hopper)


@gpu
def test_whole_windows_are_bitwise_the_same_every_time(hopper, stream):
    p, _ = drawn("tf32")
    for name in ("wcsr_whole", *(t for t in windows.TRIALS if t.endswith("_whole"))):
        bound = room.bind(name, p, hopper)
        first = run(bound, hopper, stream).view(np.uint32)
        for _ in range(3):
            assert np.array_equal(run(bound, hopper, stream).view(np.uint32), first), name


@gpu
def test_launches_one_after_the_other_are_right(hopper, stream):
    """Without a word from the host in between: cut windows are cleared by each."""
    for dtype, name, config in (
        ("tf32", "wcsr", Config(chunk=32)),
        ("bfloat16", "wcsr", Config(chunk=32)),
        ("tf32", "windows", Windows(chunk=32)),
        ("tf32", "windows_exact", Windows(8, exact=True, chunk=32)),
    ):
        p, exact = case("a heavy row", 700, 260, 3000, dtype)
        module = wcsr if name == "wcsr" else windows
        bound = module.bind(name, p, hopper, config)
        bound.result().fill(math.nan)
        hopper.sync()
        for _ in range(3):
            bound.launch(stream)
        stream.sync()
        same(numbers(bound.result()), exact, f"{config}, {dtype}, the third of three launches")


@gpu
def test_what_lay_in_shared_memory_before_is_not_multiplied(hopper, stream):
    """NaN of another product, whose padding and columns beyond n have values of zero."""
    import cupy

    p, exact = case("every padding", 1130, 65, 90)
    bad = cupy.full(p.device().b.shape, 0x7FC00000, cupy.uint32).view(cupy.float32)
    ops = replace(p.device(), b=bad)
    poisoned = replace(p, make_device=lambda: ops, _device=None)
    for module, config in [(wcsr, c) for c in PUBLISHED] + [(windows, c) for c in OURS]:
        assert np.isnan(run(module.bind("NaN", poisoned, hopper, config), hopper, stream)).any()
        same(run(module.bind("right", p, hopper, config), hopper, stream), exact, config)


@gpu
def test_nothing_beside_the_operands_is_read_into_a_sum_or_written(hopper, stream):
    """B lies between NaN, C between numbers that must stay; addresses that TMA can and cannot take."""
    import cupy

    margin, filler = 2**14, np.float32(7)
    for shift in (0, 1):
        for shape in (("random", 300, 77, 1000), ("a heavy row", 700, 260, 3000)):
            p, exact = case(*shape)
            ops = p.device()

            def within(array, fill, shift=shift):
                buffer = cupy.full(array.size + 2 * margin, fill, cupy.float32)
                view = buffer[margin + shift : margin + shift + array.size].reshape(array.shape)
                view[...] = array
                return buffer, view

            b, (buffer, c) = within(ops.b, math.nan)[1], within(ops.c, filler)
            inside = Operands(ops.a, b, c)
            moved = replace(p, make_device=lambda inside=inside: inside, _device=None)
            for name in ("wcsr", "wcsr_whole", "windows", "windows_exact", "windows_8_narrow"):
                bound = room.bind(name, moved, hopper)
                same(run(bound, hopper, stream), exact, f"{name} between margins")
                sides = buffer[: margin + shift], buffer[margin + shift + c.size :]
                assert all(bool((side == filler).all()) for side in sides), name


# ----------------------------------------------------------------------------------- wrong on purpose

#: A bug -> the file where it would be, the text there, the text instead, and the kernel on which it shows.
MUTANTS = {
    "cut_windows_stored": ("wcsr.cu", "if (it.w < 0) store_direct", "if (true) store_direct", "wcsr"),
    "not_swizzled": ("wcsr.cu", "16 * (unit ^ (line + j) % 8)", "16 * unit", "wcsr"),
    "first_columns_again": ("wcsr.cu", "column + piece % (N / 32) * 32 + across;", "column + across;", "wcsr"),
    "cut_windows_stored_ours": ("windows.cuh", "if (it.cut < 0)", "if (true)", "windows"),
    "sums_of_the_tile_before": ("windows.cuh", "k > 0 || add", "true", "windows"),
    "rest_left_out": ("windows.cuh", "- __uint_as_float(x)) + 0x1000", "* 0.f) + 0x1000", "windows_exact"),
}


@pytest.fixture
def mutant(monkeypatch, tmp_path):
    """mutant(bug): from now on sources have one text changed, which must be there once."""

    def change(bug: str) -> None:
        *edit, _ = MUTANTS[bug]
        compiled.changed(family.HERE, tmp_path, *edit)
        for module in (wcsr, windows):
            monkeypatch.setattr(module, "SOURCE", tmp_path / module.SOURCE.name)

    return change


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_compiles(mutant, tmp_path, bug):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    kernel = room.VARIANTS[MUTANTS[bug][-1]]
    before = jit.compile_cubin(kernel.source, kernel.entries[0], "sm_90a").code
    mutant(bug)
    source = tmp_path / kernel.source.name
    assert jit.compile_cubin(source, kernel.entries[0], "sm_90a").code != before


@gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_is_caught(hopper, stream, mutant, bug):
    """By the check of every record."""
    name = MUTANTS[bug][-1]
    p, reference = drawn("float32" if name == "windows_exact" else "tf32")

    def bound():
        if name == "wcsr":
            return wcsr.bind(name, p, hopper, Config(chunk=128))
        return windows.bind(name, p, hopper, Windows(exact=name == "windows_exact", chunk=256))

    assert check.check(bound(), p, reference, stream).rel_err > 0
    mutant(bug)
    wrong = bound()
    with pytest.raises(check.WrongResult, match="is wrong: |unwritten or NaN"):
        check.check(wrong, p, reference, stream)
