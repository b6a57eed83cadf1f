"""N:M and 2:4: what is kept, drawn, refused, and in which order kernels and instructions read it."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
import scipy.stats
from alike import alike
from hypothesis import given, settings, strategies as st
from numbers_by_position import CONFIDENCE, uniform
from refused import said, says

from kernels import formats, jit
from kernels.formats import half, nm, two_four

INT32, FLOAT32 = np.int32, np.float32
seeds = st.integers(0, 2**32 - 1)


# ---------------------------------------------------------------------------------------- N:M


def chosen_rows(dense: np.ndarray, keep: int, group: int, vector: int) -> nm.Nm:
    """Pruned by magnitude, one vector at a time and with Python's sort."""
    k, n = dense.shape
    columns, rows = [], []
    for left in range(0, n, vector):
        kept = []
        for top in range(0, k, group):
            here = range(top, min(top + group, k))
            size = {row: sum(abs(float(x)) for x in dense[row, left : left + vector]) for row in here}
            best = sorted(here, key=lambda row, size=size: (-size[row], row))[:keep]
            kept += [(row, True) for row in sorted(best)] + [(k - 1, False)] * (keep - len(best))
        rows.append([row for row, _ in kept])
        columns += [[dense[row, j] if real else 0 for row, real in kept] for j in range(left, min(left + vector, n))]
    return nm.Nm(k, n, keep, group, vector, np.array(columns, FLOAT32).T.copy(), np.array(rows, INT32).T.copy())


def expanded(b: nm.Nm) -> np.ndarray:
    """What a matrix means, value by value."""
    out = np.zeros((b.k, b.n), FLOAT32)
    for row, column in np.ndindex(b.w, b.n):
        out[b.index[row, column // b.vector], column] += b.val[row, column]
    return out


@st.composite
def shapes(draw) -> tuple[int, int, int, int, int]:
    """k, n, keep, group, vector: multiples of group and vector, and ragged ones."""
    group, n = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16, 32])), draw(st.integers(1, 12))
    vector = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 32, 128, nm.INT32_MAX]))
    return draw(st.integers(1, 3 * group + 2)), n, draw(st.integers(1, group)), group, vector


@given(shape=shapes(), seed=seeds, span=st.sampled_from([1, 2, 64]))
@settings(deadline=None, max_examples=200)
def test_pruning_keeps_the_largest_rows_of_every_vector(shape, seed, span):
    """Of many zeros and equal magnitudes; what fits the pattern is the same with and without pruning."""
    (k, n), pattern = shape[:2], shape[2:]
    dense = np.random.default_rng(seed).integers(-span, span + 1, (k, n)).astype(FLOAT32)
    made = nm.validate(nm.compress(dense, *pattern, prune=True))
    alike(made, chosen_rows(dense, *pattern))
    assert np.array_equal(nm.to_dense(made), expanded(made))
    alike(nm.compress(expanded(made), *pattern), nm.compress(expanded(made), *pattern, prune=True))


