"""2:4 on a GPU: exact products of every configuration, epilogues, margins, waves, streams, and wrong kernels."""

import functools
import math
from dataclasses import replace

import compiled
import numpy as np
import pytest
from products import SEED, between, overlapped
from scipy.special import erf
from there import FP8, KINDS, PACKED, WGMMA

from artifact.measure import verification
from kernels import autotune, jit, padding, tensor_core_24 as system
from kernels.autotune import probe
from kernels.contract import Operands
from kernels.formats import half
from kernels.formats.half import Half
from kernels.lazy import cupy
from kernels.tensor_core_24 import family, fp8, launch, operands, tiles
from kernels.tensor_core_24.family import MMA_SP_FAMILY, STUDIES, Fp8, MmaSp, Wgmma

gpu = pytest.mark.gpu
#: m, n, k: smaller than a tile and a step, around their edges, lines that TMA cannot address, few tokens, and more
#: tiles than there are multiprocessors, in no whole waves.
SHAPES = ((1, 8, 16), (3, 1, 1), (77, 136, 150), (333, 77, 520), (513, 1030, 257), (300, 257, 1096), (1300, 4000, 200))
#: More than a wave of tiles of every rung; B and C are copied to other lines.
WAVES = (1540, 4599, 1000)
CONFIGS = (*WGMMA, *PACKED, *FP8, *dict.fromkeys((*MMA_SP_FAMILY, *STUDIES.values())))
TYPICAL = [*KINDS.values(), *(c for c in PACKED if replace(c, packed=False) in KINDS.values()), *MMA_SP_FAMILY[:1]]
RUNGS = {name: config for name, (config, *_) in system.RUNGS.items()}
#: What tells problems apart: memory orders and dtypes, or scales and the dtype of C.
SIXTEEN = [("CC", "bfloat16"), ("CC", "float16"), ("FF", "bfloat16"), ("FF", "float16"), ("FC", "bfloat16")]
SIXTEEN += [("CF", "bfloat16")]
EIGHT = [(orders, scale, out) for scale in operands.SCALES for orders, out in (("CC", "bfloat16"), ("CC", "e4m3"))]
EIGHT += [("FF", scale, "bfloat16") for scale in operands.SCALES]


@functools.cache
def exact(m: int, n: int, k: int, orders: str = "CC", *kind: str):
    """(a problem of whole numbers, whose product is exact; that product). kind: a dtype, or scales and C's dtype."""
    if len(kind) > 1:
        p = fp8.problem(m, n, k, seed=SEED, orders=orders, scale=kind[0], out=kind[1])
    else:
        p = system.problem(m, n, k, seed=SEED, orders=orders, dtype=(*kind, "bfloat16")[0])
    p = probe.exact(p)
    return p, verification.oracle(p, sizes=False)


@pytest.fixture(scope="module")
def stream(device):
    """For all tests here; at the end their operands are forgotten."""
    yield device.create_stream()
    exact.cache_clear()
    drawn.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


def takes(config, m: int, n: int, k: int, orders: str, device) -> bool:
    there = isinstance(config, MmaSp) or jit.arch_of(device) in tiles.TARGETS
    return there and config.takes(m, n, k, *tiles.limits(device), orders)


