"""The tensor-core kernels: what wgmma reads stands for B, what the compiler makes of them, and exact products."""

from __future__ import annotations

import math
import os
import secrets

import compiled
import numpy as np
import pytest

from artifact.measure import check
from kernels import jit
from kernels.formats import half, nm
from kernels.nm_spmm import operands, tensor

SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
DTYPES = {"tf32": "tf32", "bf16": "bfloat16"}
SIZES = {"tf32": 4, "bf16": 2}
gpu = pytest.mark.gpu

#: k, n, keep, group, vector: vectors narrower than a tile, as wide, wider, and across tiles; ragged k and n.
CASES = [
    (256, 256, 16, 32, 128),
    (256, 256, 4, 32, 32),
    (320, 128, 4, 32, 64),
    (64, 300, 8, 32, 256),
    (96, 200, 32, 32, 32),
    (100, 70, 12, 32, 32),
    (37, 33, 20, 32, 32),
    (50, 290, 2, 16, 48),
    (70, 130, 1, 4, 1),
    (1, 1, 1, 4, 32),
    (33, 513, 4, 32, 96),
    (130, 384, 3, 8, 8),
]


def matrix(case, dtype: str) -> nm.Nm:
    k, n, keep, group, vector = case
    return operands.host_operands(1, n, k, keep, group, vector, 1, dtype).b


def dense(x: tensor.Tiles, k: int, size: int) -> np.ndarray:
    """B with its padding, (k, tiles * 128): a value for every place of a line, as wgmma reads it."""
    tiles = len(x.start) - 1
    made = np.zeros((k, tiles * 128), np.float32)
    values = half.from_bits(x.values, "bfloat16") if size == 2 else x.values
    per = 16 // size
    for tile in range(tiles):
        for step in range(x.start[tile], x.start[tile + 1]):
            for column, place in np.ndindex(128, x.depth):
                unit = place // per ^ column % 8
                value = values[step, column, unit * per + place % per]
                made[x.index[step, place], tile * 128 + column] += value
    return made


