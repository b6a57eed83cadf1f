"""The room's problems, what bind prepares with NumPy in CuPy's place, and what the compiler makes."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from compiled import count
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import jit
from kernels import nm_cuda_core as room
from kernels.contract import Operands
from kernels.formats import nm
from kernels.nm_cuda_core import launch

H200 = SimpleNamespace(compute_capability=(9, 0))
VARIANTS = tuple(room.VARIANTS)
#: Variants that read the indices of a block's first column only.
GATHER = tuple(name for name in VARIANTS if name != "element_wise")
BUFFERED = tuple(name for name in GATHER if room.entry(name).startswith("double_buffer<"))
#: The report to the letter, and the other variants, which are ours.
VERBATIM = ("verbatim", "verbatim_prefetch", "verbatim_double_buffer", "verbatim_split1")
OURS = tuple(name for name in VARIANTS if name not in VERBATIM)
ATOMIC = ("double_buffer", "verbatim_double_buffer")


@st.composite
def matrices(draw, vectors=(1, 2, 5, 16, 31, 32, 33, 48, 64)) -> nm.Nm:
    """Small whole numbers, so that every product is exact; ragged k and n among them."""
    group = draw(st.sampled_from([1, 2, 4, 8]))
    keep, vector = draw(st.integers(1, group)), draw(st.sampled_from(vectors))
    k, n = draw(st.integers(1, 20)), draw(st.integers(1, 100))
    b = nm.random(k, n, keep, group, vector, draw(st.integers(0, 99)))
    return replace(b, val=np.ceil(b.val * 8).astype(np.float32))


def whole(m: int, k: int) -> np.ndarray:
    return np.random.default_rng([m, k]).integers(-8, 9, (k, m)).astype(np.float32).T


# --------------------------------------------------------------------------------- the variants


def test_the_reports_three_kernels_and_what_they_leave_open():
    assert VARIANTS[:6] == (
        "baseline",
        "prefetch",
        "prefetch_kept",
        "pipelined",
        "double_buffer",
        "double_buffer_split1",
    )
    published = [name for name, kernel in room.VARIANTS.items() if kernel.published]
    assert published == list(VERBATIM) == list(launch.VERBATIM)
    assert all(k.prediction for name, k in room.VARIANTS.items() if name != "baseline")
    assert room.BASELINES == ("cublas",)


def test_entries_have_the_reports_tiles():
    """Section 3.2: 32 x 32 a block, 4 x 4 a thread; 64 compressed rows a step, 32 in section 3.6."""
    assert launch.TILE == 32 and launch.THREADS == 64
    assert {name: room.entry(name) for name in VARIANTS if name != "zigzag"} == {
        "baseline": "baseline<32, 32, 64>",
        "prefetch": "prefetch<32, 32, 64, false>",
        "prefetch_kept": "prefetch<32, 32, 64, true>",
        "pipelined": "pipelined<32, 32, 64>",
        "double_buffer": "double_buffer<32, 32, 32, 2, false>",
        "double_buffer_split1": "double_buffer<32, 32, 32, 1, false>",
        "element_wise": "element_wise<32, 32, 64, 2, 4>",
        "verbatim": "verbatim<32, 32, 64>",
        "verbatim_prefetch": "verbatim_prefetch<32, 32, 64>",
        "verbatim_double_buffer": "verbatim_double_buffer<32, 32, 32>",
        "verbatim_split1": "verbatim_double_buffer<32, 32, 32>",
    }
    assert launch.SPLIT_K == dict.fromkeys(ATOMIC, 2) | {
        "double_buffer_split1": 1,
        "verbatim_split1": 1,
    }
    # Section 3.4: one tile of A and of B; section 3.6: one of A and two of B.
    assert [launch.SHARED_BYTES[name] for name in VERBATIM] == [16384, 16384, 12288, 12288]
    for keep, group in launch.PATTERNS:
        assert room.entry("element_wise", keep, group) in room.VARIANTS["element_wise"].entries
        assert all(room.entry(name, keep, group) == room.entry(name) for name in GATHER)


# --------------------------------------------------------------------------------- the problems


@pytest.mark.parametrize(
    ("density", "group", "vector", "label"),
    [
        (0.5, 4, 32, ""),
        (0.5, 4, 1, "2:4 element-wise"),
        (0.5, 4, 64, "2:4 vectors of 64"),
        (0.25, 4, 32, "1:4"),
        (1, 4, 32, "4:4"),
        (0.5, 8, 32, "4:8"),
        (0.5, 2, 32, "1:2"),
        (0.5, 32, 32, "16:32"),
        (0.25, 32, 1, "8:32 element-wise"),
        (0.375, 32, 16, "12:32 vectors of 16"),
    ],
)
def test_a_label_tells_patterns_apart(density, group, vector, label):
    p = room.problem(64, 96, 128, density, group=group, vector=vector)
    assert p.label == label and p.density == density
    assert room.problem_from_nm(p.host().b, 64).label == label
    assert room.problem_from_nm(p.host().b, 64, label="a layer").label == "a layer"


@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    k=st.integers(1, 70),
    pattern=st.sampled_from([(2, 4), (1, 4), (4, 4), (4, 8), (8, 32), (1, 1)]),
    vector=st.sampled_from([1, 4, 32, 100]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None)
def test_a_problem_counts_what_its_operands_hold(m, n, k, pattern, vector, seed):
    keep, group = pattern
    p = room.problem(m, n, k, keep / group, seed, group=group, vector=vector)
    a, b, c = (p.host().a, p.host().b, p.host().c)
    assert a.dtype == np.float32 and a.shape == (m, k) and a.flags.f_contiguous and c is None
    assert 0 < a.min() and a.max() <= 1, "(0, 1], as the report's section 4.3 has it"
    assert nm.validate(b) is b
    assert (b.k, b.n, b.keep, b.group, b.vector) == (k, n, keep, group, vector)
    w = -(-k // group) * keep
    assert (p.room, p.m, p.n, p.k, p.seed, p.density) == ("nm_cuda_core", m, n, k, seed, keep / group)
    assert p.nnz == b.nnz == w * n
    assert p.useful_flops == 2 * m * n * w and p.flops_def == "2·M·N·W"
    assert p.least_bytes == a.nbytes + b.nbytes + 4 * m * n
    again = room.problem_from_nm(b, m, seed)
    assert np.array_equal(again.host().a, a) and again.host().b is b
    for field in ("nnz", "density", "seed", "useful_flops", "least_bytes", "requested_bytes"):
        assert getattr(again, field) == getattr(p, field), field


def test_requested_bytes_count_what_every_block_asks_for():
    for m, n, k in ((32, 32, 4), (64, 96, 132), (2048, 2048, 2048)):
        p = room.problem(m, n, k)
        a_row, b_row, index = 32 * 4, 32 * 4, 4  # of a compressed row, in a block
        blocks, w = (m // 32) * (n // 32), k // 2
        assert p.requested_bytes == blocks * w * (a_row + b_row + index) + 4 * m * n
        assert p.requested_bytes >= p.least_bytes - 4 * m * k  # a block needs half of A's columns


def test_the_counts_of_the_largest_problem_do_not_wrap():
    """NumPy's integers would; no operand is made."""
    sizes = (np.int32(2**20), np.int32(2**20), np.int32(2**20))
    p = room.problem(*sizes, seed=np.int32(3))
    assert p.useful_flops == 2**60 and p.nnz == 2**39
    assert all(type(x) is int for x in (p.m, p.n, p.k, p.seed, p.useful_flops, p.least_bytes))