@given(shape=shapes(), seed=seeds, bad=st.sampled_from([1.0, -1.0, 1e-45, np.nan, -np.inf]), data=st.data())
@settings(deadline=None, max_examples=200)
def test_a_random_matrix_survives_until_one_number_is_too_many(shape, seed, bad, data):
    k, n, keep, group, vector = shape
    b = nm.validate(nm.random(*shape, seed))
    assert (b.w, b.q) == (-(-k // group) * keep, -(-n // vector)) and b.nnz == b.val.size
    index = nm.per_column_index(b)
    assert index.flags.c_contiguous and all(np.array_equal(index[:, j], b.index[:, j // vector]) for j in range(n))
    dense = nm.to_dense(b)
    assert np.array_equal(dense, expanded(b))
    alike(nm.compress(dense, *shape[2:]), b)
    zeros = np.argwhere(dense == 0)
    if len(zeros):
        row, column = zeros[data.draw(st.integers(0, len(zeros) - 1))].tolist()
        dense[row, column] = bad
        top, left = row // group * group, column // vector * vector
        words = [
            f"group {row // group} (rows {top} to {min(top + group, k) - 1})",
            f"has {keep + 1} non-zero rows in vector {column // vector} ",
            f"(columns {left} to {min(left + vector, n) - 1}), but {keep}:{group}",
        ]
        says(words, lambda: nm.compress(dense, keep, group, vector))


def test_pruning_extreme_magnitudes_in_large_groups_and_any_order():
    """Sums are wider than float32, NaN is as large as infinity, and the least number is larger than 0."""
    for column, keep in (([3e38, 3e38, 3.1e38, 3e38], 1), ([0, 0, 1e-45, 0], 1), ([5, np.nan, 9, -np.inf], 2)):
        index = nm.compress(np.array([column, column], FLOAT32).T, keep, 4, 2, prune=True).index
        assert index.ravel().tolist() == ([1, 3] if keep == 2 else [2])
    dense = np.random.default_rng(0).integers(-99, 99, (700, 3)).astype(FLOAT32)
    right = chosen_rows(dense, 260, 300, 2)
    for given_ in (dense, np.asfortranarray(dense), np.repeat(dense, 2, 1)[:, ::2], dense.tolist(), dense.astype(int)):
        alike(nm.compress(given_, 260, 300, 2, prune=True), right)


@pytest.mark.parametrize("chunk", [1, 50, 333])
@pytest.mark.parametrize("pattern", [(2, 4, 3), (1, 4, 1), (5, 8, 32), (4, 4, 2)])
def test_the_chunks_leave_no_seam(monkeypatch, chunk, pattern):
    dense = np.random.default_rng(7).standard_normal((39, 10)).astype(FLOAT32)
    whole = nm.compress(dense, *pattern, prune=True)
    monkeypatch.setattr(nm, "_CHUNK", chunk)
    alike(nm.compress(dense, *pattern, prune=True), whole)
    assert np.array_equal(nm.to_dense(whole), expanded(whole))
    drawn = nm.validate(nm.random(39, 10, *pattern, 7))
    alike(nm.compress(expanded(drawn), *pattern), drawn)
    wrong = np.zeros((30, 6), FLOAT32)
    wrong[20:24, 5] = wrong[24:27, 0] = 1
    says(["group 5 (rows 20 to 23)", "4 non-zero", "vector 2"], lambda: nm.compress(wrong, 2, 4, 2))


@pytest.mark.parametrize(
    ("keep", "group", "vector", "last"),
    [(1, 2, 5, 2), (2, 4, 1, 4), (3, 4, 32, 4), (2, 5, 1, 5), (7, 8, 1, 8), (2, 8, 1, 3), (1, 8, 1, 5), (5, 8, 5, 6)],
)
def test_every_choice_of_rows_is_equally_likely(keep, group, vector, last):
    """In a last group of fewer rows, too."""
    b = nm.random(group + last, 20_000 * vector, keep, group, vector, 3)
    for first, rows, part in ((0, group, b.index[:keep]), (group, last, b.index[keep:])):
        found, counts = np.unique(((1 << np.arange(rows))[part - first]).sum(axis=0), return_counts=True)
        choices = itertools.combinations(range(rows), min(keep, rows))
        assert found.tolist() == sorted(sum(1 << x for x in chosen) for chosen in choices) and uniform(counts)


def test_values_are_uniform_above_zero_and_the_arguments_decide_them(monkeypatch):
    b = nm.random(1002, 999, 3, 4, 32, 6)
    stored = b.val[:-1]
    assert not b.val[-1:].any(), "two rows are left for the last group, three kept"
    assert scipy.stats.kstest(stored.ravel(), "uniform").pvalue > 1 - CONFIDENCE and stored.max() <= 1
    for change in ({"seed": 1}, {"k": 128}, {"n": 128}):
        usual = dict(k=64, n=64, keep=2, group=4, vector=1, seed=0)
        one, other = (nm.random(**{x: INT32(y) for x, y in (usual | more).items()}) for more in ({}, change))
        alike(one, nm.random(**usual))
        assert not np.array_equal(one.val.ravel()[:99], other.val.ravel()[:99])
    real = np.random.default_rng(0)
    least = SimpleNamespace(integers=real.integers, random=np.zeros)  # that float32 in [0, 1) can be
    monkeypatch.setattr(np.random, "default_rng", lambda _: least)
    assert (nm.random(8, 4, 2, 4, 1, 0).val == 1).all(), "zero never occurs, and one may"


@pytest.mark.parametrize("group", [1, 3, 7, 10, 32, 128])
def test_every_pattern_is_found_by_its_density(group):
    for keep in range(1, group + 1):
        for density in (keep / group, 1 - (group - keep) / group, FLOAT32(keep / group)):
            assert nm.keep_of(density, INT32(group)) == keep


@pytest.mark.parametrize(
    ("density", "group", "words"),
    [
        (0.3, 4, ["density 0.3", "N/4", "0.25 (1:4)", "0.5 (2:4)"]),
        (0.9, 8, ["0.9", "0.875 (7:8)", "1.0 (8:8)"]),
        (0, 8, ["density 0 ", "choose 0.125 (1:8)"]),
        (0.5, 1, ["0.5", "choose 1.0 (1:1)"]),
        (1.5, 4, ["density", "1.5", "0 to 1"]),
        (-0.25, 4, ["density", "-0.25", "0 to 1"]),
        (float("nan"), 4, ["density", "nan", "0 to 1"]),
        ("0.5", 4, ["density", "'0.5'"]),
        (0.5, 4.0, ["group", "4.0", "whole number"]),
    ],
)
def test_another_density_gets_the_nearest_ones(density, group, words):
    says(words, lambda: nm.keep_of(density, group))


SIZES = dict(k=8, n=8, keep=2, group=4, vector=4, seed=0)


@pytest.mark.parametrize("value", [0, -4, 8.0, 2**32, None, "8", float("nan")])
@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_seeds_that_make_no_matrix_are_refused(name, value):
    if (name, value) != ("seed", 0):
        says([f"{name} is {value!r}", "whole number from"], lambda: nm.random(**SIZES | {name: value}))


@pytest.mark.parametrize(
    ("dense", "words"),
    [
        (np.ones(4, FLOAT32), ["2-dimensional", "1-dimensional float32"]),
        (np.ones((4, 4), np.complex64), ["complex64"]),
        (np.array([["a"]]), ["<U1"]),
        (np.ones((0, 4), FLOAT32), [" is 0"]),
        (np.ones((4, 0), FLOAT32), [" is 0"]),
    ],
)
def test_what_is_no_real_matrix_is_refused(dense, words):
    says(words, lambda: nm.compress(dense, 2, 4, 1))
    says(words, lambda: two_four.compress(dense, "float16"))


# ---------------------------------------------------------------------------------------- 2:4

#: dtype -> size of a bit pattern, whose order is that of the numbers' sizes.
MAGNITUDES = {
    "bfloat16": lambda x: x & 0x7FFF,
    "float16": lambda x: x & 0x7FFF,
    "e4m3": lambda x: x & 0x7F,
    "int8": lambda x: abs(x - 256 * (x > 127)),
}
#: Six pairs of indices, as the four bits of metadata that stand for them.
NIBBLES = {(0, 1): 4, (0, 2): 8, (0, 3): 12, (1, 2): 9, (1, 3): 13, (2, 3): 14}
each_dtype = pytest.mark.parametrize("dtype", MAGNITUDES)


def compressed(x, dtype: str, prune: bool = False):
    return two_four.compress(x, dtype, prune)


def chosen_pairs(bits: np.ndarray, dtype: str) -> tuple[list, list, list]:
    """val, meta and the dense patterns, pruned by magnitude, one group at a time and with Python's sort."""
    size, unit, made = MAGNITUDES[dtype], 32 // bits.itemsize, ([], [], [])
    for row in np.pad(bits, ((0, 0), (0, -bits.shape[1] % unit))).tolist():
        pairs = [sorted(sorted(range(g, g + 4), key=lambda i: -size(row[i]))[:2]) for g in range(0, len(row), 4)]
        words = [NIBBLES[low % 4, high % 4] << 4 * (i % 4) for i, (low, high) in enumerate(pairs)]
        kept = set(sum(pairs, []))
        made[0].append([row[i] for i in sorted(kept)])
        made[1].append([sum(words[i : i + 4]) for i in range(0, len(words), 4)])
        made[2].append([x if i in kept else 0 for i, x in enumerate(row[: bits.shape[1]])])
    return made


def patterns(m: int, k: int, dtype: str, seed: int, span: int = 16) -> np.ndarray:
    """Bit patterns of both signs: all there are, or few magnitudes, so that many are equal."""
    kind = np.uint16 if dtype in half.DTYPES else np.uint8
    rng, top = np.random.default_rng(seed), 8 * np.dtype(kind).itemsize
    return (rng.integers(0, 2 ** min(span, top), (m, k)) ^ rng.integers(0, 2, (m, k)) << top - 1).astype(kind)


@each_dtype
@given(m=st.integers(1, 6), k=st.integers(1, 100), span=st.sampled_from([1, 2, 16]), seed=seeds)
@settings(deadline=None, max_examples=100)
def test_the_two_largest_of_every_group_are_kept_or_the_first_misfit_is_named(dtype, m, k, span, seed):
    bits = patterns(m, k, dtype, seed, span)
    made = formats.validate(compressed(bits, dtype, True))
    val, meta, dense = chosen_pairs(bits, dtype)
    assert made.val.tolist() == val and made.meta.tolist() == meta and made.nnz == made.val.size
    assert two_four.to_dense_bits(made).tolist() == dense
    counts = np.add.reduceat([[MAGNITUDES[dtype](int(x)) > 0 for x in row] for row in bits], range(0, k, 4), axis=1)
    wrong = np.argwhere(counts > 2)
    if len(wrong):
        row, group = wrong[0]
        words = [f"row {row}, group {group} (columns {4 * group} to {min(4 * group + 4, k) - 1})", "prune"]
        says([*words, f"has {counts[row, group]} non-zeros"], lambda: compressed(bits, dtype))
    else:
        alike(compressed(bits, dtype), made)


@pytest.mark.parametrize("dtype", half.DTYPES)
@given(m=st.integers(1, 5), k=st.integers(1, 70), seed=seeds)
@settings(deadline=None, max_examples=50)
def test_numbers_are_rounded_before_they_are_pruned_and_random_ones_fit(dtype, m, k, seed):
    bits = patterns(m, k, dtype, seed)
    numbers = half.from_bits(bits, dtype)
    alike(compressed(numbers, dtype, True), compressed(np.where(np.isnan(numbers), 0x7FFF, bits), dtype, True))
    made = two_four.validate(two_four.random(m, k, dtype, seed))
    dense = two_four.to_dense(made)
    alike(compressed(dense, dtype), made)
    assert np.abs(dense).max() <= 1
    # Two of each whole group; one of a single last column, two of two or three.
    assert (dense != 0).sum(axis=1).tolist() == [k // 4 * 2 + min(k % 4, 2)] * m


@pytest.mark.parametrize("by", ["tensor", "rows"])
@pytest.mark.parametrize("dtype", half.EIGHT)
def test_eight_bits_are_of_the_scaled_numbers(monkeypatch, dtype, by):
    x = np.random.default_rng(3).normal(size=(50, 70)).astype(FLOAT32) * np.logspace(-2, 2, 50, dtype=FLOAT32)[:, None]
    a, whole = two_four.compress(x, dtype, prune=True, scale=by), half.from_dense(x, dtype, by)
    kept = np.array(chosen_pairs(whole.bits, dtype)[2], np.uint8)
    assert np.array_equal(a.scale, whole.scale)
    assert np.array_equal(formats.to_dense(a), half.to_dense(half.Eight(dtype, kept, whole.scale)))
    monkeypatch.setattr(two_four, "_CHUNK", 100)
    alike(two_four.compress(x, dtype, prune=True, scale=by), a)
    meta = a.meta.copy()
    meta[41, 0] = 0
    says(["row 41, group 0"], lambda: two_four.validate(replace(a, meta=meta)))
    x[:41] = 0
    says(["row 41, group 0"], lambda: two_four.compress(x, dtype, scale=by))


def test_random_positions_and_values_are_uniform_and_never_change():
    made = two_four.random(1000, 64, "bfloat16", 3)
    last = two_four.random(1000, 3, "bfloat16", 3).meta[:, 0] & 15
    for nibbles, known in (
        (made.meta[:, :, None] >> np.arange(0, 16, 4) & 15, sorted(NIBBLES.values())),
        (last, [4, 8, 9]),
    ):
        found, counts = np.unique(nibbles, return_counts=True)
        assert found.tolist() == known and uniform(counts)
    values = half.from_bits(made.val, "bfloat16")
    assert abs(values.mean()) < 0.015 and abs(np.abs(values).mean() - 0.5) < 0.01
    small = two_four.random(2, 16, "bfloat16", 7)  # shipped records name a seed
    assert small.meta.tolist() == [[17566], [60654]]
    assert small.val[0].tolist() == [49010, 48803, 48878, 16243, 16068, 15770, 48960, 16049]


@pytest.mark.parametrize(
    ("name", "value"), [("m", 2.0), ("k", None), ("k", 2**31 - 15), ("seed", -1), ("dtype", "bf16")]
)
def test_what_makes_no_random_matrix_is_refused(name, value):
    arguments = dict(m=4, k=16, dtype="bfloat16", seed=0) | {name: value}
    says([f"{name} is {value!r}"], lambda: two_four.random(**arguments))


ONES = np.ones((6, 36), FLOAT32)


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (["'bf16'"], lambda: two_four.compress(ONES, "bf16")),
        (["float64"], lambda: two_four.compress(ONES.astype(float), "int8")),
        (["by 'columns'", "a sum runs over"], lambda: two_four.compress(ONES, "int8", scale="columns")),
        (["give the scales"], lambda: two_four.compress(ONES.view(np.uint8), "int8", True, scale="rows")),
        (["(5, 1)"], lambda: two_four.compress(ONES, "int8", True, scale=np.ones((5, 1), FLOAT32))),
        (["NaN or an infinity"], lambda: two_four.compress(np.array([[np.inf]], FLOAT32), "e4m3")),
        (["100 rows"], lambda: two_four.words(np.zeros((6, 4), np.uint16), rows=100)),
        (["even number"], lambda: two_four.words(np.zeros((6, 3), np.uint16))),
        (["k is 2147483617"], lambda: two_four.require_sizes(1, 2**31 - 31, two_four.TwoFourEight)),
        (["by rows"], lambda: two_four.count_threads(2**30, 17)),
    ],
)
def test_what_eight_bits_refuse(words, work):
    says(words, work)
    assert two_four.count_threads(2**31 - 1, 16) == 2**31 - 1


# ------------------------------------------------------------------------- who reads metadata where


@given(m=st.integers(1, 130), k=st.integers(1, 130), tile=st.sampled_from([(64, 64), (16, 128), (128, 64)]))
@settings(deadline=None, max_examples=25)
def test_ldmatrix_hands_each_thread_its_rows(m, k, tile):
    """As the docstring of `swizzle` has it, from PTX ISA; beyond the matrix is metadata of zeros."""
    meta = two_four.random(m, k, "float16", m).meta
    swizzled = two_four.swizzle(meta, *tile)
    high, wide = 2 * swizzled.shape[0], swizzled.shape[1] // 2
    assert (
        high % tile[0] == 0 <= high - m < tile[0] and 16 * wide % tile[1] == 0 <= 16 * (wide - meta.shape[1]) < tile[1]
    )
    for row, column in np.ndindex(high, wide):
        i, s, g, j, t = row // 16, row // 8 % 2, row % 8, column // 4, column % 4
        inside = row < m and column < meta.shape[1]
        assert swizzled[8 * i + g, 8 * j + 2 * t + s] == (meta[row, column] if inside else two_four.EMPTY)


@pytest.mark.parametrize(("rows", "columns"), [(8, 64), (24, 64), (64, 32), (64, 96), (0, 64), (64.0, 64)])
def test_another_tile_is_refused(rows, columns):
    says(
        ["2:4 tile has", "positive multiple of"], lambda: two_four.swizzle(np.zeros((64, 4), np.uint16), rows, columns)
    )
    assert "2-dimensional uint16" in said(lambda: two_four.swizzle(np.zeros(4, np.int16)))


@pytest.mark.parametrize(("m", "k", "rows"), [(64, 64, 64), (128, 192, 64), (70, 100, 192), (1, 4, 128)])
def test_each_thread_of_a_warpgroup_has_the_columns_of_its_row(m, k, rows):
    meta = compressed(patterns(m, k, "e4m3", 3), "e4m3", True).meta
    words = two_four.words(meta, rows)
    assert len(words) == -(-m // rows) * rows // 64
    whole = np.full((words.shape[0] * 64, words.shape[1] * 4), two_four.EMPTY, np.uint16)
    whole[: meta.shape[0], : meta.shape[1]] = meta
    for tile, step, thread in np.ndindex(words.shape[0], words.shape[1], 128):
        # CUTLASS's ELayout_64x64: bits of the thread, from the lowest, are 8 rows, 32 columns, 1, 2, 4 and 16, 32 rows.
        bit = [thread >> i & 1 for i in range(7)]
        row = 8 * bit[0] + bit[2] + 2 * bit[3] + 4 * bit[4] + 16 * bit[5] + 32 * bit[6]
        low, high = whole[64 * tile + row, 4 * step + 2 * bit[1] :][:2]
        assert words[tile, step, thread // 32, thread % 32] == int(low) | int(high) << 16


@pytest.mark.parametrize("arch", (jit.FAMILIES[0], "sm_90a"))
def test_the_kernels_load_and_store_16_bytes_and_spill_nothing(arch):
    jobs = [(source, entry) for source, entries in two_four.ENTRIES.items() for entry in entries]
    for (entry, _), (used, mix) in compiled.reports(compiled.cubins(jobs, [arch])).items():
        assert not used.spills and used.registers <= 40, entry  # 1536 threads to a multiprocessor, and more
        assert compiled.count(mix, "LDG", 128) == 2 and compiled.count(mix, "STG", 128) == 1, entry
        assert any(op.startswith(("RED", "ATOM")) for op in mix) == ("FIT" in entry), entry


# ---------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@each_dtype
@pytest.mark.parametrize("offset", [0, 1, 5, 8])
def test_the_kernel_reads_parts_of_arrays_on_the_current_stream(device, dtype, offset):
    """A start between two multiples of 16 bytes."""
    import cupy

    bits = patterns(1, 4000, dtype, 3).ravel()
    part, there = (x[offset : offset + 60 * 64].reshape(60, 64) for x in (bits, cupy.asarray(bits)))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        made = compressed(there, dtype, True)
        stream.synchronize()
    alike(formats.to_host(made), compressed(part, dtype, True))


@pytest.mark.gpu
@each_dtype
@pytest.mark.parametrize(("m", "k"), [(1, 3), (65, 200)])
def test_the_kernel_names_the_first_misfit(device, dtype, m, k):
    import cupy

    bits = two_four.to_dense_bits(compressed(patterns(m, k, dtype, 4), dtype, True))
    bits[m // 2, -4:][:3] = 1, 0x81, 0x7F
    bits[m // 2 + 1 :] = 1  # later ones, many of them
    for x in (bits, cupy.asarray(bits)):
        says([f"row {m // 2}, group {(k - 1) // 4} (columns"], lambda x=x: compressed(x, dtype))