@pytest.mark.parametrize("variant", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_stand_for_b(case, variant):
    b, size = matrix(case, DTYPES[variant]), SIZES[variant]
    x = tensor.prepare(b, size)
    tiles, steps = math.ceil(b.n / 128), len(x.index)
    assert x.depth == 128 // size and x.start.shape == (tiles + 1,)
    assert x.start.dtype == x.index.dtype == np.int32
    assert x.values.shape == (steps, 128, x.depth) and x.values.itemsize == size
    assert x.start[0] == 0 and x.start[-1] == steps
    made = dense(x, b.k, size)
    assert np.array_equal(made[:, : b.n], nm.to_dense(b)) and not made[:, b.n :].any()


@pytest.mark.parametrize("variant", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_tile_multiplies_the_rows_that_it_needs_and_no_other(case, variant):
    b = matrix(case, DTYPES[variant])
    x = tensor.prepare(b, SIZES[variant])
    used = nm.to_dense(b) != 0  # no value is 0, so these are the rows that a vector has kept
    for tile in range(len(x.start) - 1):
        rows = x.index[x.start[tile] : x.start[tile + 1]].ravel()
        needed = np.flatnonzero(used[:, 128 * tile : 128 * tile + 128].any(axis=1))
        assert np.array_equal(rows[: len(needed)], needed)
        assert len(rows) - len(needed) < x.depth and (rows[len(needed) :] == needed[-1]).all()


@pytest.mark.parametrize("vector,multiplied", [(128, 4096), (256, 4096), (32, 13560)])
def test_wide_vectors_multiply_what_is_stored(vector, multiplied):
    """At 4:32 four vectors of 32 need 1 - (7/8)^4 = 41% of the rows, ahead of 12.5% for one of 128."""
    x = tensor.prepare(nm.random(32768, 256, 4, 32, vector, 0), 2)
    rows = x.index.size / (len(x.start) - 1)
    assert rows == pytest.approx(multiplied, rel=0.02)


def test_values_are_laid_out_in_parts_alike(monkeypatch):
    b = matrix((130, 384, 3, 8, 8), "tf32")
    whole = tensor.prepare(b, 4)
    monkeypatch.setattr(tensor, "_CHUNK", 4 * b.n)
    parts = tensor.prepare(b, 4)
    for name in ("start", "index", "values"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


# ------------------------------------------------------------------------------------- the compiler


@pytest.fixture(scope="module")
def reports():
    sources = [(x.source, entry) for x in tensor.KERNELS.values() for entry in x.entries]
    return compiled.reports(compiled.cubins(sources, tensor.TARGETS))


ENTRIES = [entry for x in tensor.KERNELS.values() for entry in x.entries]


@pytest.mark.parametrize("entry", ENTRIES)
def test_nothing_spills_and_wgmma_run_on(reports, entry):
    """A wait for every step, and not for every instruction, which the compiler adds where it must."""
    used, mix = reports[entry, "sm_90a"]
    assert not used.spills and used.registers <= 168  # 384 threads a block
    assert compiled.count(mix, "LDGSTS") == 16  # copies of 16 bytes that a producer makes in a step
    waits = sum(number for name, number in mix.items() if name.startswith("WARPGROUP.DEPBAR"))
    assert compiled.count(mix, "HGMMA") >= (8 if entry.startswith("tf32") else 4) * (waits - 1) > 0


@pytest.mark.parametrize("variant", DTYPES)
def test_a_block_fits_an_sm(variant):
    assert tensor.shared_bytes(variant) + 1024 <= 227 * 1024


# ------------------------------------------------------------------------------------- on a GPU

#: m, n, k: below a tile and a step, around their edges, columns that 16 bytes do not divide; the last has more tiles
#: than an H200 has multiprocessors, in no whole waves.
SHAPES = (
    (1, 1, 1),
    (8, 128, 64),
    (77, 136, 100),
    (256, 128, 512),
    (257, 129, 65),
    (300, 1030, 1000),
    (520, 384, 4096),
    (4001, 2500, 256),
    (3072, 2304, 640),
)
PATTERNS = ((128, 0.5), (128, 0.125), (64, 0.25), (32, 0.125), (32, 1.0), (256, 0.375), (48, 0.5))


@pytest.fixture(scope="module")
def hopper(device):
    if jit.arch_of(device) not in tensor.TARGETS:
        pytest.skip("this GPU has no wgmma")
    return device


@pytest.fixture(scope="module")
def stream(hopper):
    return hopper.create_stream()


def whole_numbers(m: int, n: int, k: int, density: float, vector: int, dtype: str):
    """A problem whose values are -1 and 1 (A: the signs of the drawn ones), and its product: exact in any order."""
    import cupy

    p = operands.problem(m, n, k, density, SEED % 2**32, vector=vector, dtype=dtype)
    ops = p.device()
    a = ops.a.bits if dtype == "bfloat16" else ops.a
    sign, one = (0x8000, 0x3F80) if dtype == "bfloat16" else (0x80000000, 0x3F800000)
    bits = a.T.view(cupy.uint16 if dtype == "bfloat16" else cupy.uint32)
    bits &= bits.dtype.type(sign)
    bits |= bits.dtype.type(one)
    cupy.sign(ops.b.val, out=ops.b.val)
    left = half.from_bits(a.T, "bfloat16").T if dtype == "bfloat16" else a
    return p, left @ nm.to_dense(ops.b)


@gpu
@pytest.mark.parametrize("vector,density", PATTERNS)
@pytest.mark.parametrize("variant", DTYPES)
def test_products_of_whole_numbers_are_exact(hopper, stream, variant, vector, density):
    import cupy

    for m, n, k in SHAPES:
        p, exact = whole_numbers(m, n, k, density, vector, DTYPES[variant])
        bound = tensor.bind(variant, p, hopper)
        bound.result().fill(math.nan)
        cupy.cuda.get_current_stream().synchronize()
        for _ in range(2):
            bound.launch(stream)
        stream.sync()
        out = bound.result()
        if variant == "bf16":
            out = half.from_bits(out.bits, "bfloat16")
            exact = half.from_bits(half.to_bits(cupy.ascontiguousarray(exact), "bfloat16"), "bfloat16")
        wrong = int((out != exact).sum())  # NaN, one left unwritten, is wrong too
        assert not wrong, f"{wrong} of {out.size} are wrong at {m}, {n}, {k}, seed {SEED}"


@gpu
@pytest.mark.parametrize("vector", [32, 64, 128])
@pytest.mark.parametrize("variant", DTYPES)
def test_the_check_of_every_record_holds(hopper, stream, variant, vector):
    for m, n, k in SHAPES:
        p = operands.problem(m, n, k, 0.25, SEED % 2**32, vector=vector, dtype=DTYPES[variant])
        errors = check.check(tensor.bind(variant, p, hopper), p, check.oracle(p), stream)
        assert errors.rel_err <= check.LIMITS[DTYPES[variant]].rel_err


@gpu
def test_what_loses_digits_is_refused(hopper):
    with pytest.raises(ValueError, match='^tf32 would lose digits .* dtype="tf32"$'):
        tensor.bind("tf32", operands.problem(64, 64, 64), hopper)
    with pytest.raises(ValueError, match="^bf16 multiplies bfloat16, but A has another dtype"):
        tensor.bind("bf16", operands.problem(64, 64, 64), hopper)
    with pytest.raises(ValueError, match="^tf32 multiplies float32 arrays, but A is a Half"):
        tensor.bind("tf32", operands.problem(64, 64, 64, dtype="bfloat16"), hopper)


# ------------------------------------------------------------------------------------- wrong on purpose

#: A bug -> the file where it would be, the text there, the text instead, the variant.
MUTANTS = {
    "gather_not_swizzled": ("bf16.cu", "(here ^ i % 8 * 16)", "here", "bf16"),
    "left_half_twice": ("tf32.cu", "+ 512, right + r", "+ 512, left + r", "tf32"),
    "rows_8_below_swapped": ("tf32.cu", "bits(x.x, x.y, y.x, y.y)", "bits(x.y, x.x, y.y, y.x)", "tf32"),
    "rows_of_the_first_step_always": ("gather.cuh", "row = ahead, step", "row = mine[0], step", "bf16"),
    "first_column_of_c_only": ("bf16.cu", "at.row * N + 64 * group", "at.row * N", "bf16"),
}


@pytest.fixture
def mutant(monkeypatch, tmp_path):
    """mutant(bug): the variant's kernel, from now on, with one text changed, which must be there once."""
    from dataclasses import replace

    def change(bug: str) -> str:
        *edit, variant = MUTANTS[bug]
        compiled.changed(tensor.HERE, tmp_path, *edit)
        kernel = tensor.KERNELS[variant]
        monkeypatch.setitem(tensor.KERNELS, variant, replace(kernel, source=tmp_path / kernel.source.name))
        return variant

    return change


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_compiles(mutant, bug):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    right = tensor.KERNELS[MUTANTS[bug][3]]
    before = jit.compile_cubin(right.source, right.entries[0], "sm_90a").code
    wrong = tensor.KERNELS[mutant(bug)]
    assert jit.compile_cubin(wrong.source, wrong.entries[0], "sm_90a").code != before


@gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_is_caught(hopper, stream, mutant, bug):
    variant = mutant(bug)
    p = operands.problem(600, 400, 500, 0.5, SEED % 2**32, vector=128, dtype=DTYPES[variant])
    with pytest.raises(check.WrongResult, match="is wrong: |unwritten or NaN"):
        check.check(tensor.bind(variant, p, hopper), p, check.oracle(p), stream)
