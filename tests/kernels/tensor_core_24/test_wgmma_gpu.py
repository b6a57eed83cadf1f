"""The Hopper ladder on a GPU: exact products, ragged sizes, metadata that betrays a lane, and wrong kernels."""

from __future__ import annotations

import functools
import math
import os
import secrets
from dataclasses import dataclass, replace

import compiled
import numpy as np
import pytest
import racing
from test_wgmma import (
    BY_ROWS,
    CUTTING,
    DIRECT,
    DIRECTS,
    HINTING,
    metadata_rows,
    ring_metadata,
    wrong_orders,
)

from artifact.measure import bench, check
from kernels import jit, pitch
from kernels import tensor_core_24 as room
from kernels.contract import Operands, Problem
from kernels.formats import half, two_four
from kernels.formats.half import Half
from kernels.tensor_core_24 import family, gpcs, wgmma
from kernels.tensor_core_24.family import Wgmma

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
RUNGS = tuple(room.RUNGS)
COMPLETE = tuple(name for name in RUNGS if room.RUNGS[name][0].kernel in family.COMPLETE)
DTYPES = half.DTYPES
#: Every configuration that the room binds.
CONFIGS = tuple(dict.fromkeys([*(config for config, *_ in room.RUNGS.values()), *family.WGMMA_FAMILY]))
#: Kernels that always ask L2 to keep an operand.
ALWAYS_HINTING = ("packed", "multicast", "clusters")
NAN = 0x7FFF  # of either dtype
gpu = pytest.mark.gpu

#: m, n, k: smaller than a tile and a step, around their edges, rows that TMA cannot address (n no multiple of
#: 8), a long k; the last three have more tiles than an H200 has multiprocessors, in no whole waves.
SHAPES = (
    (1, 8, 16),
    (3, 1, 1),
    (77, 136, 100),
    (64, 64, 64),
    (129, 264, 63),
    (300, 257, 1000),
    (513, 1030, 65),
    (256, 9000, 4096),
    (2816, 3000, 200),
    (1300, 4000, 1000),
    (1921, 2305, 130),
)
FEW_SHAPES = ((77, 136, 150), (513, 1030, 257), (1300, 4000, 200))
#: m, n: every rung has more than a wave of tiles, and who cuts the last wave has one that is at most half full.
WAVES = (1540, 4600)
#: What wrong kernels compute: as many tiles, but B and C are copied to other rows.
WRONG_SHAPE = (1540, 4599, 1000)


# ------------------------------------------------------------------------------------- exact products


@dataclass
class Case:
    """A problem of small whole numbers, whose float32 sums are exact, and what C must be."""

    problem: Problem
    product: np.ndarray  #: float32 (m, n), A·B before it is rounded to the dtype

    @functools.cached_property
    def rounded(self) -> np.ndarray:
        return rounded(self.product, self.problem.host().b.dtype)

    def check(self, out: np.ndarray, who: str, exact: np.ndarray | None = None) -> None:
        """Every element is the one that rounding once makes; NaN, one left unwritten, is wrong."""
        p, dtype = self.problem, self.problem.host().b.dtype
        exact = self.rounded if exact is None else rounded(exact, dtype)
        assert out.shape == exact.shape
        wrong = ~(out == exact)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise AssertionError(
                f"{who} at m={p.m}, n={p.n}, k={p.k}, {dtype}, seed {SEED}: {wrong.sum()} of {wrong.size} "
                f"elements are wrong, the first at row {row}, column {column}: {out[row, column]} instead "
                f"of {exact[row, column]}"
            )


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    return half.from_bits(half.to_bits(x, dtype), dtype)


def whole(shape, dtype: str, numbers, seed) -> np.ndarray:
    """Bit patterns of whole numbers drawn from `numbers`."""
    rng = np.random.default_rng((SEED, *seed))
    return half.to_bits(rng.choice(np.array(numbers, np.float32), shape), dtype)


@functools.cache
def case(m: int, n: int, k: int, dtype: str = "bfloat16", seed: int = 0) -> Case:
    """A of -1 and 1 where it stores something, in random places, B of -2 to 2: |C| stays below 256 almost always."""
    a = two_four.random(m, k, dtype, (SEED + seed) % 2**32)
    signs = whole(a.val.shape, dtype, (-1, 1), (m, n, k, seed, 1))
    a = replace(a, val=np.where(a.val & 0x7FFF, signs, np.uint16(0)))  # what padding stores stays 0
    b = Half(dtype, whole((k, n), dtype, (-2, -1, 0, 1, 2), (m, n, k, seed, 2)))
    return Case(room.problem_from(a, b), two_four.to_dense(a) @ half.to_dense(b))


def of_operands(a: two_four.TwoFour, b: Half) -> Case:
    return Case(room.problem_from(a, b), two_four.to_dense(a) @ half.to_dense(b))


def test_products_of_the_cases_are_exact():
    """In float32 and in any order, since every partial sum is a whole number below 2^24."""
    for dtype in DTYPES:
        made = case(77, 136, 100, dtype)
        a, b = (
            x.astype(np.float64)
            for x in (two_four.to_dense(made.problem.host().a), half.to_dense(made.problem.host().b))
        )
        assert np.array_equal(made.product, a @ b) and np.abs(made.product).max() <= 2 * 50
        assert set(np.unique(a)) == {-1, 0, 1} and set(np.unique(b)) == {-2, -1, 0, 1, 2}
        made.check(made.product, "itself")
        off = made.product.copy()
        off[5, 7] += 1
        with pytest.raises(AssertionError, match="1 of 10472 elements .* row 5, column 7"):
            made.check(off, "another")


@pytest.fixture(scope="module")
def hopper(device):
    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("this GPU has no wgmma")
    return device


@pytest.fixture(scope="module")
def stream(hopper):
    """For all tests on the GPU; at the end their operands are forgotten."""
    yield hopper.create_stream()
    import cupy

    for made in (case, drawn, orders, placed, placed_wide):
        made.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


def takes(config: Wgmma, shape: tuple[int, int, int], device) -> bool:
    """Whether `Wgmma.check`, which other tests look at, lets a configuration have a shape here."""
    properties = device.properties
    most = properties.max_shared_memory_per_block_optin
    try:
        config.check(*shape, properties.multiprocessor_count, most)
    except ValueError:
        return False
    return True