def test_the_same_seed_gives_the_same_bits_and_another_seed_gives_others():
    def bits(**changed):
        ops = room.problem(**({"m": 40, "n": 64, "k": 52, "seed": 5} | changed)).host()
        return ops.a.tobytes(), ops.b.val.tobytes(), ops.b.index.tobytes()

    assert bits() == bits()
    assert not any(x == y for x, y in zip(bits(), bits(seed=6), strict=True))
    # A is the same whatever B is pruned to, so that patterns are compared on the same A.
    assert bits()[0] == bits(density=0.25)[0] == bits(vector=1)[0]


def test_the_operands_look_drawn():
    p = room.problem(256, 256, 512, seed=1)
    a, b = p.host().a, p.host().b
    for values in (a, b.val):
        assert abs(values.mean() - 0.5) < 0.01 and abs(values.var() - 1 / 12) < 0.01
    # Neither an operand nor a row repeats another: A and B come from streams of their own.
    assert abs(np.corrcoef(a.T.ravel()[:65536], b.val.ravel()[:65536])[0, 1]) < 0.02
    assert len(np.unique(a, axis=0)) == 256 and len(np.unique(b.val, axis=0)) == b.w
    assert np.any(b.index[:, 0] != b.index[:, 1]), "neighbouring vectors have rows of their own"


