"""The operands: their bits, their distribution, what a problem counts and what is refused; and the workloads."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numbers_by_position import random_u32, uniform
from refused import says

from artifact import registry
from artifact.measure import external, records
from kernels import nm_spmm as system
from kernels.formats import half, nm
from kernels.nm_spmm import analysis, family, operands

#: Significant bits of a value, the leading one included.
BITS = {"float32": 24, "tf32": 11, "bfloat16": 8}
#: m, n, k, keep, group, vector: whole; one element; ragged; a last window with fewer rows than N; one vector for all
#: columns; element-wise; groups that are no power of two.
SIZES = [
    (8, 64, 64, 16, 32, 32),
    (1, 1, 1, 1, 32, 32),
    (5, 70, 75, 8, 32, 32),
    (2, 40, 50, 4, 8, 128),
    (4, 9, 11, 2, 4, 1),
    (6, 10, 20, 3, 7, 4),
    (2, 130, 33, 32, 32, 128),
]


def bits_of(ops) -> tuple[np.ndarray, ...]:
    """A, val and index as arrays whose equality is that of the bits."""
    return ops.a.bits if isinstance(ops.a, half.Half) else ops.a.view(np.uint32), ops.b.val.view(np.uint32), ops.b.index


def same(one, two) -> bool:
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(bits_of(one), bits_of(two), strict=True))


def dense_a(ops) -> np.ndarray:
    return half.to_dense(ops.a) if isinstance(ops.a, half.Half) else ops.a


def problem(sizes, seed: int = 0, dtype: str = "float32"):
    m, n, k, keep, group, vector = sizes
    return operands.problem(m, n, k, keep / group, seed, group=group, vector=vector, dtype=dtype)


# --------------------------------------------------------------------------- the generator's bits


def value(seed: int, stream: int, index: int, dtype: str) -> Fraction:
    """One value of a stream: uniform, exactly, then cut towards 0 to the dtype's bits."""
    step = random_u32(seed, stream, index) >> 8
    if dtype == "float32":
        return Fraction(step + 1, 2**24)
    odd = 2 * step + 1 - 2**24  # of 2^24ths; 24 bits at most
    unit = 1 << max(0, abs(odd).bit_length() - BITS[dtype])
    return Fraction(int(math.copysign(abs(odd) // unit * unit, odd)), 2**24)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_element_is_the_one_of_its_position(sizes, dtype):
    """As generate.cu makes them, one at a time."""
    (m, n, k, keep, group, _), seed = sizes, 2**32 - 1
    made = problem(sizes, seed, dtype).host()
    a, b = dense_a(made), nm.validate(made.b)
    assert a.shape == (m, k) and bits_of(made)[0].flags.f_contiguous
    assert all(Fraction(float(a[i, j])) == value(seed, 0, j * m + i, dtype) for i, j in np.ndindex(m, k))
    w, q = b.val.shape[0], b.index.shape[1]
    index = np.full((w, q), k - 1)
    for g, v in np.ndindex(-(-k // group), q):
        rows, kept = min(group, k - g * group), []
        for row in range(rows):
            draw = random_u32(seed, 2, (g * q + v) * group + row) * (rows - row) >> 32
            if draw < min(keep, rows) - len(kept):
                kept.append(g * group + row)
        index[g * keep : g * keep + len(kept), v] = kept
    assert np.array_equal(b.index, index)
    surplus = max(0, keep - (k - (k - 1) // group * group))
    for i, j in np.ndindex(w, n):
        assert Fraction(float(b.val[i, j])) == (0 if i >= w - surplus else value(seed, 1, i * n + j, dtype))


def test_choices_are_equally_likely():
    index = problem((1, 4000, 4 * 30 + 3, 2, 4, 2)).host().b.index
    for rows, choices in (
        (index[:-2].reshape(30, 2, -1) % 4, list(itertools.combinations(range(4), 2))),
        (index[-2:].reshape(1, 2, -1) - 120, list(itertools.combinations(range(3), 2))),
    ):
        found, counts = np.unique(rows.transpose(0, 2, 1).reshape(-1, 2), axis=0, return_counts=True)
        assert [tuple(x) for x in found.tolist()] == choices and uniform(counts)


# --------------------------------------------------------------------------- problems


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("tf32", 4), ("bfloat16", 2)])
def test_a_problem_counts_its_work_and_is_that_of_its_matrix(dtype, size):
    """64 x 128 tiles: A is read for each of three columns of tiles, B for each of two rows, in two bytes where A is."""
    integers = np.int64(100), np.int32(260), np.int64(330)
    p = operands.problem(*integers, density=0.375, seed=np.int64(4), dtype=dtype)
    a, b = p.host().a, p.host().b
    assert (p.room, p.m, p.n, p.k, p.density, p.seed, b.w, b.q) == ("nm_spmm", 100, 260, 330, 0.375, 4, 11 * 12, 9)
    assert p.nnz == b.nnz == b.val.size and p.flops_def == "2·M·N·W" and p.useful_flops == 2 * 100 * 260 * 132
    stored_b, c = size * 132 * 260 + b.index.nbytes, size * 100 * 260
    assert p.least_bytes == a.nbytes + stored_b + c and p.requested_bytes == 3 * a.nbytes + 2 * stored_b + c
    assert p.limit == ("tf32" if dtype == "tf32" else "")
    wide = operands.problem(64, 512, 64, 0.5, vector=512)  # whose vector is asked for by each of four blocks
    assert wide.requested_bytes - wide.least_bytes == 3 * (4 * 64 * 64 + 4 * 32)


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({"density": 0.125}, ""),
        ({"vector": 1}, "element-wise"),
        ({"group": 4, "density": 0.25, "vector": 128}, "1:4 vectors of 128"),
        ({"dtype": "bfloat16", "vector": 128}, "bfloat16, vectors of 128"),
        ({"dtype": "tf32", "group": 16}, "tf32, 8:16"),
    ],
)
def test_the_label_says_what_is_unusual(given, label):
    assert operands.problem(4, 8, 64, **given).label == label


@pytest.mark.parametrize(
    "change",
    [{"density": 0.3}, {"density": "0.5"}, {"group": 0}, {"vector": 32.0}, {"vector": 0}, {"dtype": "bf16"}, {"m": 0}],
)
def test_what_makes_no_problem_gets_one_sentence(change):
    ((name, bad),) = change.items()
    says([name, str(bad)], lambda: operands.problem(**({"m": 10, "n": 4, "k": 100} | change)))


# --------------------------------------------------------------------------- workloads and variants


def test_the_workloads_are_the_papers_and_those_of_others_who_ran_its_code():
    full = system.sweeps("full")
    at = {name: list(dict.fromkeys((s["m"], s["n"], s["k"]) for s in shapes)) for name, shapes in full.items()}
    assert at["sizes"] == [size for _, size in analysis.TABLE_2.values()]
    theirs = records.published(registry.published("nm_spmm", "fig9")).drop_duplicates("point").sort_values("point")
    assert at["llama"] == [tuple(row) for row in theirs[["m", "n", "k"]].to_numpy().tolist()]
    for measured in external.find("nm_spmm", name="anchors"):
        assert set(at["anchors"]) == set(map(tuple, measured.numbers()[["m", "n", "k"]].to_numpy().tolist()))
    for shape in full["vectors"]:
        pattern = round(shape["density"] * shape["group"]), shape["group"], 4 if shape["vector"] % 32 else 32
        assert all(family.takes(config, *pattern, 232_448) for config, *_ in family.RUNGS.values())


def test_a_rung_changes_one_thing_of_the_one_before_and_a_trial_one_of_the_rung_it_is_predicted_against():
    configs = {name: config for name, (config, *_) in (family.RUNGS | family.TRIALS).items()}
    assert len(set(configs.values())) == len(configs), "none is tried twice"
    pairs = [("wide", "banks"), ("bulk", "ahead"), ("bulk", "stream"), ("stream", "rolled"), ("rolled", "turned")]
    pairs += [(prediction.split()[2].strip(".:"), name) for name, (_, _, prediction) in family.TRIALS.items()]
    for one, other in pairs:
        changed = [x for x, y in vars(configs[one]).items() if getattr(configs[other], x) != y]
        assert changed and (len(changed) == 1 or other in ("turned", "turned_bulk", "two_stages", "two_blocks")), other


# --------------------------------------------------------------------------- the kernels


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_the_gpu_makes_the_same_bits(device, seed, dtype):
    for sizes in (*SIZES, (129, 1001, 517, 12, 32, 32)):
        p = problem(sizes, seed, dtype)
        there = p.device()
        nm.validate(there.b)
        assert tuple(there.c.shape) == (p.m, p.n)
        a = half.to_host(there.a) if dtype == "bfloat16" else there.a.get()
        assert same(p.host(), replace(there, a=a, b=nm.to_host(there.b))), sizes
