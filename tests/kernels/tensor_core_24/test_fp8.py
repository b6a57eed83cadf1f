"""FP8 without a GPU: problems, the order of the metadata, what configurations take, and the SASS."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import replace
from math import ceil
from types import SimpleNamespace

import exact_eight
import numpy as np
import pytest
from test_wgmma import H200, MOST, SMS, Array, array

from artifact.measure import check
from kernels import formats, jit, pitch
from kernels import tensor_core_24 as room
from kernels.contract import Operands
from kernels.formats import eight, two_four_eight
from kernels.formats.eight import Eight
from kernels.formats.half import Half
from kernels.tensor_core_24 import family, fp8, fp8_family
from kernels.tensor_core_24 import fp8_operands as operands
from kernels.tensor_core_24.fp8_family import FAMILY, RUNGS, Fp8

CONFIGS = tuple(dict.fromkeys([*(config for config, *_ in RUNGS.values()), *FAMILY]))
KINDS = (
    ("bfloat16", False, False),
    ("bfloat16", True, True),
    ("e4m3", False, False),
    ("e4m3", True, True),
)
RUNG_CONFIGS = [config for config, *_ in RUNGS.values()]
#: The rungs and what writes C from registers with every kind of scales and output, the rest in the plain kind.
JOBS = {
    config.entry(*kind): config
    for config in CONFIGS
    for kind in (KINDS if config.kernel == "direct" or config in RUNG_CONFIGS else KINDS[:1])
}


# ---------------------------------------------------------------- problems


@pytest.mark.parametrize("scale", operands.SCALES)
@pytest.mark.parametrize(("m", "n", "k"), [(70, 33, 150), (1, 1, 1), (64, 8, 3)])
def test_a_problem_is_two_four_with_k_contiguous_in_both(m, n, k, scale):
    made = fp8.problem(m, n, k, seed=3, scale=scale)
    host = made.host()
    a, b = two_four_eight.validate(host.a), host.b
    assert formats.to_dense(a).shape == (m, k) and formats.to_dense(b).shape == b.shape == (k, n)
    assert b.bits.T.flags.c_contiguous and b.dtype == a.dtype == "e4m3"
    shapes = ((1, 1), (1, 1)) if scale == "tensor" else ((m, 1), (1, n))
    assert (a.scale.shape, b.scale.shape) == shapes
    assert made.nnz == a.nnz and made.useful_flops == 2 * m * n * k and made.limit == "fp8"
    reference = check.oracle(made, on="cpu").values
    exact = two_four_eight.to_dense(a).astype(np.float64) @ eight.to_dense(b).astype(np.float64)
    assert np.allclose(reference, exact, rtol=1e-12)


def test_values_fill_the_range_and_every_pair_of_columns_occurs():
    a, b = (getattr(fp8.problem(128, 128, 256, seed=1).host(), name) for name in "ab")
    for matrix in (two_four_eight.to_dense(a), eight.to_dense(b)):
        kept = np.abs(matrix[matrix != 0])
        assert 0.9 < kept.max() <= 1 and 0.45 < kept.mean() < 0.55
    assert (matrix != 0).all(), "B is dense"
    pairs = np.unique(np.stack([a.meta >> shift & 15 for shift in range(0, 16, 4)]))
    assert len(pairs) == 6


def test_other_seeds_make_other_operands_and_the_same_seed_the_same():
    first, again, other = (fp8.problem(32, 16, 64, seed=seed).host() for seed in (1, 1, 2))
    assert np.array_equal(first.a.val, again.a.val) and np.array_equal(first.b.bits, again.b.bits)
    assert (first.a.val != other.a.val).mean() > 0.9 and (first.b.bits != other.b.bits).mean() > 0.9
    assert (first.a.meta != other.a.meta).any()


def test_labels_tell_kinds_of_problems_apart():
    labels = {operands.label(scale, out) for scale in operands.SCALES for out in operands.OUTS}
    assert len(labels) == 4 and operands.label() == "e4m3"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"m": 0}, "m is 0"),
        ({"density": 0.25}, "density is 0.25"),
        ({"scale": "rows"}, "scale is 'rows'"),
        ({"out": "float16"}, "C is 'float16'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_what_makes_no_problem_is_one_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        fp8.problem(**({"m": 8, "n": 8, "k": 8} | change))


def test_given_matrices_must_go_together():
    host = fp8.problem(32, 16, 64).host()
    a, b = host.a, host.b
    assert fp8.problem_from(a, b).label == "e4m3"
    wrong = a.meta.copy()
    wrong[3, 1] = 0x4440  # group 4 of row 3 has the position 0 twice
    for left, right, words in (
        (replace(a, meta=wrong), b, "indices 0 and 0 in row 3, group 4"),
        (a, replace(b, bits=np.ascontiguousarray(b.bits)), "k contiguous"),
        (a, replace(b, bits=b.bits.T[:, :32].copy().T), "64 columns and B has 32 rows"),
        (replace(a, dtype="int8"), b, "int8"),
    ):
        with pytest.raises(ValueError, match=words):
            fp8.problem_from(left, right)


# ---------------------------------------------------------------- metadata


@pytest.mark.parametrize(("m", "k", "rows"), [(64, 128, 64), (70, 150, 128), (200, 40, 192), (1, 1, 256)])
def test_a_stage_takes_256_words_for_64_rows_and_128_columns(m, k, rows):
    a = fp8.problem(m, 8, k, seed=5).host().a
    words = fp8.ring_metadata(a, rows)
    high, wide = -(-m // rows) * rows // 64, -(-k // 128)
    assert words.shape == (high, wide * 256) and words.dtype == np.uint32
    meta = np.full((high * 64, wide * 8), 0x4444, np.uint16)  # what is added: the columns 0 and 1 of every group
    meta[:m, : a.meta.shape[1]] = a.meta
    for tile, step, half, warp, lane in np.ndindex(high, wide, 2, 4, 32):
        row = 64 * tile + 16 * warp + 8 * (lane % 2) + lane // 4
        at = 8 * step + 4 * half + 2 * (lane // 2 % 2)
        expected = int(meta[row, at]) | int(meta[row, at + 1]) << 16
        assert words[tile, 256 * step + 128 * half + 32 * warp + lane] == expected


@pytest.mark.parametrize(("m", "k"), [(64, 128), (70, 150), (300, 257)])
def test_a_piece_is_what_the_copy_engine_would_have_brought(m, k):
    """Unit u of a row of 64 bytes at u ^ bits 7 and 8 of its address, as the 64-byte swizzle has it; then the words."""
    a = fp8.problem(m, 8, k, seed=6).host().a
    pieces, words = fp8.pack(a), fp8.ring_metadata(a, 256)
    high, wide = -(-m // 256) * 4, -(-k // 128)
    assert pieces.shape == (high, wide, 5120) and pieces.dtype == np.uint8
    val = np.zeros((64 * high, 64 * wide), np.uint8)
    val[:m, : a.val.shape[1]] = a.val
    at = np.arange(4096)
    found = np.empty_like(val)
    for i, step in np.ndindex(high, wide):
        linear = pieces[i, step, at ^ (at >> 7 & 3) << 4]
        found[64 * i : 64 * i + 64, 64 * step : 64 * step + 64] = linear.reshape(64, 64)
        own = words[i, 256 * step : 256 * step + 256]
        assert np.array_equal(pieces[i, step, 4096:].view(np.uint32), own)
    assert np.array_equal(found, val)


# ---------------------------------------------------------------- configurations


def test_no_configuration_is_tried_twice_and_all_fit():
    assert len(set(FAMILY)) == len(FAMILY)
    for config in CONFIGS:
        config.check(8192, 8192, 8192, MOST)
    assert {c.kernel for c in CONFIGS} == set(fp8_family.KERNELS)
    assert set(fp8_family.PACKED) <= {c.kernel for c in FAMILY}
    assert set(RUNGS) | {"fp8_auto"} == set(fp8.VARIANTS)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Fp8("ring"), "kernel 'ring'"),
        (Fp8(groups=3), "groups 3"),
        (Fp8("refilling", 2), "groups 2"),
        (Fp8("refilling", 3, 2), "rows of a tile 384"),
        (Fp8(n=96), "n 96"),
        (Fp8("direct", n=168, buffers=0), "n 168"),
        (Fp8("direct"), "buffers 2"),
        (Fp8("multicast"), "keep ''"),
        (Fp8("pairs", buffers=0), "keep ''"),
        (Fp8("pairs", 2, 2, 192, buffers=0, keep="a"), "rows of a tile 256"),
        (Fp8(ahead=64), "ahead 64"),
        (Fp8(keep="c"), "keep 'c'"),
        (Fp8(band=0), "bands of 0"),
        (Fp8(blocks=2, n=256), "registers for 192"),
        (Fp8(stages=9), "use fewer stages"),
        (Fp8("refilling", 3, stages=2), "stages 2"),
        (Fp8("split_k", 2, 1, 128, 6, 1, 8), "cut 4 steps of 128 columns into 8"),
        (Fp8("split_k", 2, 1, 256, 2, 1, 2), "use more stages"),
        (Fp8(splits=2), "splits 2"),
    ],
)
def test_what_a_configuration_does_not_take_is_one_sentence(config, words):
    with pytest.raises(ValueError, match=words):
        config.check(512, 512, 512, MOST)
    assert not fp8_family.fits(config, 512, 512, 512, MOST)


@pytest.mark.parametrize("shape", [(1, 1, 1), (512, 512, 512), (8192, 16, 8192), (16384, 16384, 16384)])
def test_every_shape_has_candidates_and_the_tuner_few_of_them(shape):
    found = fp8_family.candidates(*shape, SMS, MOST)
    taken = [c for c in FAMILY if fp8_family.fits(c, *shape, MOST)]
    times = {c: fp8_family.predict(c, *shape, SMS) for c in taken}
    assert found and set(found) == {c for c in taken if times[c] <= 1.5 * min(times.values())}
    assert min(shape) < 512 or len(found) < len(FAMILY)


@pytest.mark.parametrize(("size", "n"), [(3072, 144), (4096, 176), (8192, 184)])
def test_widths_are_there_that_fill_waves(size, n):
    """Columns that the busiest multiprocessor computes: with 192, what is left over is a wave of its own."""
    busiest = {
        c.n: -(-np.prod(c.tiles(size, size)) // SMS) * c.n for c in FAMILY if c.kernel == "direct" and c.m == 256
    }
    assert busiest[n] < busiest[192] and busiest[n] <= 1.07 * size * size / 256 / SMS


def test_choices_of_fp8_lie_beside_the_others():
    config = RUNGS["fp8_refilling"][0]
    assert family.CHOICES.families["fp8"] is Fp8
    assert family.sources(config) == {c.source for c in FAMILY}
    assert all(path.is_file() for path in family.sources(config))


# ---------------------------------------------------------------- machine code


@pytest.fixture(scope="module")
def reports():
    cubins = {entry: jit.compile_cubin(c.source, entry, "sm_90a") for entry, c in JOBS.items()}
    return dict(zip(cubins, jit.reports(cubins.values()), strict=True))


#: What NVRTC 13.0 spills: loads of two of the largest tiles.
SPILLS = {
    "fp8_persistent<2, 2, 192, 4, 2, TO_BF16, true, true>": 10,
    "fp8_refilling<3, 1, 256, 4, 1, TO_BF16, true, true>": 10,
}


@pytest.mark.parametrize("entry", JOBS)
def test_every_entry_compiles_without_spills_and_fits_its_block(reports, entry):
    used, _ = reports[entry]
    assert used.spill_loads <= SPILLS.get(entry, 0) and used.spills <= (entry in SPILLS)
    assert used.registers * JOBS[entry].threads <= 65536
    if JOBS[entry].kernel == "refilling":
        assert used.registers <= 168


@pytest.mark.parametrize("entry", JOBS)
def test_the_sparse_instruction_of_eight_bits_is_what_runs(reports, entry):
    """The first stage and that of the loop, each of two steps for each block of rows."""
    _, mix = reports[entry]
    multiplications = {name: n for name, n in mix.items() if "GMMA" in name}
    assert sum(multiplications.values()) == 2 * 2 * JOBS[entry].blocks
    assert all(name.startswith("QGMMA.SP") for name in multiplications)
    config, (loads, stores, bulk) = (
        JOBS[entry],
        (sum(n for name, n in mix.items() if name.startswith(start)) for start in ("UTMALDG", "UTMASTG", "UBLKCP")),
    )
    pieces = config.m // 64
    if config.kernel in fp8_family.PACKED:  # with a hint and without; of B, blocks that share it always have one
        assert (loads, bulk) == (1 if config.pairs else 2, 2 * pieces)
    else:
        assert loads >= 3 > bulk
    assert bool(stores) == (config.kernel not in fp8_family.DIRECT)


@pytest.fixture(scope="module")
def listings():
    """kernel -> its waits for wgmma, in the order of the SASS."""
    cubins = {c.kernel: jit.compile_cubin(c.source, c.entry(), "sm_90a") for c in RUNG_CONFIGS}
    waits = r"WARPGROUP\.DEPBAR\.LE gsb0, (0x\d)"
    return {name: re.findall(waits, jit.disassemble(cubin)) for name, cubin in cubins.items()}


@pytest.mark.parametrize("kernel", fp8_family.KERNELS)
def test_one_multiplication_stays_under_way(listings, kernel):
    """ptxas serialises groups of two words without an error: then every wait is for all that is under way."""
    assert sorted(listings[kernel]) == ["0x0", "0x1", "0x1", "0x1"]


def test_pruning_and_operands_compile_for_every_target():
    jobs = [(two_four_eight.SOURCE, entry) for entry in two_four_eight.ENTRIES]
    cubins = [jit.compile_cubin(*job, arch) for job in jobs for arch in jit.TARGETS]
    cubins += [jit.compile_cubin(operands.SOURCE, entry, "sm_90a") for entry in operands.ENTRIES]
    assert not any(used.spills for used, _ in jit.reports(cubins))


# ---------------------------------------------------------------- bind, without a GPU


@pytest.fixture
def loaded(monkeypatch):
    """bind without a GPU: (source, entry, arch, bytes of dynamic shared memory) of what it would load."""
    import cuda.core

    cubins = []

    def load(cubin, dynamic=0):
        cubins.append((*cubin, dynamic))
        return cubin[1]

    cupy = types.ModuleType("cupy")
    cupy.uint8, cupy.empty = np.uint8, array
    here = SimpleNamespace(synchronize=lambda: None)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: here)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda.core, "LaunchConfig", lambda **knobs: SimpleNamespace(**knobs))
    monkeypatch.setattr(jit, "compile_cubin", lambda *what: what)
    monkeypatch.setattr(jit, "load", load)
    monkeypatch.setattr(fp8, "timed", lambda work: (work().view(Array), 1.25))
    monkeypatch.setattr(fp8, "tensor_map", lambda *what: what)
    return cubins


def on_fake_gpu(p, out: str):
    """A problem of host arrays that look like the device's."""
    a, b = p.host().a, p.host().b
    there = replace(a, **{name: getattr(a, name).view(Array) for name in ("val", "meta", "scale")})
    c = Half(out, array((p.m, p.n), np.uint16))
    if out == "e4m3":
        c = Eight(out, array((p.m, p.n), np.uint8), np.ones((1, 1), np.float32).view(Array))
    ops = Operands(there, Eight(b.dtype, b.bits.T.view(Array).T, b.scale.view(Array)), c)
    return replace(p, make_device=lambda: ops)