def test_the_bits_never_change():
    """The shipped records name a seed; another generator would make them of other matrices."""
    ops = room.problem(4, 3, 8, seed=7, vector=2).host()
    assert (ops.a[:, 0] * 2**24).tolist() == GOLDEN_A
    assert (ops.b.val[3] * 2**24).tolist() == GOLDEN_VAL
    assert ops.b.index.tolist() == GOLDEN_INDEX


GOLDEN_A = [2176676, 3856395, 2082787, 14899389]
GOLDEN_VAL = [13577718, 3492157, 5677923]
GOLDEN_INDEX = [[1, 0], [3, 2], [4, 4], [6, 6]]


@pytest.mark.parametrize("name", ["m", "n", "k"])
@pytest.mark.parametrize("value", [0, -32, 2**31, 64.0, "64", None])
def test_a_size_that_is_none_is_named(name, value):
    sizes = {"m": 64, "n": 64, "k": 64} | {name: value}
    with pytest.raises(ValueError, match=f"^{name} is {value!r}, but must be a whole number"):
        room.problem(**sizes)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"density": 0.3}, r"density 0.3 is not N/4 .* 0.25 \(1:4\) or 0.5 \(2:4\)"),
        ({"density": 0.5, "group": 3}, r"density 0.5 is not N/3"),
        ({"density": 0}, "density 0 is not N/4"),
        ({"density": 1.5}, "density is 1.5, but must be a share from 0 to 1"),
        ({"density": "half"}, "density is 'half', but must be"),
        ({"group": 0}, "group is 0, but must be an integer from 1"),
        ({"vector": 0}, "vector is 0, but must be"),
        ({"vector": -32}, "vector is -32, but must be"),
        ({"vector": 1.5}, r"vector is 1\.5, but must be"),
        ({"seed": -1}, "seed is -1, but must be"),
        ({"seed": 0.5}, r"seed is 0\.5, but must be"),
        ({"seed": 2**32}, "seed is 4294967296, but must be"),
    ],
)
def test_what_makes_no_problem_is_one_sentence(changed, said):
    """At once, and not when the operands are first asked for."""
    with pytest.raises(ValueError, match=said) as caught:
        room.problem(**({"m": 64, "n": 64, "k": 64} | changed))
    assert "\n" not in str(caught.value)


def test_a_given_matrix_is_validated():
    b = nm.random(8, 32, 2, 4, 32, 0)
    with pytest.raises(ValueError, match=r"index\[0, 0\] is 7, outside the rows 0 to 3"):
        room.problem_from_nm(replace(b, index=np.full_like(b.index, 7)), 32)
    with pytest.raises(ValueError, match="m is 0, but must be"):
        room.problem_from_nm(b, 0)


# ------------------------------------------------------------------------- what the gather computes


def published(a: np.ndarray, val: np.ndarray, index: np.ndarray) -> np.ndarray:
    """What a published kernel is given, and what it does with it: index of the first column."""
    c = np.zeros((a.shape[0], val.shape[1]), np.float32)
    for n0 in range(0, val.shape[1], 32):
        for row in range(len(val)):
            c[:, n0 : n0 + 32] += np.outer(a[:, index[row, n0]], val[row, n0 : n0 + 32])
    return c


def test_the_gather_is_wrong_for_element_wise_patterns():
    """The smallest case: one group, in which the first column keeps other rows than the rest."""
    index = np.ones((2, 32), np.int32) * [[1], [3]]
    index[:, 0] = 0, 2
    b = nm.validate(nm.Nm(4, 32, 2, 4, 1, np.ones((2, 32), np.float32), index.astype(np.int32)))
    a = np.array([[1, 10, 100, 1000]], np.float32)
    assert (a @ nm.to_dense(b)).tolist() == [[101] + [1010] * 31]
    gathered = room.as_gathered(b)
    assert (a @ nm.to_dense(gathered)).tolist() == [[101] * 32]
    assert published(a, b.val, nm.per_column_index(b)).tolist() == [[101] * 32]