def near(config: Wgmma, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The shape, with some steps more where wgmma_rounds would go through a part of its ring, and with rows of B that
    begin at odd multiples of 16 bytes where they are copied for it."""
    m, n, k = shape
    n = n // 16 * 16 + 8 if config.copied else n
    more = -math.ceil(k / family.K) % config.stages if config.kernel == "rounds" else 0
    return m, n, k + more * family.K


def tile_of(kernel: str) -> Wgmma:
    """A configuration of 128 x 256 of C a block, or where a kernel has no such tile, another one."""
    own = (
        Wgmma("split_k", 2, 1, 128, 6, 1, 2),
        Wgmma("clusters", keep="a", share=2),
        *(Wgmma(kernel, 3, 1, 256, 4, 1) for kernel in ("refilling", *family.EXCHANGING)),
    )
    return next((config for config in own if config.kernel == kernel), Wgmma(kernel))


def poison(bound) -> None:
    """Fill with NaN what a launch writes, the padded rows on its way to C as well."""
    out, (*_, c_bits, _, _, _) = bound.result(), bound.keep
    out.fill(math.nan)
    c_bits.fill(NAN)


def run(bound, device, stream) -> np.ndarray:
    """One launch into an output full of NaN, as float32 (m, n)."""
    poison(bound)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return half.to_dense(half.to_host(bound.result()))


def some_shape(name: str, k: int) -> tuple[int, int, int]:
    """Several tiles of any size, n a multiple of 8; for stream-K more than an H200 has multiprocessors."""
    return (1300, 4000, k) if "stream_k" in name else (700, 904, k)


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_at_ragged_sizes(hopper, stream, name, dtype):
    done, config = 0, room.RUNGS[name][0]
    for shape in (near(config, shape) for shape in SHAPES):
        if takes(config, shape, hopper):
            made = case(*shape, dtype)
            made.check(run(room.bind(name, made.problem, hopper), hopper, stream), name)
            done += 1
    assert done >= (3 if name == "wgmma_stream_k" else 7)


@gpu
@pytest.mark.parametrize("config", family.WGMMA_FAMILY, ids=str)
def test_every_configuration_of_the_tuner(hopper, stream, config):
    for shape in (near(config, shape) for shape in FEW_SHAPES):
        assert takes(config, shape, hopper)
        made = case(*shape)
        bound = wgmma.bind(str(config), made.problem, hopper, config)
        made.check(run(bound, hopper, stream), str(config))


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("config", DIRECTS, ids=str)
def test_small_products_of_any_size(hopper, stream, config, dtype):
    """A part of a tile and of a step, or a little more; rows of 8 columns stay where they are, others are copied."""
    for n in (*range(1, 9), 257):
        for m in (1, 65):
            for k in (1, 63, 65, 257, 1000):
                made = case(m, n, k, dtype)
                bound = wgmma.bind(str(config), made.problem, hopper, config)
                made.check(run(bound, hopper, stream), str(config))


@gpu
@pytest.mark.parametrize("config", DIRECTS, ids=str)
def test_stages_of_several_steps_end_at_any_of_them(hopper, stream, config):
    """Fewer stages than a ring has, as many, and more, so that each place is filled again; the last one is whole, has
    some steps, or a part of one."""
    stage = family.DEEP * family.K
    for count in sorted({1, 2, config.stages, config.stages + 1, 2 * config.stages + 1}):
        for last in (1, 64, 65, 128, 191, 193, 255, stage):
            made = case(100, 72, (count - 1) * stage + last)
            bound = wgmma.bind(str(config), made.problem, hopper, config)
            made.check(run(bound, hopper, stream), str(config))


@gpu
def test_a_grid_has_as_many_columns_of_blocks_as_it_may(hopper, stream):
    config = min(DIRECTS, key=lambda c: (c.n, c.stages))
    made = case.__wrapped__(65, config.n * family.GRID_Y, 16)  # kept for no other test
    bound = wgmma.bind(str(config), made.problem, hopper, config)
    ((_, how, _),) = bound.steps
    assert tuple(how.grid)[:2] == (2, family.GRID_Y)
    made.check(run(bound, hopper, stream), str(config))


@pytest.mark.parametrize("sms", [132, 114])
@pytest.mark.parametrize("name", RUNGS)
def test_shapes_have_the_waves_that_they_are_for(name, sms):
    """On an H200, and on an H100 PCIe with its 114 multiprocessors."""
    config = room.RUNGS[name][0]
    tiles = math.prod(config.tiles(*WAVES))
    assert tiles > sms and WAVES[1] % 8 == 0
    assert math.prod(config.tiles(*WRONG_SHAPE[:2])) == tiles and WRONG_SHAPE[1] % 8
    if config.kernel in CUTTING:
        assert sms <= wgmma.whole_tiles(tiles, sms) < tiles
    if config.kernel == "pieces":
        cut = family.cut_into_pieces(tiles, config.groups, sms)
        assert cut.whole == sms and cut.pieces
    if config.kernel == "stream_k":
        assert wgmma.shared_tiles(tiles, sms)
    assert takes(config, WRONG_SHAPE, racing.H200)


@gpu
@pytest.mark.parametrize(
    "config",
    {c.entry("bfloat16"): c for c in CONFIGS if c.kernel in CUTTING and not c.copied}.values(),
    ids=str,
)
def test_a_last_wave_of_any_length_is_cut_or_not(hopper, stream, config):
    """Some tiles, half a wave, more, a wave, and the same after whole waves. k has two steps, the fewest that can be
    cut, or three, of which one block gets two."""
    sms = hopper.properties.multiprocessor_count
    wave = sms // 2 * 2
    half_ = wave // 2
    counts = (
        1,
        2,
        half_ - 1,
        half_,
        half_ + 1,
        wave,
        wave + 1,
        wave + half_,
        wave + half_ + 1,
        2 * wave + 6,
    )
    cut = []
    for i, count in enumerate(counts):
        m, n, k = config.m - 3, config.n * count - 8, (128, 130)[i % 2]
        made = case.__wrapped__(m, n, k)  # kept for no other test
        bound = wgmma.bind(str(config), made.problem, hopper, config)
        made.check(run(bound, hopper, stream), f"{config}, {count} tiles")
        ((_, _, arguments),) = bound.steps
        cut.append(count - int(arguments[8]))
    assert cut == [1, 2, half_ - 1, half_, 0, 0, 1, half_, 0, 6]


@gpu
@pytest.mark.parametrize("band", [1, 12])
def test_a_last_wave_is_cut_into_pieces_or_not(hopper, stream, band):
    """Few tiles, as many as there is room for in pieces of 64 rows, more, as many in pieces of 128, more, a wave; all
    after a whole one, too. Pieces lie wholly or partly beyond the matrix, which has 3 or 70 rows of its last tiles."""
    sms, config = hopper.properties.multiprocessor_count, replace(tile_of("pieces"), band=band)
    few = (1, sms // 3, sms // 3 + 1, sms // 2, sms // 2 + 1, sms)
    cut, groups = [], set()
    for i, count in enumerate([*few, *(sms + x for x in few)]):
        m, n, k = (
            (3, 192 + 70)[i % 2],
            256 * (count if i % 2 == 0 else -(-count // 2)) - 8,
            (64, 320)[i % 2],
        )
        made = case.__wrapped__(m, n, k)  # kept for no other test
        bound = wgmma.bind(str(config), made.problem, hopper, config)
        made.check(run(bound, hopper, stream), f"{config}, {m} x {n}")
        tiles = math.prod(config.tiles(m, n))
        ((_, _, arguments),) = bound.steps
        cut.append(tiles - int(arguments[8]))
        groups.add(int(arguments[9]))
    assert any(cut) and not all(cut) and groups == {1, 2, 3}, cut


@gpu
@pytest.mark.parametrize(
    "kernel",
    [
        "specialised",
        "persistent",
        "packed",
        "multicast",
        "stream_k",
        "lean",
        "rounds",
        "last_wave",
        "refilling",
        "gpc",
        "clusters",
        "three",
        "pieces",
    ],
)
def test_any_order_of_tiles_reaches_all(hopper, stream, kernel):
    """13 x 15 tiles, or 9 x 15, in bands that divide 13 or 9, or do not, or are higher."""
    made = case(1540, 3800, 200)
    for band in (1, 2, 3, 7, 13, 16, 1000):
        config = replace(tile_of(kernel), band=band, keep="a" if kernel in HINTING else "")
        bound = wgmma.bind(kernel, made.problem, hopper, config)
        made.check(run(bound, hopper, stream), str(config))


@gpu
@pytest.mark.parametrize("kernel", HINTING)
def test_hints_change_nothing(hopper, stream, kernel):
    made, config = case(*some_shape(kernel, 200)), tile_of(kernel)
    for keep in ("a", "b") if kernel in ALWAYS_HINTING else ("", "a", "b"):
        config = replace(config, keep=keep)
        bound = wgmma.bind(kernel, made.problem, hopper, config)
        made.check(run(bound, hopper, stream), str(config))


@gpu
@pytest.mark.parametrize("k", [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256, 257, 320, 321, 577])
def test_steps_around_the_length_of_the_ring(hopper, stream, k):
    """Fewer than the stages of a ring, as many, and more: parities and the last, ragged step."""
    done = []
    for name in RUNGS:
        shape = some_shape(name, k)
        if takes(room.RUNGS[name][0], shape, hopper):
            made = case(*shape)
            made.check(run(room.bind(name, made.problem, hopper), hopper, stream), name)
            done.append(name)
    steps, lacking = math.ceil(k / family.K), set()
    lacking |= {"wgmma_split_k"} if steps < 2 else set()
    lacking |= {"wgmma_rounds"} if steps % room.RUNGS["wgmma_rounds"][0].stages else set()
    assert set(RUNGS) - set(done) == lacking


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "seeds"),
    [
        ((300, 257, 1000), 2),
        ((512, 512, 512), 2),
        ((2816, 3000, 200), 1),
        ((1300, 4000, 4096), 1),
    ],
    ids=str,
)
def test_the_rooms_problems_pass_the_harness(hopper, stream, shape, seeds, dtype):
    """The check that guards every record, on the operands that records are made with."""
    names = [name for name in RUNGS if takes(room.RUNGS[name][0], shape, hopper)]
    assert set(RUNGS) - set(names) <= {"wgmma_stream_k"} and (shape[0] < 1300 or names == [*RUNGS])
    for seed in range(SEED % 2**32, SEED % 2**32 + seeds):
        p = room.problem(*shape, seed=seed % 2**32, dtype=dtype)
        reference = check.oracle(p)
        for name in names:
            bound = room.bind(name, p, hopper)
            poison(bound)
            errors = check.check(bound, p, reference, stream)
            assert 0 < errors.rel_err < 0.6 * check.LIMITS[dtype].rel_err, f"{name}, seed {seed}"


# ------------------------------------------------------------------------------- C, a bias and alpha


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", COMPLETE)
def test_alpha_beta_and_a_bias(hopper, stream, name, dtype):
    """Exact as well: halves and whole numbers, one for each row and one for each element."""
    import cupy

    done = 0
    for m, n, k in (
        (77, 136, 100),
        (300, 257, 1000),
        (513, 1030, 130),
        (1, 8, 70),
        (1300, 4001, 200),
    ):
        if not takes(room.RUNGS[name][0], (m, n, k), hopper):
            continue
        done += 1
        made = case(m, n, k, dtype)
        c = Half(dtype, whole((m, n), dtype, range(-8, 9), (m, n, 3)))
        bias = np.random.default_rng((SEED, m)).integers(-8, 9, m).astype(np.float32)
        there, rows = half.to_device(c), cupy.asarray(bias)
        ab, c_in, column = made.product, half.to_dense(c), bias[:, None]
        for extra, exact in (
            ({"alpha": -0.5}, -0.5 * ab),
            ({"bias": rows}, ab + column),
            ({"beta": 2.0, "c": there}, ab + 2 * c_in),
            ({"alpha": 2.0, "beta": -1.0, "c": there, "bias": rows}, 2 * ab - c_in + column),
            ({"alpha": 0.0, "beta": 1.0, "c": there}, c_in),
        ):
            bound = room.bind(name, made.problem, hopper, **extra)
            for _ in range(2):  # what is added is not what was written
                made.check(run(bound, hopper, stream), f"{name} with {sorted(extra)}", exact)
        assert np.array_equal(there.bits.get(), c.bits), "C is only read"
    assert done >= 1


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_every_rung_takes_alpha(hopper, stream, name):
    made = case(*some_shape(name, 200))
    for alpha in (0.5, -2.0, 0.0):
        bound = room.bind(name, made.problem, hopper, alpha=alpha)
        made.check(run(bound, hopper, stream), f"{name}, alpha {alpha}", np.float32(alpha) * made.product)


@gpu
@pytest.mark.parametrize("kernel", BY_ROWS)
def test_c_and_a_bias_with_the_tuners_tiles(hopper, stream, kernel):
    import cupy

    m, n, k = some_shape(kernel, 200)
    bias = np.arange(m, dtype=np.float32) % 7
    c = half.from_dense(np.ones((m, n), np.float32), "bfloat16")
    there, rows = half.to_device(c), cupy.asarray(bias)
    configs = [config for config in family.WGMMA_FAMILY if config.kernel == kernel]
    configs = configs or [room.RUNGS[f"wgmma_{kernel}"][0]]
    jobs = {(config.source, config.entry("bfloat16", True)) for config in configs}
    compiled.cubins(sorted(jobs), wgmma.TARGETS)
    for config in configs:
        made = case(*near(config, (m, n, k)))
        exact = made.product + 3 + bias[:, None]
        bound = wgmma.bind(kernel, made.problem, hopper, config, beta=3.0, c=there, bias=rows)
        made.check(run(bound, hopper, stream), str(config), exact)


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("config", DIRECTS, ids=str)
def test_small_products_with_c_and_a_bias(hopper, stream, config, dtype):
    """Threads read what they add beside what they write, at the edges of C, too."""
    import cupy

    for m, n, k in (
        (1, 1, 1),
        (65, 7, 63),
        (64, 8, 65),
        (129, 24, 200),
        (65, 257, 257),
        (130, 136, 1000),
    ):
        made = case(m, n, k, dtype)
        c = Half(dtype, whole((m, n), dtype, range(-8, 9), (m, n, 4)))
        bias = np.random.default_rng((SEED, m, n)).integers(-8, 9, m).astype(np.float32)
        there, rows = half.to_device(c), cupy.asarray(bias)
        c_in, column = half.to_dense(c), bias[:, None]
        for extra, exact in (
            ({"bias": rows}, made.product + column),
            ({"beta": 2.0, "c": there}, made.product + 2 * c_in),
            (
                {"alpha": 2.0, "beta": -1.0, "c": there, "bias": rows},
                2 * made.product - c_in + column,
            ),
        ):
            bound = wgmma.bind(str(config), made.problem, hopper, config, **extra)
            for _ in range(2):  # what is added is not what was written
                made.check(run(bound, hopper, stream), f"{config} with {sorted(extra)}", exact)
        assert np.array_equal(there.bits.get(), c.bits), "C is only read"


# --------------------------------------------------------------------- metadata that betrays a lane

#: Columns of A, seven steps and a part: eight, so that they are whole rounds of four stages and of eight.
PLACED_K = 456


@functools.cache
def placed(m: int, k: int, dtype: str) -> Case:
    """A of random values times the identity: C is A itself, each value where its two bits say."""
    a = two_four.random(m, k, dtype, SEED % 2**32)
    return of_operands(a, half.from_dense(np.eye(k, dtype=np.float32), dtype))


@functools.cache
def placed_wide(dtype: str) -> Case:
    """143 tiles of 128 x 256 for stream-K, where B is the identity only in its first columns."""
    wide = np.zeros((PLACED_K, 256 * 13), np.float32)
    wide[:, :PLACED_K] = np.eye(PLACED_K)
    a = placed(1408, PLACED_K, dtype).problem.host().a
    return of_operands(a, half.from_dense(wide, dtype))


def test_placed_matrices_have_every_pair_at_every_place_of_a_word():
    a = placed(333, PLACED_K, "bfloat16").problem.host().a
    words = wgmma.ring_metadata(a)[:5, : 2 * 448]  # what is not padded
    for shift in range(0, 32, 4):
        assert set(np.unique(words >> shift & 15).tolist()) == set(two_four.PAIRS.tolist())


#: One configuration of each kernel: float16 differs from bfloat16 in one word of the instruction.
KINDS = tuple({config.kernel: config for config in CONFIGS}.values())


@gpu
@pytest.mark.parametrize(
    ("config", "dtype"),
    [*((config, "bfloat16") for config in CONFIGS), *((config, "float16") for config in KINDS)],
    ids=str,
)
def test_values_go_where_metadata_says(hopper, stream, config, dtype):
    """A swapped lane, half or selector moves values to other columns of C."""
    made = placed_wide(dtype) if config.kernel == "stream_k" else placed(333, PLACED_K, dtype)
    bound = wgmma.bind(str(config), made.problem, hopper, config)
    made.check(run(bound, hopper, stream), str(config))


@gpu
@pytest.mark.parametrize("name", [name for name in RUNGS if name != "wgmma_stream_k"])
def test_every_pair_alone(hopper, stream, name):
    a = two_four.random(200, 256, "bfloat16", SEED % 2**32)
    identity = half.from_dense(np.eye(256, dtype=np.float32), "bfloat16")
    for pair in two_four.PAIRS.tolist():
        meta = np.full_like(a.meta, pair * 0x1111)
        made = of_operands(replace(a, meta=meta), identity)
        bound = room.bind(name, made.problem, hopper)
        made.check(run(bound, hopper, stream), f"{name}, pair {pair:#x}")


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_rows_of_b_come_back_from_an_identity(hopper, stream, name):
    """A is the identity, so C is B: 64 x 64 squares that are stored to another place show."""
    m, n = (1408, 3080) if name == "wgmma_stream_k" else (450, 520)
    a = two_four.compress(np.eye(m, dtype=np.float32), "bfloat16")
    b = room.problem(1, n, m, seed=SEED).host().b
    made = of_operands(a, b)
    made.check(run(room.bind(name, made.problem, hopper), hopper, stream), name)


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_nan_in_b_spoils_the_rows_that_read_it_and_nothing_else(hopper, stream, name):
    """An element of B is multiplied only where metadata names its row; elsewhere it is not even times 0."""
    m, n, k = (1300, 3075, 200) if name == "wgmma_stream_k" else (300, 259, 200)
    made = case(m, n, k)
    a, b = made.problem.host().a, made.problem.host().b
    ones = replace(a, val=np.full_like(a.val, half.to_bits(np.ones(1, np.float32), a.dtype)[0]))
    kept = two_four.to_dense(ones) != 0  # (m, k)
    bits, spoilt = b.bits.copy(), np.zeros((m, n), bool)
    for row, column in ((0, 0), (1, 64), (63, 127), (64, 7), (127, 128), (199, n - 1)):
        bits[row, column] = NAN
        spoilt[:, column] |= kept[:, row]
    assert 0 < spoilt.sum() < 6 * m
    p = room.problem_from(a, Half(b.dtype, bits))
    out = run(room.bind(name, p, hopper), hopper, stream)
    assert np.array_equal(np.isnan(out), spoilt), f"{name}, seed {SEED}"
    made.check(np.where(spoilt, 0, out), name, np.where(spoilt, 0, made.product))


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_nothing_beside_the_operands_is_read_into_a_sum_or_written(hopper, stream, name):
    """A and B lie between NaN, C between numbers that must stay; no size is a multiple of anything."""
    shapes = [(77, 136, 230), (300, 257, 218), (1300, 4000, 194), (1300, 3999, 250)]
    taken = [shape for shape in shapes if takes(room.RUNGS[name][0], shape, hopper)]
    assert taken == (shapes[2:] if name == "wgmma_stream_k" else shapes)
    for shape in taken:
        try_between_margins(name, room.RUNGS[name][0], shape, hopper, stream)


@gpu
@pytest.mark.parametrize("config", DIRECTS, ids=str)
def test_no_step_beyond_k_is_read(hopper, stream, config):
    """Of a stage's four steps k has one to four: NaN that lies beyond it would be a part of the sums, even times 0.
    Values of whole steps, and B where n is a multiple of 8, are not copied; other ones lie between NaN, too."""
    shapes = (
        (1, 8, 64),
        (77, 136, 128),
        (65, 24, 192),
        (64, 64, 256),
        (77, 136, 320),
        (65, 257, 320),
        (1, 8, 1),
        (77, 136, 230),
        (65, 257, 257),
        (33, 72, 1000),
        (129, 7, 65),
    )
    for shape in shapes:
        try_between_margins(str(config), config, shape, hopper, stream)


def try_between_margins(name: str, config: Wgmma, shape: tuple[int, int, int], hopper, stream) -> None:
    import cupy

    margin, filler = 2**16, 0x1234

    def within(array, fill: int):
        """A view of a larger buffer with the contents of `array`, at a multiple of 16 bytes."""
        buffer = cupy.full(array.size + 2 * margin, fill, cupy.uint16)
        view = buffer[margin:-margin].reshape(array.shape)
        view[...] = array
        return buffer, view

    made = case(*shape)
    ops = made.problem.device()
    buffer, c = within(ops.c.bits, filler)
    a = replace(ops.a, val=within(ops.a.val, NAN)[1], meta=within(ops.a.meta, 0x4444)[1])
    b, c = Half(ops.b.dtype, within(ops.b.bits, NAN)[1]), Half(ops.c.dtype, c)
    inside = replace(made.problem, make_device=lambda: Operands(a, b, c), _device=None)
    m, n, k = shape
    cache, written = {}, [buffer]
    if n % 8:  # to rows of other lengths, on the way in and out
        width = math.ceil(n / 64) * 64
        copied, cache["c"] = within(cupy.zeros((m, width), cupy.uint16), filler)
        _, cache["b"] = within(cupy.zeros((k, width), cupy.uint16), NAN)
        written.append(copied)
    bound = wgmma.bind(name, inside, hopper, config, cache=cache)
    assert bound.result().bits.data.ptr == buffer.data.ptr + 2 * margin
    assert n % 8 == 0 or (bound.keep[5] is cache["b"] and bound.keep[6] is cache["c"])
    made.check(run(bound, hopper, stream), f"{name} between margins")
    for all_of_it in written:
        assert bool((all_of_it[:margin] == filler).all())
        assert bool((all_of_it[-margin:] == filler).all())


# --------------------------------------------------------------------------------- again and again


@functools.cache
def drawn(m: int, n: int, k: int) -> tuple[Problem, check.Reference]:
    """A problem of random values and its product, of which nothing may change."""
    p = room.problem(m, n, k, seed=SEED)
    return p, check.oracle(p)


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_the_same_launch_gives_the_same_bits(hopper, stream, name):
    """A result that moves is a race. Random values, so that another order of additions would show."""
    bound = room.bind(name, drawn(*WAVES, 2000)[0], hopper)
    first = run(bound, hopper, stream)
    for _ in range(20):
        assert np.array_equal(run(bound, hopper, stream), first), f"{name}, seed {SEED}"


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_launches_one_after_the_other_read_what_is_there_then(hopper, stream, name):
    """Other operands in the same places: sums or flags of the launch before would show."""
    import cupy

    shape = (*WAVES, 1000)
    made, other = case(*shape), case(*shape, seed=1)
    a, b = made.problem.host().a, made.problem.host().b
    second = of_operands(a, other.problem.host().b)
    p = room.problem_from(a, b)
    bound = room.bind(name, p, hopper)
    for turn in range(6):
        now = (made, second)[turn % 2]
        p.device().b.bits[...] = cupy.asarray(now.problem.host().b.bits)
        now.check(run(bound, hopper, stream), f"{name}, launch {turn}")


@gpu
@pytest.mark.parametrize("config", DIRECTS, ids=str)
def test_stages_are_there_before_they_are_read(hopper, stream, config):
    """Few blocks with many stages, whose operands come from L2 or from DRAM. Two problems take turns, so that what lies
    in shared memory from the launch before is never right."""
    import cupy

    shape = (320, 264, 4096)
    turns = [case(*shape), case(*shape, seed=1)]
    bounds = [wgmma.bind(str(config), made.problem, hopper, config) for made in turns]
    other = cupy.empty(2 * hopper.properties.l2_cache_size, cupy.uint8)
    for turn in range(40):
        if turn % 4 > 1:
            other.fill(turn)  # in L2 instead of the operands
        out = run(bounds[turn % 2], hopper, stream)
        turns[turn % 2].check(out, f"{config}, turn {turn}")


@gpu
def test_stream_k_takes_what_it_leaves(hopper, stream):
    """Launched back to back, without a word from the host in between."""
    import cupy

    sms = hopper.properties.multiprocessor_count
    for m, n, k in ((1300, 4000, 1000), (2816, 3000, 200), (1921, 4609, 65)):
        made = case(m, n, k)
        bound = room.bind("wgmma_stream_k", made.problem, hopper)
        poison(bound)
        partial, handovers = bound.keep[4]
        assert handovers.shape == (sms, 2, 2) and partial.shape == (sms, 128 * 256)
        partial.fill(math.nan)  # of the launch before nothing is needed
        hopper.sync()
        for _ in range(10):
            bound.launch(stream)
        stream.sync()
        left, taken = handovers.get().reshape(-1, 2).T
        assert np.array_equal(left, taken) and set(left) <= {0, 10}, f"{m}, {n}, {k}"
        made.check(half.to_dense(half.to_host(bound.result())), "wgmma_stream_k")
        count = math.prod(room.RUNGS["wgmma_stream_k"][0].tiles(m, n))
        written = int((~cupy.isnan(partial).all(axis=1)).sum())
        cut = wgmma.shared_tiles(count, sms) if math.ceil(k / 64) > 1 else 0
        assert bool(written) == bool(cut), "and only tiles that are cut leave sums"
        assert written == np.count_nonzero(left) / 2, "which are taken"


@gpu
@pytest.mark.parametrize("first", [0, 2**32 - 3])
def test_stream_k_overlaps(hopper, first):
    """One Bound on four streams at once, and replayed from two graphs meanwhile: launches that take each other's sums
    find the same ones, and none waits for ever. first: counts that are about to pass 2^32 as well."""
    for shape in ((1300, 4000, 1000), (2816, 3000, 200), (1921, 4609, 65), (1300, 3999, 1000)):
        made = case(*shape)
        bound = room.bind("wgmma_stream_k", made.problem, hopper)
        handovers = bound.keep[4][1]
        handovers.fill(first)
        poison(bound)
        streams = [hopper.create_stream() for _ in range(4)]
        graphs = [bench.capture("wgmma_stream_k", bound, streams[0]) for _ in range(2)]
        hopper.sync()
        for _ in range(50):
            for one in streams:
                bound.launch(one)
            for graph, one in zip(graphs, streams, strict=False):
                graph.launch(one)
        hopper.sync()
        made.check(half.to_dense(half.to_host(bound.result())), f"overlapping, first {first}")
        assert bool((handovers[..., 0] == handovers[..., 1]).all())
        made.check(run(bound, hopper, streams[0]), "and one alone")


@gpu
@pytest.mark.parametrize("name", [name for name in RUNGS if name != "wgmma_stream_k"])
def test_launches_overlap(hopper, name):
    """One Launch on two streams at once: both write the same, and neither waits for the other for ever."""
    for shape in ((*WAVES, 200), (300, 264, 1000)):
        made = case(*near(room.RUNGS[name][0], shape))
        bound = room.bind(name, made.problem, hopper)
        streams = [hopper.create_stream() for _ in range(2)]
        poison(bound)
        hopper.sync()
        for _ in range(20):
            for one in streams:
                bound.launch(one)
        hopper.sync()
        made.check(half.to_dense(half.to_host(bound.result())), f"{name} on two streams")


@gpu
@pytest.mark.parametrize("name", [name for name in RUNGS if name != "wgmma_stream_k"])
def test_another_kernel_that_still_runs_changes_nothing(hopper, name):
    """It leaves two thirds of the SMs early, and a launch on another stream begins there: clusters find two SMs each,
    and wgmma_gpc has a block on every SM, though blocks that began early may be done before others can begin."""
    sms = hopper.properties.multiprocessor_count
    before, now = hopper.create_stream(), hopper.create_stream()
    # A wave of tiles and a third of one, each of 128 steps; then more of them, each of four.
    long = room.problem(128 * (4 * sms // 3), 256, 8192, seed=SEED)
    other = wgmma.bind("long", long, hopper, Wgmma("lean", 2, 1, 256, 4, 2, keep="a"))
    made = case(*WAVES, 200)
    bound = room.bind(name, made.problem, hopper)
    for turn in range(10):
        poison(bound)
        hopper.sync()
        other.launch(before)
        bound.launch(now)
        hopper.sync()
        out = half.to_dense(half.to_host(bound.result()))
        made.check(out, f"{name} beside another kernel, turn {turn}")


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_a_launch_can_be_captured(hopper, stream, name):
    """A measurement may replay a launch from a CUDA graph: clusters, workspaces and copies of rows included."""
    m, n, k = some_shape(name, 200)
    for shape in ((m, n, k), (m, n - 1, k)):
        made = case(*shape)
        bound = room.bind(name, made.problem, hopper)
        made.check(run(bound, hopper, stream), name)
        graph = bench.capture(bound.name, bound, stream)
        for _ in range(3):
            poison(bound)
            hopper.sync()
            graph.launch(stream)
            stream.sync()
            made.check(half.to_dense(half.to_host(bound.result())), f"{name} from a graph")


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_preprocessing_is_accounted_for(hopper, name):
    made = case(1300, 4000, 1000)
    bound = room.bind(name, made.problem, hopper)
    _, val, metadata, packed, workspace, *_ = bound.keep
    a = made.problem.host().a
    assert np.array_equal(metadata.get(), ring_metadata(a, room.RUNGS[name][0]))
    held = metadata.nbytes + sum(x.nbytes for x in workspace)
    if name != "wgmma_packed":  # k = 1000 is no whole steps
        held += val.nbytes
        assert np.array_equal(val.get(), wgmma.whole_rows(a)) and val.shape == (1300, 512)
    if name == "wgmma_packed":
        assert np.array_equal(packed.get(), wgmma.pack_values(a, 256))
        held += packed.nbytes
    assert bound.prepare_bytes == held and 0 < bound.prepare_ms < 1000
    # Sums and who has left them; the table of places, which all launches on this GPU share.
    sizes = {"wgmma_stream_k": 2, "wgmma_gpc": 1}
    assert len(workspace) == sizes.get(name, 0)
    if name == "wgmma_gpc":
        assert workspace[0] is gpcs.places(hopper.device_id)


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_every_entry_loads_on_this_gpu(hopper, name):
    config, kernel = room.RUNGS[name][0], room.VARIANTS[name]
    entries = list(kernel.entries)
    if config.kernel in family.COMPLETE:
        entries += [config.entry(dtype, extra=True) for dtype in DTYPES]
    for entry in entries:
        cubin = jit.compile_cubin(kernel.source, entry, jit.arch_of(hopper))
        if config.kernel in family.EXCHANGING:
            cubin = jit.launched_with(cubin, family.AT_LAUNCH)
        assert jit.load(cubin, config.shared_bytes)


@gpu
@pytest.mark.alone
@pytest.mark.parametrize("n", [2**15, 2**15 + 9])
def test_offsets_beyond_31_bits(hopper, stream, n):
    """C with a little over 2^31 elements, and on its way in rows of another length where n is odd."""
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    m, k = 2**16 + 200, 16
    assert m * n > 2**31
    need, free = 40 * 2**30, cupy.cuda.runtime.memGetInfo()[0]
    if free < need:
        pytest.skip(f"{need / 2**30:.0f} GiB of GPU memory needed, {free / 2**30:.1f} free")
    p = room.problem(m, n, k, seed=SEED)
    reference = check.oracle(p, on="gpu")
    for name in (
        "wgmma_one_stage",
        "wgmma_keep",
        "wgmma_stream_k",
        "wgmma_lean",
        "wgmma_last_wave",
        "wgmma_clusters",
        "wgmma_pieces",
        "wgmma_cp_async",
    ):
        bound = room.bind(name, p, hopper)
        poison(bound)
        errors = check.check(bound, p, reference, stream)
        assert errors.rel_err > 0, f"{name}, seed {SEED}"
        bound = None
    p.release()
    reference = None
    pool.free_all_blocks()


# ------------------------------------------------------------------------------------- what is refused


@gpu
def test_what_does_not_go_together_is_refused(hopper):
    import cupy

    small, c = room.problem(64, 64, 64), Half("bfloat16", cupy.zeros((64, 64), cupy.uint16))
    for name, extra, said in (
        ("wgmma_stream_k", {}, "stream_k shares 1 x 1 tiles"),
        ("wgmma_split_k", {}, "split_k cannot cut 1 steps"),
        ("wgmma_rounds", {}, "rounds goes through the 1 steps"),
        ("wgmma_keep", {"beta": 1.0}, "nothing to multiply by beta"),
        ("wgmma_keep", {"beta": 1.0, "c": small.device().c}, "would change the c that it adds"),
        ("wgmma_keep", {"bias": cupy.zeros(63, cupy.float32)}, "float32 bias of"),
        ("wgmma_cp_async", {"bias": cupy.zeros(63, cupy.float32)}, "float32 bias of"),
        ("wgmma_cp_async", {"beta": 1.0, "c": small.device().c}, "would change the c that it adds"),
        (
            "wgmma_one_stage",
            {"bias": cupy.zeros(64, cupy.float32)},
            "wgmma_one_stage adds neither C nor a bias",
        ),
        ("wgmma_multicast", {"beta": 1.0, "c": c}, "wgmma_multicast adds neither C nor a bias"),
        ("wgmma_gpc", {"beta": 1.0, "c": c}, "wgmma_gpc adds neither C nor a bias"),
        ("wgmma_pieces", {"beta": 1.0, "c": c}, "wgmma_pieces adds neither C nor a bias"),
    ):
        with pytest.raises(ValueError, match=said) as caught:
            room.bind(name, small, hopper, **extra)
        assert "\n" not in str(caught.value)


@gpu
@pytest.mark.parametrize("name", COMPLETE)
def test_addresses_that_tma_cannot_take_are_copied(hopper, stream, name):
    """A part of another array: rows of a multiple of 16 bytes that begin beside one."""
    import cupy

    def moved(array):
        there = cupy.empty(array.size + 4, cupy.uint16)[4:].reshape(array.shape)
        there[...] = array
        assert there.data.ptr % 16 == 8
        return there

    made = case(*some_shape(name, 200))
    m, n = made.product.shape
    for which in ("b", "c", "c_in"):
        ops = replace(made.problem.device())
        c = half.from_dense(cupy.full((m, n), 3.0, cupy.float32), "bfloat16")
        if which == "c_in":
            c = Half("bfloat16", moved(c.bits))
        else:
            setattr(ops, which, Half("bfloat16", moved(getattr(ops, which).bits)))
        p = replace(made.problem, make_device=lambda ops=ops: ops, _device=None)
        bound = room.bind(name, p, hopper, beta=2.0, c=c)
        made.check(run(bound, hopper, stream), f"{name}, {which} moved", made.product + 6)
        assert bound.result() is ops.c


# ----------------------------------------------------------------------------------- wrong on purpose

#: A bug -> the file where it would be, the text there, the text instead, and a rung on which it shows.
MUTANTS = {
    "selector_0_twice": ("sparse_stages.cuh", "sparse<1>(", "sparse<0>(", "wgmma_one_stage"),
    "lanes_swapped": ("sparse_stages.cuh", "128 + threadIdx.x % 128]", "128 + (threadIdx.x ^ 1) % 128]", "wgmma_ring"),
    "rows_0_to_31_of_b_twice": ("sparse_stages.cuh", "K_MAJOR ? 64 : 4096", "K_MAJOR ? 64 : 0", "wgmma_specialised"),
    "a_half_of_b_twice": ("sparse_stages.cuh", "k + K / SHARE * rank, full", "k, full", "wgmma_multicast"),
    "a_share_of_b_twice": ("sparse_stages.cuh", "rank * (8192 / SHARE), from.b", "0, from.b", "wgmma_clusters"),
    "store_not_swizzled": ("store.cuh", ") ^ r % 8;", ");", "wgmma_persistent"),
    "rounded_down": (
        "store.cuh",
        "pack<T>(activated<EXTRA>(fmaf(scale.alpha, acc[i], extra.x))",
        "pack<T>(__uint_as_float(__float_as_uint(fmaf(scale.alpha, acc[i], extra.x)) & 0xffff0000)",
        "wgmma_bands",
    ),
    "head_not_added": ("wgmma_stream_k.cu", "mine[4 * i] += x.x,", "", "wgmma_stream_k"),
    "last_part_alone": ("split_k.cuh", "sum[4 * i] += x.x,", "sum[4 * i] = x.x,", "wgmma_split_k"),
    "packed_a_step_later": ("sparse_stages.cuh", "+ k / K) * 4096", "+ (k / K + 1) % steps) * 4096", "wgmma_packed"),
    "bias_of_the_row_above": ("store.cuh", "bias[row]", "bias[max(row - 1, 0)]", "wgmma_keep"),
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
    "rows_of_b_beyond_k": ("wgmma_cp_async.cu", "b_row + j < left)", "left > 0)", "wgmma_cp_async"),
    "values_beyond_k": ("wgmma_cp_async.cu", "upper, left > 0)", "upper, true)", "wgmma_cp_async"),
    "rows_of_c_lost": ("store_rows.cuh", "lane / 4 + 8 * h;", "lane / 4;", "wgmma_cp_async"),
    "pieces_of_c_swapped": (
        "store_rows.cuh",
        "word(p), word(p + 1), word(p + 2)",
        "word(p + 1), word(p), word(p + 2)",
        "wgmma_cp_async",
    ),
    "words_of_another_lane": ("store_registers.cuh", "x[i + 2], 2);", "x[i + 2], 1);", "wgmma_cp_async"),
    "bias_of_rows_g": ("store_rows.cuh", "scale.added<T>(r, column", "scale.added<T>(r & ~8, column", "wgmma_cp_async"),
}
#: Bugs that show where NaN lies beyond k: elsewhere what is read there is multiplied by 0. Each with such a shape, in
#: which the last step is a part of one, or a stage has steps beyond the last one.
BEYOND_K = {"rows_of_b_beyond_k": (77, 136, 230), "values_beyond_k": (77, 136, 320)}


@pytest.fixture
def mutant(monkeypatch, tmp_path):
    """mutant(bug): from now on the room compiles sources with one text changed, which must be there once."""

    def change(bug: str) -> None:
        *edit, _ = MUTANTS[bug]
        compiled.changed(wgmma.HERE, tmp_path, *edit)
        monkeypatch.setattr(family, "HERE", tmp_path)
        monkeypatch.setattr(pitch, "SOURCE", tmp_path / "pitch.cu")

    return change


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_compiles(mutant, bug):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    file, _, _, name = MUTANTS[bug]
    config = room.RUNGS[name][0]
    before = jit.compile_cubin(config.source, config.entry("bfloat16"), "sm_90a").code
    mutant(bug)
    if file == "pitch.cu":
        assert jit.compile_cubin(pitch.SOURCE, pitch.ENTRIES[2], "sm_90a").code
        return
    extra = "bias" in bug
    entry = config.entry("bfloat16", extra)
    assert jit.compile_cubin(config.source, entry, "sm_90a").code != before


@gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_is_caught(hopper, stream, mutant, bug):
    """By the check of every record, on the room's own operands, and by the exact cases."""
    name = MUTANTS[bug][-1]
    p, reference = drawn(*WRONG_SHAPE)
    assert check.check(room.bind(name, p, hopper), p, reference, stream).rel_err > 0
    mutant(bug)
    if bug in BEYOND_K:
        with pytest.raises(AssertionError, match="elements are wrong"):
            try_between_margins(bug, room.RUNGS[name][0], BEYOND_K[bug], hopper, stream)
        return
    extra = {}
    if "bias" in bug:
        import cupy

        extra["bias"] = rows = 64 * cupy.random.default_rng(SEED).random(p.m, cupy.float32)
        reference = check.reference(cupy.asarray(reference.values) + rows[:, None])
    bound = room.bind(name, p, hopper, **extra)
    poison(bound)
    if bug == "rounded_down":  # within the limit of the norm, as every rounding is
        made = case(*WRONG_SHAPE)
        scaled = room.bind(name, made.problem, hopper, alpha=1.01)
        with pytest.raises(AssertionError, match="elements are wrong"):
            made.check(run(scaled, hopper, stream), bug, np.float32(1.01) * made.product)
        return
    with pytest.raises(check.WrongResult, match="is wrong: |unwritten or NaN"):
        check.check(bound, p, reference, stream)


@functools.cache
def orders(rows: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The metadata of `drawn(1300, 4000, 200)` for the ring, its rows rounded up, and in the five wrong orders."""
    a = drawn(1300, 4000, 200)[0].host().a
    ring = wgmma.ring_metadata(a, rows)
    return ring, wrong_orders(a, ring, rows)


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_metadata_in_another_order_is_caught(hopper, stream, name):
    """The kernel reads the word of the lane, and not one that happens to be alike."""
    import cupy

    p, reference = drawn(1300, 4000, 200)
    config = room.RUNGS[name][0]
    ring, wrong = orders(metadata_rows(config))
    right = wgmma.bind(name, p, hopper, config, metadata=cupy.asarray(ring))
    assert check.check(right, p, reference, stream).rel_err > 0
    for order in (
        "swizzled for ldmatrix",
        "lanes swapped",
        "selectors swapped",
        "warps swapped",
        "rows g and g + 8 swapped",
    ):
        bound = wgmma.bind(name, p, hopper, config, metadata=cupy.asarray(wrong[order]))
        with pytest.raises(check.WrongResult, match="is wrong: relative error"):
            check.check(bound, p, reference, stream)


@gpu
@pytest.mark.parametrize("name", RUNGS)
def test_a_lost_step_is_caught(hopper, stream, name):
    """k = 1000 is 15 steps of 64 and one of 40; who goes in rounds loses one, since it would wait for a part of one.
    Where rows of values are as long as there are steps, it is k that says how many are multiplied."""
    p, reference = drawn(1300, 4000, 1000)
    bound = room.bind(name, p, hopper)
    ((kernel, how, arguments),) = bound.steps
    assert arguments[4] == 16
    config = room.RUNGS[name][0]
    in_rounds = config.kernel in ("rounds", *family.EXCHANGING)
    fewer = 16 - (config.stages if in_rounds else 1)
    lost = (*arguments[:4], np.int32(fewer), *arguments[5:])
    if config.kernel == DIRECT:
        assert arguments[-3] == 1000
        lost = (*arguments[:-3], np.int32(64 * fewer), *arguments[-2:])
    bound.steps[:] = [(kernel, how, lost)]
    with pytest.raises(check.WrongResult, match="is wrong: relative error"):
        check.check(bound, p, reference, stream)