@pytest.mark.parametrize("out", operands.OUTS)
@pytest.mark.parametrize("scale", operands.SCALES)
@pytest.mark.parametrize("name", RUNGS)
def test_bind_makes_one_launch_that_covers_the_output(loaded, name, scale, out):
    config = RUNGS[name][0]
    m, n, k = 1500, 3088, 272
    p = on_fake_gpu(fp8.problem(m, n, k, scale=scale, out=out), out)
    bound, ops = fp8.bind(name, p, H200), p.device()
    ((kernel, how, arguments),) = bound.steps
    ((source, entry, arch, dynamic),) = loaded
    vectors = scale == "vectors"
    assert kernel == entry == config.entry(out, vectors, vectors)
    assert (source, arch) == (config.source, "sm_90a")
    assert dynamic == how.shmem_size == config.shared_bytes and how.block == config.threads
    high, wide = ceil(m / config.m), ceil(n / config.n)
    high = ceil(high / 2) if config.pairs else high
    most = high * wide if name == "fp8_split_k" else SMS // 2 if config.pairs else SMS
    direct, packed = config.kernel in fp8_family.DIRECT, config.kernel in fp8_family.PACKED
    assert how.grid == min(high * wide, most), "of clusters, where there are any"
    assert getattr(how, "cluster", 1) == (2 if config.pairs or name == "fp8_split_k" else 1)
    if packed:
        address, *arguments = arguments
        prepared = bound.keep[2]
        assert address == prepared.data.ptr and prepared.shape == (24, 3, 5120)
    else:
        val, metadata, *arguments = arguments
        assert val == (ops.a.val, (config.m, 64), 64) and metadata[1:] == ((config.m // 64, 256),)
        assert len(metadata[0]) % (config.m // 64) == 0, "no box has half of its rows"
    b, d, *arguments = arguments
    assert b[0].base is ops.b.bits.base or np.shares_memory(b[0], ops.b.bits)
    assert b[1:] == (
        (config.n // 2 if config.pairs else config.n, 128),
        128,
        config.ahead,
    )
    if direct:
        assert (d, arguments.pop(0)) == (ops.c.bits.data.ptr, ops.c.bits.strides[0])
    else:
        assert d == (ops.c.bits, (64, 64), 64 if out == "e4m3" else 128)
    steps, *order = arguments[:4]
    assert [int(steps), *map(int, order)] == [3, high, wide, min(config.band, high)]
    kept, *scales = arguments[4:8]
    assert kept == fp8_family.KEEP[config.keep]
    assert scales[:2] == [ops.a.scale.data.ptr, ops.b.scale.data.ptr]
    assert scales[2] == (ops.c.scale.data.ptr if out == "e4m3" else 0)
    assert [int(x) for x in arguments[8:]] == [m, n, 0], "no bias"
    assert bound.result() is ops.c and bound.prepare_ms == 1.25


@pytest.mark.parametrize("out", operands.OUTS)
def test_rows_that_the_copy_engine_cannot_address_are_copied_to_others(loaded, out):
    p = on_fake_gpu(fp8.problem(70, 33, 150, out=out), out)
    copy_b, (_, _, arguments), copy_c = fp8.bind("fp8_persistent", p, H200).steps
    assert copy_b[0] == pitch.ENTRIES[2], "150 bytes a row"
    assert copy_c[0] == pitch.ENTRIES[2 if out == "bfloat16" else 1]
    assert arguments[2][0].shape == (33, 256)
    assert arguments[3][0].shape == (70, 40 if out == "bfloat16" else 48)


def test_other_operands_and_other_gpus_are_refused(loaded):
    with pytest.raises(ValueError, match="take A as 2:4 and B dense in e4m3"):
        fp8.bind("fp8_persistent", room_problem_on_fake_gpu(), H200)
    other = SimpleNamespace(**(vars(H200) | {"compute_capability": (8, 9)}))
    for name in fp8.VARIANTS:
        with pytest.raises(ValueError, match="this GPU, 8.9, has not"):
            fp8.bind(name, fp8.problem(64, 64, 64), other)
    with pytest.raises(ValueError, match="no FP8 variant 'auto'"):
        fp8.bind("auto", fp8.problem(64, 64, 64), H200)


def room_problem_on_fake_gpu():
    """One of the room's own, in bfloat16."""
    p = room.problem(64, 64, 64)
    ops = p.host()
    ops.c = Half("bfloat16", array((64, 64), np.uint16))
    return replace(p, make_device=lambda: ops)


@pytest.mark.parametrize(("scale", "out"), exact_eight.KINDS)
def test_exact_problems_are_exact_in_thirteen_bits(scale, out):
    problem, expected = exact_eight.exact(77, 136, 1000, scale, out, seed=4)
    host = problem.host()
    whole = two_four_eight.to_dense_bits(host.a), host.b.bits
    a, b = (eight.from_bits(bits, "e4m3").astype(np.float64) for bits in whole)
    assert set(np.unique(a)) == {-1, 0, 1} and set(np.unique(b)) == {-2, -1, 0, 1, 2}
    assert (np.abs(a) @ np.abs(b)).max() < 2**13
    exact = check.oracle(problem, on="cpu").values
    assert np.abs(expected - exact).max() <= 2.0 ** (-4 if out == "e4m3" else -9) * np.abs(exact).max()
    assert np.array_equal(np.log2(host.a.scale) % 1, np.zeros_like(host.a.scale))