@given(b=matrices())
@settings(deadline=None)
def test_the_published_kernels_multiply_with_what_they_gather(b):
    a = whole(7, b.k)
    gathered = nm.validate(room.as_gathered(b))
    assert gathered.vector == 32 and gathered.val is b.val
    assert (gathered.k, gathered.n, gathered.keep, gathered.group) == (b.k, b.n, b.keep, b.group)
    done = published(a, b.val, nm.per_column_index(b))
    assert np.array_equal(done, a @ nm.to_dense(gathered))
    # Gathering again changes nothing, and only the first column of a block has a say.
    assert np.array_equal(room.as_gathered(gathered).index, gathered.index)
    first = nm.to_dense(gathered)[:, ::32]
    assert np.array_equal(first, nm.to_dense(b)[:, ::32])


@given(b=matrices(vectors=(32, 64, 96, 128)))
@settings(deadline=None)
def test_the_gather_is_right_where_a_block_shares_its_indices(b):
    gathered = room.as_gathered(b)
    assert np.array_equal(nm.to_dense(gathered), nm.to_dense(b))
    if b.vector == 32:
        assert np.array_equal(gathered.index, b.index)
    a = whole(5, b.k)
    assert np.array_equal(published(a, b.val, nm.per_column_index(b)), a @ nm.to_dense(b))


def test_as_gathered_leaves_its_argument_alone():
    b = nm.random(16, 64, 2, 4, 1, 0)
    before = b.index.copy()
    room.as_gathered(b).index[:] = 0
    assert np.array_equal(b.index, before) and b.vector == 1


# ----------------------------------------------------------------------------------------- bind


class Array(np.ndarray):
    """A NumPy array with the one attribute of CuPy's that bind needs."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


@pytest.fixture
def loaded(monkeypatch) -> list[jit.Cubin]:
    """bind without a GPU; what it would load, and nothing is launched."""
    cubins = []

    def load(cubin, dynamic_shared_bytes=0):
        cubins.append(cubin)
        return cubin.entry

    monkeypatch.setattr(jit, "load", load)
    monkeypatch.setattr(launch, "timed", lambda work: (work().view(Array), 1.25))
    return cubins


def on_fake_gpu(p):
    """A problem of host arrays that look like the device's."""
    host = p.host()
    b = replace(host.b, val=host.b.val.view(Array), index=host.b.index.view(Array))
    c = np.zeros((p.m, p.n), np.float32, order="F").view(Array)
    ops = Operands(host.a.view(Array), b, c)
    return replace(p, make_device=lambda: ops)


def never() -> Operands:
    raise AssertionError("the operands are made before the sizes are checked")