def near(config, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The shape, with some steps more where wgmma_rounds would go through a part of its ring, and with rows of B that
    begin at odd multiples of 16 bytes where they are copied for it."""
    (m, n, k), kernel = shape, getattr(config, "kernel", "")
    more = -math.ceil(k / 64) % config.stages if kernel == "rounds" else 0
    return m, n // 16 * 16 + 8 if getattr(config, "copied", False) else n, k + more * 64


def prepare(config, p, device, **more):
    return launch.prepare_config(str(config), p, device, config, **more)


@gpu
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_products_are_exact(device, stream, config):
    """Every element is the one that rounding once makes; what a launch does not write stays NaN. One configuration of
    each kernel in every order and dtype, the rest in one."""
    kinds, done = EIGHT if isinstance(config, Fp8) else SIXTEEN, 0
    if config not in TYPICAL:
        narrow = isinstance(config, family.Tile) and (config.n in config.kind.narrow or "CC" not in config.kind.orders)
        kinds = [next(kind for kind in kinds if (kind[0] == "FF") == narrow)]
    for orders, *kind in kinds:
        for shape in (near(config, shape) for shape in SHAPES):
            if takes(config, *shape, orders, device):
                verification.exactly(
                    prepare(config, exact(*shape, orders, *kind)[0], device), *exact(*shape, orders, *kind), stream
                )
                done += 1
    assert done or jit.arch_of(device) not in tiles.TARGETS or not takes(config, 512, 512, 512, "CC", device)


@functools.cache
def drawn(orders: str):
    """(a problem of random values, its product)."""
    p = system.problem(1300, 3071, 512, seed=SEED, orders=orders)
    return p, verification.oracle(p, on="cpu").values


FUNCTIONS = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@gpu
@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("config", [c for c in TYPICAL if not isinstance(c, Fp8)], ids=str)
def test_alpha_beta_c_a_bias_and_an_activation_are_part_of_the_launch(device, stream, config, activation):
    """C is only read, so that a second launch adds the same."""
    of_hopper = isinstance(config, Wgmma)
    orders = "FF" if of_hopper and config.kind.ordered else "CC"
    if not takes(config, 1300, 3071, 512, orders, device) or not (config.kind.adds if of_hopper else not activation):
        pytest.skip("adds nothing, or takes another shape")
    (p, product), m, n = drawn(orders), 1300, 3071
    numbers = cupy.asarray(np.random.default_rng(SEED).integers(-8, 9, (m, n)).astype(np.float32))
    bits = half.from_dense(numbers, "bfloat16").bits
    c, bias = Half("bfloat16", cupy.asarray(bits, order=orders[1])), cupy.linspace(-4, 4, m, dtype=cupy.float32)
    more = {"activation": activation} if activation else {}
    bound = prepare(config, p, device, alpha=0.5, beta=-0.25, c=c, bias=bias, **more)
    right = 0.5 * product - 0.25 * numbers.get() + bias.get()[:, None].astype(np.float64)
    reference = verification.reference(FUNCTIONS[activation](right))
    for _ in range(2):
        verification.check(bound, p, reference, stream)
    assert bool((c.bits == bits).all())


@gpu
@pytest.mark.parametrize("config", [c for c in TYPICAL if not isinstance(c, Fp8)], ids=str)
def test_nothing_beside_the_operands_is_read_into_a_sum_or_written(device, stream, config):
    """A, B and C lie between NaN, beside which nothing may be written; no size is a multiple of anything."""
    for shape in ((77, 136, 230), (300, 257, 218), (1300, 4000, 250), (1300, 3999, 194)):
        if not takes(config, *near(config, shape), "CC", device):
            continue
        p, reference = exact(*near(config, shape))
        ops = p.device()
        whole, c = between(ops.c.bits)
        a = replace(ops.a, val=between(ops.a.val)[1], meta=between(ops.a.meta)[1])
        inner = Operands(a, Half(ops.b.dtype, between(ops.b.bits)[1]), Half(ops.c.dtype, c))
        inside = replace(p, make_device=lambda inner=inner: inner, _device=None)
        verification.exactly(prepare(config, inside, device), inside, reference, stream)
        begin = (c.data.ptr - whole.data.ptr) // 2
        assert bool((whole[:begin] == 0xFFFF).all() and (whole[begin + c.size :] == 0xFFFF).all())


@gpu
@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_any_order_and_number_of_tiles_reaches_all(device, stream, config):
    """Bands that divide the rows of tiles, or do not, or are higher; some tiles, half a wave, more, a wave, and the
    same after a whole one, the last of them ragged."""
    kind, sms = ["tensor", "bfloat16"] * isinstance(config, Fp8), device.properties.multiprocessor_count
    orders = "CC" if "CC" in config.kind.orders else "FF"
    cuts = config.kernel in ("last_wave", "pieces", "stream_k")
    few = (1, sms // 3, sms // 3 + 1, sms // 2, sms // 2 + 1, sms) if cuts else (1, sms)
    counts = [*few, *(sms + x for x in few)]
    shapes = [(config.m - 3, max(8, config.n * count - 8), (256, 450)[i % 2]) for i, count in enumerate(counts)]
    for band, shape in [*((band, (1540, 3800, 200)) for band in (1, 3, 1000)), *((config.band, x) for x in shapes)]:
        banded, shape = replace(config, band=band), near(config, shape)
        if takes(banded, *shape, orders, device):
            p, reference = exact.__wrapped__(*shape, orders, *kind)  # kept for no other test
            verification.exactly(prepare(banded, p, device), p, reference, stream)


@gpu
@pytest.mark.parametrize("config", RUNGS.values(), ids=RUNGS)
def test_launches_overlap(device, config):
    """One Launch on two streams at once, while another kernel leaves some multiprocessors early: all write the same,
    clusters find two multiprocessors each, and nobody waits for ever."""
    sms, shape = device.properties.multiprocessor_count, near(config, WAVES)
    if not takes(config, *shape, "CC", device):
        pytest.skip("not for this GPU")
    long = system.problem(128 * (4 * sms // 3), 256, 8192, seed=SEED)
    other = prepare(Wgmma("lean", 2, 1, 256, 4, 2, keep="a"), long, device)
    p, reference = exact(*shape)
    bound, streams = prepare(config, p, device), [device.create_stream() for _ in range(3)]
    bound.result().fill(math.nan)
    device.sync()
    for _ in range(10):
        other.launch(streams[2])
        for one in streams[:2]:
            bound.launch(one)
    device.sync()
    verification.compare(bound.result(), reference, config.name)


@gpu
@pytest.mark.parametrize("first", [0, 2**32 - 3])
def test_stream_k_overlaps_and_is_replayed_meanwhile(hopper, first):
    """first: counts that are about to pass 2^32 as well."""
    p, reference = exact(*WAVES)
    overlapped(system.prepare("wgmma_stream_k", p, hopper), hopper, reference, first)


@gpu
@pytest.mark.alone
@pytest.mark.parametrize("n", [2**15, 2**15 + 9])
def test_offsets_beyond_31_bits(hopper, stream, n):
    """C with a little over 2^31 elements, and on its way in lines of another length where n is odd."""
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    need, free = 40 * 2**30, cupy.cuda.runtime.memGetInfo()[0]
    if free < need:
        pytest.skip(f"{need / 2**30:.0f} GiB of memory of a GPU needed, {free / 2**30:.1f} free")
    p = system.problem(2**16 + 200, n, 16, seed=SEED)
    reference = verification.oracle(p, on="gpu")
    for kernel in ("one_stage", "persistent", "stream_k", "lean", "last_wave", "clusters", "pieces", "cp_async"):
        verification.check(prepare(KINDS[f"wgmma_{kernel}"], p, hopper), p, reference, stream)
    p.release()
    reference = None
    pool.free_all_blocks()


# ----------------------------------------------------------------------------------- wrong on purpose

#: A bug -> the file where it would be, the text there, the text instead, and a rung on which it shows.
MUTANTS = {
    "selector_0_twice": ("sparse_stages.cuh", "sparse<1>(", "sparse<0>(", "wgmma_one_stage"),
    "lanes_swapped": ("sparse_stages.cuh", "128 + threadIdx.x % 128]", "128 + (threadIdx.x ^ 1) % 128]", "wgmma_ring"),
    "rows_0_to_31_of_b_twice": ("sparse_stages.cuh", "K_MAJOR ? 64 : 4096", "K_MAJOR ? 64 : 0", "wgmma_specialised"),
    "a_half_of_b_twice": ("sparse_stages.cuh", "k + K / SHARE * rank, full", "k, full", "wgmma_multicast"),
    "a_share_of_b_twice": ("sparse_stages.cuh", "rank * (8192 / SHARE), from.b", "0, from.b", "wgmma_clusters"),
    "store_not_swizzled": ("store.cuh", ") ^ r % 8;", ");", "wgmma_persistent"),
    "head_not_added": ("wgmma_stream_k.cu", "mine[4 * i] += x.x,", "", "wgmma_stream_k"),
    "last_part_alone": ("split_k.cuh", "sum[4 * i] += x.x,", "sum[4 * i] = x.x,", "wgmma_split_k"),
    "packed_a_step_later": ("sparse_stages.cuh", "+ k / K) * 4096", "+ (k / K + 1) % steps) * 4096", "wgmma_packed"),
    "partner_not_added": ("wgmma_last_wave.cu", "mine[4 * i] += x.x,", "", "wgmma_last_wave"),
    "words_of_stage_0": ("sparse_reader.cuh", "words + s * S::E_BYTES", "words", "wgmma_lean"),
    "words_of_half_a_block": ("sparse_reader.cuh", "i * 512", "i * 256", "wgmma_lean_tall"),
    "rows_of_a_thrice": ("sparse_reader.cuh", "ring.a[0] + group * BLOCKS * 4096", "ring.a[0]", "wgmma_refilling"),
    "last_round_alone": ("sparse_reader.cuh", "word[s % 2], s, !first)", "word[s % 2], s, s > 0)", "wgmma_rounds"),
    "neighbours_at_one_place": ("wgmma_gpc.cu", "places[sm_number()]", "places[sm_number() / 2 * 2]", "wgmma_gpc"),
    "rows_of_a_group_twice": ("roles.cuh", "+ group * S::BLOCKS * 64,", "+ group / 2 * S::BLOCKS * 64,", "wgmma_three"),
    "words_of_the_first_piece": ("wgmma_pieces.cu", "2, row / 64,", "2, x.row * GROUPS,", "wgmma_pieces"),
    "first_piece_twice": ("wgmma_pieces.cu", "(x.first + group) * 64", "group * 64", "wgmma_pieces"),
    "last_column_lost": ("pitch.cu", "i < length ?", "i + 1 < length ?", "wgmma_tall"),
    "values_swizzled_otherwise": ("wgmma_cp_async.cu", "a_row / 2 % 4)", "a_row % 4)", "wgmma_cp_async"),
    "b_swizzled_otherwise": ("wgmma_cp_async.cu", "b_row * UNITS / 8 % UNITS", "b_row % UNITS", "wgmma_cp_async"),
    "upper_rows_of_a_twice": ("wgmma_cp_async.cu", "min(row + a_row + 32,", "min(row + a_row,", "wgmma_cp_async"),
    "half_of_a_step_of_b_twice": ("wgmma_cp_async.cu", "right + B_BYTES / 32,", "right,", "wgmma_cp_async"),
    "words_of_a_stages_first_step": ("wgmma_cp_async.cu", "32, word[i], 1)", "32, word[0], 1)", "wgmma_cp_async"),
    "words_of_the_rows_above": ("wgmma_cp_async.cu", "(row / 64) * words", "(row / 128) * words", "wgmma_cp_async"),
    "last_stage_alone": ("wgmma_cp_async.cu", "s > 0 || i > 0", "i > 0", "wgmma_cp_async"),
    "last_columns_of_their_neighbours": (
        "wgmma_cp_async.cu",
        "(n - 1) / 8 * 8)",
        "(n - 1) / 8 * 8 - 8)",
        "wgmma_cp_async",
    ),
    "rows_of_c_lost": ("store_rows.cuh", "lane / 4 + 8 * h;", "lane / 4;", "wgmma_cp_async"),
    "pieces_of_c_swapped": (
        "store_rows.cuh",
        "word(p), word(p + 1), word(p + 2)",
        "word(p + 1), word(p), word(p + 2)",
        "wgmma_cp_async",
    ),
    "words_of_another_lane": ("store_registers.cuh", "x[i + 2], 2);", "x[i + 2], 1);", "wgmma_cp_async"),
}


@pytest.fixture
def mutant(monkeypatch, tmp_path):
    """mutant(bug): from now on the system compiles sources with one text changed, which must be there once."""

    def change(bug: str) -> None:
        *edit, _ = MUTANTS[bug]
        compiled.changed(tiles.HERE, tmp_path, *edit)
        monkeypatch.setattr(tiles, "HERE", tmp_path)
        monkeypatch.setattr(padding, "SOURCE", tmp_path / "pitch.cu")

    return change


def test_what_makes_a_kernel_wrong_is_in_its_source():
    compiled.are_there(tiles.HERE, MUTANTS.values())


@gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_is_caught(hopper, stream, mutant, bug):
    config = RUNGS[MUTANTS[bug][-1]]
    p, reference = exact(*WAVES)
    verification.exactly(prepare(config, p, hopper), p, reference, stream)
    mutant(bug)
    with pytest.raises(verification.WrongResult):
        verification.exactly(prepare(config, p, hopper), p, reference, stream)


# ----------------------------------------------------------------------------------- operands, trials


@gpu
@pytest.mark.parametrize("scale", operands.SCALES)
def test_new_scales_are_seen_by_a_launch_that_is_bound_already(hopper, stream, scale):
    p = fp8.problem(77, 136, 100, scale=scale, seed=SEED)
    bound, reference = fp8.prepare("fp8_tall", p, hopper), verification.oracle(p, on="cpu")
    verification.check(bound, p, reference, stream)
    p.device().a.scale[:] *= 2
    verification.check(bound, p, verification.reference(2 * reference.values), stream)


@gpu
@pytest.mark.parametrize("orders", ["CC", "FF", "e4m3"])
def test_trials_choose_what_is_right_and_the_second_prepare_is_quick(device, stream, tmp_path, orders):
    eight, file = orders == "e4m3", tmp_path / "choices.csv"
    if eight and jit.arch_of(device) not in tiles.TARGETS:
        pytest.skip("FP8 is for Hopper")
    p = fp8.problem(512, 512, 512, seed=SEED) if eight else system.problem(520, 72, 1024, seed=SEED, orders=orders)
    name, of = ("fp8_auto", fp8) if eight else ("auto", system)
    first, second = (of.prepare(name, p, device, file=file) for _ in range(2))
    for bound in (first, second):
        verification.check(bound, p, verification.oracle(p), stream)
    (choice,) = autotune.read(family.CHOICES, file).values()
    assert choice.median_us > 1 and second.prepare_ms < first.prepare_ms / 2, "no trial, nothing to compile"