@pytest.mark.parametrize("sizes", [(32, 32, 4), (64, 160, 132), (160, 96, 1021), (96, 32, 1)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_bind_makes_one_launch_that_covers_the_output(loaded, variant, sizes):
    m, n, k = sizes
    p = on_fake_gpu(room.problem(m, n, k))
    a, b, c = (p.device().a, p.device().b, p.device().c)
    bound = room.bind(variant, p, H200)
    ((kernel, config, arguments),) = bound.steps
    assert bound.name == variant and bound.result() is c
    assert kernel == room.entry(variant) and kernel in room.VARIANTS[variant].entries
    (cubin,) = loaded
    assert cubin.source == room.VARIANTS[variant].source and cubin.arch == "sm_90a"
    splits = 2 if variant in ATOMIC else 1
    assert config.grid == (m // 32, n // 32, splits) and config.block == (64, 1, 1)
    assert config.shmem_size == launch.SHARED_BYTES.get(variant, 0), "of ours it is static"
    assert bound.accumulates == (variant in ATOMIC), "only atomics need zeros to add to"

    held, index = bound.keep
    sizes = [m, n, b.w] + [k] * (variant == "element_wise")
    assert [int(x) for x in arguments[: len(sizes)]] == sizes
    assert all(isinstance(x, np.int32) for x in arguments[: len(sizes)])
    assert arguments[len(sizes) :] == tuple(x.data.ptr for x in (a, b.val, index, c))
    # The addresses stay good: what they point to is kept, and in the order that the kernels read.
    assert held is p.device()
    assert np.array_equal(index, nm.per_column_index(b))
    assert index.dtype == np.int32 and index.shape == (b.w, n) and index.flags.c_contiguous
    assert a.flags.f_contiguous and c.flags.f_contiguous and b.val.flags.c_contiguous
    assert bound.prepare_ms == 1.25 and bound.prepare_bytes == 4 * b.w * n


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_launch_clears_exactly_where_atomics_add(loaded, monkeypatch, variant):
    import cuda.core

    from kernels import contract

    done = []
    monkeypatch.setattr(contract, "_clear", lambda array, stream: done.append("clear"))
    monkeypatch.setattr(cuda.core, "launch", lambda stream, config, kernel, *_: done.append(kernel))
    bound = room.bind(variant, on_fake_gpu(room.problem(32, 32, 64)), H200)
    for _ in range(2):
        bound.launch("stream")
    once = ["clear"] * (variant in ATOMIC) + [room.entry(variant)]
    assert done == once * 2


@pytest.mark.parametrize(("keep", "group"), [*launch.PATTERNS, (4, 4), (1, 1), (1, 2), (3, 8), (5, 16), (64, 64)])
def test_element_wise_is_compiled_for_the_pattern_at_hand(loaded, keep, group):
    p = on_fake_gpu(room.problem_from_nm(nm.random(130, 32, keep, group, 1, 0), 32))
    ((kernel, _, _),) = room.bind("element_wise", p, H200).steps
    assert kernel == f"element_wise<32, 32, 64, {keep}, {group}>"
    assert not jit.resources(loaded[0]).spills


@pytest.mark.parametrize("group", [3, 5, 7, 12, 65, 128])
def test_element_wise_refuses_groups_that_do_not_fit_a_step(loaded, group):
    p = on_fake_gpu(room.problem_from_nm(nm.random(260, 32, 1, group, 1, 0), 32))
    said = f"^element_wise stages 64 rows of A, which groups of {group} do not divide$"
    with pytest.raises(ValueError, match=said):
        room.bind("element_wise", p, H200)
    assert not loaded


@pytest.mark.parametrize("group", [3, 128])
@pytest.mark.parametrize("variant", GATHER)
def test_the_others_take_groups_of_any_size(loaded, variant, group):
    p = on_fake_gpu(room.problem_from_nm(nm.random(260, 32, 1, group, 32, 0), 32))
    assert room.bind(variant, p, H200).steps


@pytest.mark.parametrize("variant", VARIANTS)
def test_sizes_that_are_no_multiple_of_the_tile_are_refused(variant):
    """The report's own divisibility rule, before anything is made or compiled."""
    for m, n, name, value in ((33, 64, "m", 33), (64, 48, "n", 48), (1, 1, "m", 1)):
        p = replace(room.problem(m, n, 64), make_device=never)
        said = f"^{variant} needs {name} to be a multiple of 32, the tile of a block, not {value}$"
        with pytest.raises(ValueError, match=said):
            room.bind(variant, p, H200)


@pytest.mark.parametrize("variant", VARIANTS)
def test_more_columns_than_a_grid_has_rows_are_refused(variant):
    n = 65536 * 32
    with pytest.raises(ValueError, match=f"n = {n} needs more than 65535: multiply in several"):
        room.bind(variant, replace(room.problem(32, n, 4), make_device=never), H200)


def test_as_many_columns_as_a_grid_has_rows_are_taken(loaded):
    p = on_fake_gpu(room.problem(32, 65535 * 32, 1, 1, group=1))
    ((_, config, _),) = room.bind("baseline", p, H200).steps
    assert config.grid == (1, 65535, 1)


@pytest.mark.parametrize("variant", VERBATIM)
def test_the_report_to_the_letter_counts_in_32_bits(variant):
    for m, n, k in ((2**16, 32, 2**15), (32, 2**16, 2**16), (2**16, 2**15, 4)):
        p = replace(room.problem(m, n, k), make_device=never)
        with pytest.raises(ValueError, match=f"^{variant} counts elements in 32 bits, .*2147483648: "):
            room.bind(variant, p, H200)


@pytest.mark.parametrize("vector", [1, 4, 16, 31, 33, 48])
@pytest.mark.parametrize("variant", VARIANTS)
def test_only_element_wise_takes_columns_with_indices_of_their_own(loaded, variant, vector):
    p = on_fake_gpu(room.problem(32, 64, 64, vector=vector))
    if variant == "element_wise":
        assert room.bind(variant, p, H200).steps
        return
    with pytest.raises(ValueError, match=f"among {vector} columns, not 32: use element_wise$"):
        room.bind(variant, p, H200)
    assert not loaded
    # The chapter shows what they would compute.
    assert room.bind(variant, p, H200, shared_indices=False).steps


@pytest.mark.parametrize("vector", [32, 64, 96, 128])
@pytest.mark.parametrize("variant", VARIANTS)
def test_whole_blocks_that_share_their_indices_are_taken(loaded, variant, vector):
    assert room.bind(variant, on_fake_gpu(room.problem(32, 96, 64, vector=vector)), H200).steps


def test_an_unknown_variant_is_named_with_the_known_ones():
    p = replace(room.problem(32, 32, 64), make_device=never)
    with pytest.raises(ValueError, match="no variant 'triple_buffer': choose one of baseline, "):
        room.bind("triple_buffer", p, H200)


# ---------------------------------------------------------------------------------------- sweeps


def test_the_sweep_is_the_reports():
    """Section 4.4: squares from 64 to 8192 at 2:4."""
    full = room.sweeps("full")
    assert full == {"scaling": [{"m": s, "n": s, "k": s, "density": 0.5} for s in (2**e for e in range(6, 14))]}
    for shape in full["scaling"]:
        p = room.problem(**shape)  # operands are made on demand, so this is quick
        assert p.label == "" and p.useful_flops == shape["m"] ** 3


def test_kick_is_a_part_of_full():
    full, kick = room.sweeps("full"), room.sweeps("kick")
    assert list(kick) == list(full)
    assert 0 < len(kick["scaling"]) < len(full["scaling"])
    assert all(shape in full["scaling"] for shape in kick["scaling"])


def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match="preset is 'fulll', but must be 'full' or 'kick'"):
        room.sweeps("fulll")


# --------------------------------------------------------------------------- what the compiler makes

#: (source, entry) of every variant, and a few patterns more that a user may bring.
COMPILED = [(kernel.source, e) for kernel in room.VARIANTS.values() for e in kernel.entries]
OTHERS = [
    (room.VARIANTS["element_wise"].source, room.entry("element_wise", *pattern))
    for pattern in ((4, 4), (1, 2), (1, 64), (64, 64))
]


@pytest.fixture(scope="module")
def cubins():
    """What the room declares, so what the chapter compiles, for all targets; the others for one."""
    return compiled.cubins(COMPILED) | compiled.cubins(OTHERS, ["sm_90a"])


@pytest.fixture(scope="module")
def reports(cubins):
    return compiled.reports(cubins)


def entries_on(arch: str) -> list[str]:
    """Ours, those that are not the report's to the letter."""
    known = [entry for _, entry in COMPILED + OTHERS * (arch == "sm_90a")]
    return [entry for entry in known if not entry.startswith("verbatim")]


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_every_entry_compiles_for_every_target_without_spills(reports, arch):
    for entry in (*entries_on(arch), *map(room.entry, VERBATIM)):
        used, mix = reports[entry, arch]
        where = f"{entry} on {arch}: {used}"
        free = {k.spill_free for k in room.VARIANTS.values() if entry in k.entries} or {True}
        assert free == {not entry.startswith("verbatim_double_buffer")}
        # What is to the letter keeps an array of two pointers in local memory: 16 bytes, and no register is spilled.
        assert used.stack_bytes == (0 if free == {True} else 16) and used.local_bytes == 0, where
        assert used.spills == (free == {False}), where
        assert mix["EXIT"] >= 1 and mix["FFMA"] >= 16, where


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_as_many_blocks_share_an_sm_as_the_launch_bounds_ask_for(reports, arch):
    """A block is 64 threads, and an SM has 65536 registers, given out in eights to a thread."""
    for (entry, target), (used, _) in reports.items():
        if target != arch or not entry.startswith(("double_buffer", "element_wise")):
            continue
        least = 11
        if entry.startswith("element_wise"):
            *_, keep, group = map(int, entry.rstrip(">").split("<")[1].split(","))
            # More values than 48 rows of them in registers at once leave fewer blocks.
            least = 4 if launch.DENSE_ROWS // group * keep > 48 else 6
        blocks = 65536 // (math.ceil(used.registers / 8) * 8 * 64)
        assert blocks >= least, f"{entry} on {arch}: {used}"


@pytest.mark.parametrize("arch", jit.TARGETS)
@pytest.mark.parametrize("variant", [name for name in GATHER if name in OURS])
def test_shared_memory_is_that_of_the_reports_tiles(reports, variant, arch):
    """Section 3.4: one tile of A and of B; section 3.6: one of A and two of B."""
    rows, tiles = (32, 3) if variant in BUFFERED else (64, 2)
    used, _ = reports[room.entry(variant), arch]
    assert used.shared_bytes - tiles * rows * 32 * 4 in (0, 1024), "and the driver's own KiB"


@compiled.again
@pytest.mark.parametrize("arch", jit.TARGETS)
def test_the_compiler_drops_the_published_prefetch(reports, arch):
    """Nothing reads what it loads, so the machine code is the baseline's, instruction for instruction."""
    names = [room.entry(name) for name in ("baseline", "prefetch", "prefetch_kept")]
    baseline, prefetch, kept = (reports[name, arch] for name in names)
    assert count(baseline[1], "LDG") and prefetch == baseline and kept != baseline
    if arch == "sm_90a":
        one, two, other = (jit._instructions(reports.cubins[name, arch]) for name in names)
        assert one == two != other


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_the_report_to_the_letter_stores_c_float_by_float(reports, arch):
    """Section 3.3: 16 stores of 4 bytes a thread, where ours makes four of 16."""
    for name in VERBATIM:
        _, mix = reports[room.entry(name), arch]
        assert count(mix, "STG", 32) == count(mix, "STG") == 16, f"{name} on {arch}: {mix}"
        assert not count(mix, "FMUL") + count(mix, "FADD"), f"{name} on {arch}: {mix}"


@compiled.exact
def test_what_the_report_to_the_letter_loads(reports, arch="sm_90a"):
    """A comes 16 bytes at a time behind an index of 4, eight of each in a step of 64 rows (section 3.1)."""
    for name, turns in (("verbatim", 8), ("verbatim_prefetch", 8), ("verbatim_double_buffer", 4)):
        used, mix = reports[room.entry(name), arch]
        where = f"{name} on {arch}: {mix}"
        buffered = name == "verbatim_double_buffer"  # A of the first step and of the next, B of the first
        assert count(mix, "LDG", 32) == turns * (1 + buffered), where
        assert count(mix, "LDG", 128) == count(mix, "STS", 128) == turns * (2 + buffered), where
        assert count(mix, "STS") == count(mix, "STS", 128), where
        rows = 32 if buffered else 64
        assert count(mix, "FFMA") == 16 * rows and used.shared_bytes in (0, 1024), where
        # A is read 16 bytes at a time; so is B, but for the array of pointers, through which it is four generic reads.
        assert count(mix, "LDS", 128) == count(mix, "LDS") == rows * (1 if buffered else 2), where
        assert count(mix, "LD", 32) == count(mix, "LD") == 4 * rows * buffered, where
        assert count(mix, "LDGSTS") == turns * buffered, where
        assert count(mix, "RED") + count(mix, "REDG") == 16 * buffered, where


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_the_compiler_drops_the_prefetch_to_the_letter(reports, arch):
    """Both arrays and their loads: for as many multiply-adds, as much is loaded. How steps are counted differs."""
    one, two = (reports[room.entry(name), arch][1] for name in ("verbatim", "verbatim_prefetch"))
    steps = [count(mix, "FFMA") for mix in (one, two)]  # a compiler may give the last step a copy of its own
    for opcode in ("LDG", "LDS", "STS", "BAR"):
        assert count(one, opcode) * steps[1] == count(two, opcode) * steps[0] > 0, opcode


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_prefetch_that_is_used_loads_everything_twice(reports, arch):
    baseline, kept = (reports[room.entry(name), arch] for name in ("baseline", "prefetch_kept"))
    for bits in (32, 128):
        loads = count(baseline[1], "LDG", bits)
        assert loads >= 8 and count(kept[1], "LDG", bits) == 2 * loads
    for opcode in ("LDS", "STS", "FFMA"):
        assert count(kept[1], opcode) == count(baseline[1], opcode), "and does the rest once"
    assert kept[0].registers > baseline[0].registers


@compiled.exact
@pytest.mark.parametrize("arch", jit.TARGETS)
def test_memory_is_read_and_written_16_bytes_at_a_time(reports, arch):
    for entry in entries_on(arch):
        _, mix = reports[entry, arch]
        where = f"{entry} on {arch}: {mix}"
        for opcode in ("STS", "LDGSTS"):
            assert count(mix, opcode) == count(mix, opcode, 128), where
        # Where element_wise runs short of registers, a compiler may cut one read or two in halves.
        halves = 4 if entry.startswith("element_wise") else 0
        assert count(mix, "LDS", 64) <= halves and not count(mix, "LDS", 32), where
        assert count(mix, "LDS") and count(mix, "STS") and not count(mix, "LDG", 64), where
        assert not count(mix, "LD") + count(mix, "ST"), "generic addresses: " + where
        template = entry.split("<")[0]
        # What is read 4 bytes at a time are indices, one for a row of A: a tile of A takes
        # 16 bytes a thread and turn, in a path for whole tiles and in one for the last.
        indices = 0 if template == "element_wise" else count(mix, "LDG", 128)
        if template in ("baseline", "prefetch", "pipelined"):
            indices //= 2  # the other half is B
        assert count(mix, "LDG", 32) == indices, where
        # C: four columns of a thread, four rows at a time; the fifth is the checksum's.
        kept = entry == room.entry("prefetch_kept")
        stores = 0 if entry == room.entry("double_buffer") else 4
        assert count(mix, "STG", 128) == stores and count(mix, "STG") == stores + kept, where


@compiled.exact
@pytest.mark.parametrize("arch", jit.TARGETS)
def test_multiply_adds_for_a_read_of_shared_memory(reports, arch):
    """Section 3.3: 16 for two float4; an index and four float4 of A instead cost element_wise six."""
    for entry in entries_on(arch):
        _, mix = reports[entry, arch]
        reads = 6 if entry.startswith("element_wise") else 2
        where = f"{entry} on {arch}: {mix}"
        vectors = count(mix, "LDS", 128) + count(mix, "LDS", 64) / 2
        assert reads * count(mix, "FFMA") == 16 * vectors > 0, where
        assert not count(mix, "FMUL") + count(mix, "FADD"), "products are rounded once: " + where
        assert not any(name.startswith(("HMMA", "WGMMA")) for name in mix), "no tensor core"
        assert not any(".TF32" in name for name in mix), where


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_only_double_buffer_copies_past_the_registers_and_only_split_k_adds_atomically(reports, arch):
    for entry in entries_on(arch):
        _, mix = reports[entry, arch]
        where = f"{entry} on {arch}: {mix}"
        buffered = entry.startswith("double_buffer")
        assert bool(count(mix, "LDGSTS")) == buffered, where
        if buffered:  # B's copies are as many as A's loads
            assert count(mix, "LDGSTS") == count(mix, "LDG", 128) == count(mix, "STS"), where
        split = entry == room.entry("double_buffer")
        # RED, whose result nobody waits for: one for each of a thread's 4 x 4.
        assert count(mix, "RED") + count(mix, "REDG") == 16 * split, where
        assert not count(mix, "ATOM") + count(mix, "ATOMG") + count(mix, "ATOMS"), where


@pytest.mark.parametrize(
    ("variant", "entry", "reason"),
    [
        ("baseline", "baseline<16, 32, 64>", "choose BM and BN as multiples of 32"),
        ("baseline", "baseline<32, 48, 64>", "choose BM and BN as multiples of 32"),
        ("baseline", "baseline<32, 32, 60>", "choose BK as a multiple of it"),
        ("prefetch", "prefetch<32, 32, 4, true>", "choose BK as a multiple of it"),
        ("pipelined", "pipelined<32, 32, 63>", "choose BK as a multiple of it"),
        ("double_buffer", "double_buffer<32, 32, 12, 2, false>", "choose BK as a multiple of it"),
        ("element_wise", "element_wise<32, 32, 64, 1, 3>", "choose BK as a multiple of GROUP"),
        ("element_wise", "element_wise<32, 32, 64, 5, 4>", "KEEP <= GROUP"),
        ("verbatim", "verbatim<16, 32, 64>", "choose BM and BN as multiples of 32"),
        ("verbatim_prefetch", "verbatim_prefetch<32, 32, 60>", "choose BK as a multiple of it"),
        (
            "verbatim_double_buffer",
            "verbatim_double_buffer<32, 32, 4>",
            "choose BK as a multiple of it",
        ),
    ],
)
def test_an_impossible_instantiation_says_why(variant, entry, reason):
    with pytest.raises(jit.CompileError, match=f"(?s){entry}.*{reason}"):
        jit.compile_cubin(room.VARIANTS[variant].source, entry, "sm_90a")
