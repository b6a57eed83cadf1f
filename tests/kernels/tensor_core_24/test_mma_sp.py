"""mma_sp and its family: preparation and launch without a GPU, and on one every product against float64."""

from __future__ import annotations

import functools
import math
import os
import secrets
from dataclasses import replace
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.measure import check
from kernels import jit
from kernels.contract import Operands
from kernels.formats import half, two_four
from kernels.formats.half import DTYPES, Half
from kernels.formats.two_four import TwoFour
from kernels.tensor_core_24 import family, mma_sp, operands
from kernels.tensor_core_24.family import MMA_SP_FAMILY, PUBLISHED, STUDIES, MmaSp

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
gpu = pytest.mark.gpu
NAMED = {"mma_sp": PUBLISHED, **STUDIES, **{f"family {i}": c for i, c in enumerate(MMA_SP_FAMILY)}}
H200 = SimpleNamespace(
    device_id=0,
    compute_capability=(9, 0),
    properties=SimpleNamespace(max_shared_memory_per_block_optin=232448),
)


def up(x: int, unit: int) -> int:
    return math.ceil(x / unit) * unit


def says(words: list[str], work) -> None:
    with pytest.raises(ValueError) as caught:
        work()
    message = str(caught.value)
    assert all(word in message for word in words) and "\n" not in message, message


# ----------------------------------------------------------------------------- configurations


def test_the_published_kernel_is_the_sources():
    """ "128x128x64", "four warps", "three-stage", .cg by even threads, both selectors, ldmatrix.x4."""
    assert PUBLISHED == MmaSp(128, 128, 64, 64, 64, 3, "cg", "even_threads", 2, 4, 1)
    assert PUBLISHED.threads == 128
    assert PUBLISHED.entry("bfloat16") == (
        "mma_sp<BF16, 128, 128, 64, 64, 64, 3, CG, EVEN_THREADS, 2, 4, 1, 16, false, PLAIN>"
    )
    assert MmaSp(group=8, stages=4).entry("float16", True, 2, "ALPHA | BIAS") == (
        "mma_sp<F16, 128, 128, 64, 64, 64, 4, CG, EVEN_THREADS, 2, 4, 8, 2, true, ALPHA | BIAS>"
    )


def test_a_study_changes_one_decision():
    for name, config in STUDIES.items():
        changed = [f for f, x in vars(config).items() if x != getattr(PUBLISHED, f)]
        assert len(changed) == 1, name
    assert len(set(STUDIES.values())) == len(STUDIES) == 8


def test_the_family_can_be_built():
    assert MMA_SP_FAMILY[0] == PUBLISHED and len(set(MMA_SP_FAMILY)) == len(MMA_SP_FAMILY)
    for config in MMA_SP_FAMILY:
        assert config.check() is config
        assert config.fits(H200)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MmaSp(bm=96), ["bm is 96", "64, 128, 256"]),
        (MmaSp(bk=32), ["bk is 32", "64, 128"]),
        (MmaSp(wn=128), ["wn is 128", "32, 64"]),
        (MmaSp(cache="l1"), ["cache is 'l1'", "cg, ca"]),
        (MmaSp(metadata="all"), ["metadata is 'all'", "even_threads, all_threads, first_warps"]),
        (MmaSp(selectors=3), ["selectors is 3", "1, 2"]),
        (MmaSp(ldmatrix=1), ["ldmatrix is 1", "2, 4"]),
        (MmaSp(ldmatrix=2, selectors=1), ["ldmatrix.x2", "not 1 and 64"]),
        (MmaSp(ldmatrix=2, wm=32), ["ldmatrix.x2", "not 2 and 32"]),
        (MmaSp(stages=1), ["stages is 1", "from 2"]),
        (MmaSp(group=0), ["group is 0", "from 1"]),
        (MmaSp(bm=256, bn=256), ["256 x 256", "512 threads"]),
    ],
)
def test_what_cannot_be_built_is_named(config, words):
    says(words, lambda: config.check())
    says(words, lambda: config.entry("bfloat16"))


# ------------------------------------------------------------------------------- preparation


@given(m=st.integers(1, 300), k=st.integers(1, 300), config=st.sampled_from(list(NAMED.values())))
@settings(deadline=None, max_examples=50)
def test_preparation_pads_to_whole_tiles(m, k, config):
    a = two_four.random(m, k, "bfloat16", 1)
    val, meta = mma_sp.prepare(a, config)
    rows, columns = up(m, config.bm), up(k, config.bk)
    assert val.dtype == meta.dtype == np.uint16 and val.flags.c_contiguous and meta.flags.c_contiguous
    assert val.shape == (rows, columns // 2) and meta.shape == (rows // 2, columns // 8)
    assert np.array_equal(val[:m, : a.k_pad // 2], a.val)
    assert not val[m:].any() and not val[:, a.k_pad // 2 :].any()
    if config.ldmatrix == 2:
        meta = back(meta)
    blocks = meta.reshape(rows // 16, 8, columns // 64, 4, 2)  # as `two_four.swizzle` says
    whole = blocks.transpose(0, 4, 1, 2, 3).reshape(rows, columns // 16)
    assert np.array_equal(whole[:m, : a.k_pad // 16], a.meta)
    assert (whole[m:] == two_four.EMPTY).all() and (whole[:, a.k_pad // 16 :] == two_four.EMPTY).all()
    assert (val is a.val) == ((rows, columns) == (m, a.k_pad))


def back(meta: np.ndarray) -> np.ndarray:
    """The inverse of `swizzle_by_part`, word by word: 64 rows and columns are 32 x 8."""
    made = np.zeros_like(meta)
    for row, column in np.ndindex(meta.shape):
        s, p, g = row % 32 // 16, row % 16 // 8, row % 8
        e, w = column % 8 // 4, column % 4
        made[row - row % 32 + 16 * p + 8 * e + g, column - column % 8 + 4 * s + w] = meta[row, column]
    return made


def test_ldmatrix_x2_hands_out_the_metadata_of_one_part():
    """From the metadata itself, by the figures of the instruction's fragments (PTX ISA)."""
    meta = np.random.default_rng(0).integers(0, 2**16, (192, 12), np.uint32).astype(np.uint16)
    made = mma_sp.swizzle_by_part(two_four.swizzle(meta, 64, 64))
    assert made.shape == (96, 24)
    for top in range(0, 192, 64):
        for left in range(0, 12, 4):  # 64 columns of A
            tile = made[top // 2 :, 2 * left :][:32, :8]
            for part in (0, 1):
                rows = tile[16 * part : 16 * part + 16]  # whose addresses lanes 0 to 15 give
                for i in range(4):  # 16 rows of A: register i // 2, selector i % 2
                    for lane in range(32):
                        g, t = divmod(lane, 4)
                        if t // 2 != i % 2:
                            continue  # this lane's register is not looked at
                        low, high = rows[8 * (i // 2) + g, 2 * t : 2 * t + 2]
                        column = left + 2 * part + t % 2
                        assert low == meta[top + 16 * i + g, column]
                        assert high == meta[top + 16 * i + g + 8, column]


# -------------------------------------------------------------------------------------- bind


class Array(np.ndarray):
    """A NumPy array with the one attribute of CuPy's that bind needs."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def array(shape, dtype=np.uint16, offset: int = 0) -> Array:
    """Zeros at an address that is `offset` more than a multiple of 64."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + size].view(dtype).reshape(shape).view(Array)


def fake(m: int, n: int, k: int, dtype: str = "bfloat16", offset: int = 0):
    """A problem whose operands look like the device's; B begins `offset` bytes off."""
    a = two_four.random(m, k, dtype, 0)
    ops = Operands(
        TwoFour(m, k, dtype, a.val.view(Array), a.meta.view(Array)),
        Half(dtype, array((k, n), offset=offset)),
        Half(dtype, array((m, n))),
    )
    return replace(operands.problem(m, n, k, dtype=dtype), make_device=lambda: ops)


@pytest.fixture
def loaded(monkeypatch) -> list[tuple[str, int]]:
    """bind without a GPU: what it would compile and load, with how much dynamic shared memory."""
    made = []

    def load(cubin, dynamic):
        made.append((cubin, dynamic))
        return cubin

    monkeypatch.setattr(jit, "compile_cubin", lambda source, entry, arch: entry)
    monkeypatch.setattr(jit, "load", load)
    monkeypatch.setattr(mma_sp, "timed", lambda work: (tuple(x.view(Array) for x in work()), 1.25))
    return made


@pytest.mark.parametrize("config", NAMED.values(), ids=NAMED)
@pytest.mark.parametrize("sizes", [(256, 512, 384), (1, 1, 1), (300, 72, 130)])
def test_bind_makes_one_launch_that_covers_the_output(loaded, config, sizes):
    m, n, k = sizes
    p = fake(m, n, k)
    bound = mma_sp.bind("some name", p, H200, config)
    ((kernel, launch, arguments),) = bound.steps
    whole = m % config.bm == n % config.bn == k % config.bk == 0
    align = math.gcd(16, 2 * n)
    assert kernel == config.entry("bfloat16", not whole, align)
    assert loaded == [(kernel, config.shared_bytes)]
    assert launch.grid == (math.ceil(m / config.bm) * math.ceil(n / config.bn), 1, 1)
    assert launch.block == (config.threads, 1, 1)
    assert launch.shmem_size == config.shared_bytes
    ops = p.device()
    assert bound.name == "some name" and bound.result() is ops.c
    assert [int(x) for x in arguments[:3]] == [m, n, k]
    assert all(type(x) is np.int32 for x in arguments[:3])
    _, val, meta, *_ = bound.keep
    assert arguments[3:7] == tuple(x.data.ptr for x in (val, meta, ops.b.bits, ops.c.bits))
    assert arguments[7:] == (1, 0, 0, 0) and all(type(x) is np.float32 for x in arguments[7:9])
    expected = mma_sp.prepare(ops.a, config)
    assert np.array_equal(val, expected[0]) and np.array_equal(meta, expected[1])
    assert bound.prepare_ms == 1.25 and bound.prepare_bytes >= meta.nbytes


@pytest.mark.parametrize(
    ("sizes", "offset", "align", "mask"),
    [
        ((128, 128, 64), 0, 16, False),
        ((128, 136, 64), 0, 16, True),
        ((127, 128, 64), 0, 16, True),
        ((128, 128, 63), 0, 16, True),
        ((128, 132, 64), 0, 8, True),
        ((128, 130, 64), 0, 4, True),
        ((128, 129, 64), 0, 2, True),
        ((128, 128, 64), 8, 8, True),
        ((128, 128, 64), 4, 4, True),
        ((128, 128, 64), 2, 2, True),
    ],
)
def test_sizes_and_addresses_choose_the_instance(loaded, sizes, offset, align, mask):
    mma_sp.bind("x", fake(*sizes, offset=offset), H200)
    assert loaded[-1][0] == PUBLISHED.entry("bfloat16", mask, align)
    mma_sp.bind("x", fake(*sizes, offset=offset), H200, mask=True)
    assert loaded[-1][0] == PUBLISHED.entry("bfloat16", True, align)
    if mask:
        words = ["without a mask", "128, 128 and 64", f"m={sizes[0]}", f"at {align}"]
        says(words, lambda: mma_sp.bind("x", fake(*sizes, offset=offset), H200, mask=False))


def test_the_epilogue_is_what_is_asked_for(loaded):
    p = fake(128, 128, 64, "float16")
    c, bias = Half("float16", array((128, 128))), array((128,), np.float32)
    for asked, epilogue, tail in (
        ({}, "PLAIN", (1, 0, 0, 0)),
        ({"c": c}, "PLAIN", (1, 0, 0, 0)),
        ({"alpha": 2}, "ALPHA", (2, 0, 0, 0)),
        ({"beta": 3, "c": c}, "ALPHA | BETA", (1, 3, c.bits.data.ptr, 0)),
        ({"bias": bias}, "ALPHA | BIAS", (1, 0, 0, bias.data.ptr)),
        (
            {"alpha": 0, "beta": -1, "c": c, "bias": bias},
            "ALPHA | BETA | BIAS",
            (0, -1, c.bits.data.ptr, bias.data.ptr),
        ),
    ):
        bound = mma_sp.bind("x", p, H200, **asked)
        assert loaded[-1][0] == PUBLISHED.entry("float16", False, 16, epilogue)
        assert bound.steps[0][2][7:] == tail


def test_what_does_not_go_together_is_one_sentence(loaded):
    p, most = fake(128, 128, 64), mma_sp.MOST
    c, bias = Half("bfloat16", array((128, 128))), array((128,), np.float32)

    def refuses(words, problem=p, config=PUBLISHED, device=H200, **asked):
        says(words, lambda: mma_sp.bind("x", problem, device, config, **asked))

    refuses(["nothing to multiply by beta = 2"], beta=2)
    refuses(["(128, 128)", "float16"], beta=2, c=Half("float16", c.bits))
    refuses(["(128, 64)"], beta=2, c=Half("bfloat16", array((128, 64))))
    refuses(["lies in memory as the output"], beta=2, c=Half("bfloat16", c.bits.T))
    refuses(["would change the c"], beta=2, c=p.device().c)
    refuses(["bias of (128,)", "(64,)"], bias=bias[:64])
    refuses(["float32", "float64"], bias=bias.astype(np.float64))
    refuses(["n up to", str(most + 1)], operands.problem(128, most + 1, 64))
    refuses(["k up to", str(most + 1)], operands.problem(128, 128, most + 1))
    refuses(["2^31 - 1"], operands.problem(2**31 - 1, 2**24, 64))
    small = SimpleNamespace(
        device_id=0,
        compute_capability=(8, 9),
        properties=SimpleNamespace(max_shared_memory_per_block_optin=101376),
    )
    refuses(["128000 bytes", "101376"], config=STUDIES["mma_sp_stages_5"], device=small)
    refuses(["bm is 1"], config=MmaSp(bm=1))
    mixed = replace(p.device(), b=Half("float16", p.device().b.bits))
    refuses(["one dtype", "float16"], replace(p, make_device=lambda: mixed, _device=None))
    assert not loaded


# -------------------------------------------------------------------------------- on a GPU

#: Multiples of every tile; more steps than stages, and fewer.
NICE = [(256, 256, 128), (512, 256, 1024), (256, 768, 384)]
#: Around tiles, steps, and the widths of copies: n is a multiple of 8, of 4, of 2, and odd.
RAGGED = [
    (1, 1, 1),
    (1, 8, 16),
    (127, 129, 65),
    (129, 136, 63),
    (5, 200, 1000),
    (130, 132, 97),
    (64, 66, 192),
    (300, 257, 70),
    (128, 128, 4),
    (257, 130, 321),
    (128, 127, 640),
    (33, 520, 2),
]
PATTERNS = ("random", "by row", "by column", "by part", *(f"pair {i}" for i in range(6)))


def pattern(m: int, k: int, dtype: str, kind: str, rng) -> TwoFour:
    """Small whole numbers at positions that `kind` chooses, none beyond k."""
    groups = up(k, 16) // 4
    row, group = np.arange(m)[:, None], np.arange(groups)
    choice = {
        "random": lambda: rng.integers(0, 6, (m, groups)),
        "by row": lambda: (row + row // 8) % 6 + 0 * group,
        "by column": lambda: group % 6 + 0 * row,
        "by part": lambda: group // 8 % 2 * 5 + 0 * row,  # selector 0 has (0, 1), selector 1 (2, 3)
    }.get(kind, lambda: np.full((m, groups), int(kind[-1])))()
    pairs = two_four.PAIRS[choice].reshape(m, -1, 4)
    meta = np.bitwise_or.reduce(pairs << np.arange(0, 16, 4, dtype=np.uint16), axis=-1)
    values = small(rng, (m, groups * 4 // 2))
    low, high = choice_columns(choice)
    columns = np.stack((low, high), -1).reshape(m, -1) + 4 * np.repeat(group, 2)
    values[columns >= k] = 0
    return two_four.validate(TwoFour(m, k, dtype, half.to_bits(values, dtype), meta.astype(np.uint16)))


def choice_columns(choice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = two_four.PAIRS[choice]
    return pairs & 3, pairs >> 2


def small(rng, shape) -> np.ndarray:
    """-1 and 1: sums of thousands of products that both dtypes hold exactly."""
    return rng.choice(np.array([-1, 1], np.float32), shape)


@functools.cache
def case(m: int, n: int, k: int, dtype: str, kind: str = "random"):
    """A problem of whole numbers and its exact product, on the host."""
    rng = np.random.default_rng((SEED, m, n, k, DTYPES.index(dtype), PATTERNS.index(kind)))
    a, b = pattern(m, k, dtype, kind, rng), half.from_dense(small(rng, (k, n)), dtype)
    exact = two_four.to_dense(a).astype(np.float64) @ half.to_dense(b).astype(np.float64)
    assert np.abs(exact).max() <= 256, "or bfloat16 would round"
    return operands.problem_from(a, b), exact


@pytest.fixture(scope="module")
def stream(device):
    """For all tests on the GPU; at the end their operands are forgotten."""
    yield device.create_stream()
    import cupy

    case.cache_clear()
    random_case.cache_clear()
    cupy.get_default_memory_pool().free_all_blocks()


def run(bound, device, stream) -> Half:
    """One launch into an output full of NaN."""
    bound.result().fill(math.nan)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return half.to_host(bound.result())


def equal(out: Half, exact: np.ndarray, where: str) -> None:
    found = half.to_dense(out)
    wrong = found != exact  # NaN, an element left unwritten, is wrong
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise AssertionError(
            f"{where}, seed {SEED}: {wrong.sum()} of {wrong.size} elements are wrong, the first at row "
            f"{row}, column {column}: {found[row, column]} instead of {exact[row, column]}"
        )


def bind(name: str, problem, device, **asked):
    if not NAMED[name].fits(device):
        pytest.skip(f"{name} does not fit into this GPU's shared memory")
    return mma_sp.bind(name, problem, device, NAMED[name], **asked)


def instances(name: str, sizes, dtypes, epilogues=("PLAIN",)) -> list:
    """(source, entry) of what these sizes ask for, with and without a mask, to be compiled all at once."""
    config, found = NAMED[name], set()
    for m, n, k in sizes:
        mask = bool(m % config.bm or n % config.bn or k % config.bk)
        for dtype in dtypes:
            for epilogue in epilogues:
                found.add(config.entry(dtype, mask, math.gcd(16, 2 * n), epilogue))
    return [(config.source, entry) for entry in sorted(found)]


@gpu
@pytest.mark.parametrize("name", NAMED)
def test_products_of_whole_numbers_are_exact(device, stream, name):
    """Every size in bfloat16, and for the published kernel in float16; for the others of that one of each kind."""
    jobs = {"bfloat16": NICE + RAGGED, "float16": [NICE[1], RAGGED[2], RAGGED[4]]}
    if name == "mma_sp":
        jobs["float16"] = NICE + RAGGED
    wanted = {x for dtype, sizes in jobs.items() for x in instances(name, sizes, [dtype])}
    compiled.cubins(sorted(wanted), [jit.arch_of(device)])
    for dtype, shapes in jobs.items():
        for sizes in shapes:
            problem, exact = case(*sizes, dtype)
            out = run(bind(name, problem, device), device, stream)
            equal(out, exact, f"{name} at {sizes}, {dtype}")


@gpu
@pytest.mark.parametrize("name", ["mma_sp", "mma_sp_one_selector", "mma_sp_x2"])
def test_every_pair_of_indices_selects_its_rows(device, stream, name):
    for kind in PATTERNS:
        problem, exact = case(128, 128, 256, "bfloat16", kind)
        equal(run(bind(name, problem, device), device, stream), exact, f"{name}, {kind}")


@gpu
@pytest.mark.parametrize("name", NAMED)
def test_a_mask_changes_no_bit(device, stream, name):
    problem, _ = case(512, 256, 1024, "bfloat16")
    plain = run(bind(name, problem, device, mask=False), device, stream)
    masked = run(bind(name, problem, device, mask=True), device, stream)
    assert np.array_equal(plain.bits, masked.bits)


@gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(256, 128, 192), (130, 72, 65), (70, 131, 40), (129, 36, 64)])
def test_alpha_beta_and_bias(device, stream, sizes, dtype):
    """One at a time and all at once; all at once also where neighbouring blocks share rows of tiles."""
    import cupy

    compiled.cubins(instances("mma_sp", [sizes], [dtype], family.EPILOGUES[1:]), [jit.arch_of(device)])
    m, n, _ = sizes
    problem, exact = case(*sizes, dtype)
    rng = np.random.default_rng((SEED, m, n))
    c = half.from_dense(rng.integers(-8, 9, (m, n)).astype(np.float32), dtype)
    bias = rng.integers(-16, 17, m).astype(np.float32) / 2
    for parts in ("alpha", "beta", "bias", "all"):
        asked, expected = {}, exact
        if parts in ("alpha", "all"):
            asked["alpha"], expected = -0.5, -0.5 * exact
        if parts in ("beta", "all"):
            asked |= {"beta": 3.0, "c": half.to_device(c)}
            expected = expected + 3 * half.to_dense(c)
        if parts in ("bias", "all"):
            asked["bias"], expected = cupy.asarray(bias), expected + bias[:, None]
        rounded = half.from_bits(half.to_bits(expected.astype(np.float32), dtype), dtype)
        for name in ("mma_sp", "family 1") if parts == "all" else ("mma_sp",):
            out = run(bind(name, problem, device, **asked), device, stream)
            equal(out, rounded, f"{name} with {parts} at {sizes}, {dtype}")


@gpu
def test_what_beta_does_not_ask_for_is_not_read(device, stream):
    """As BLAS has it: c may hold NaN where beta is 0; alpha = 0 leaves the rest."""
    problem, exact = case(128, 128, 64, "bfloat16")
    c = half.to_device(half.from_dense(np.full((128, 128), math.nan, np.float32), "bfloat16"))
    equal(run(bind("mma_sp", problem, device, c=c), device, stream), exact, "beta = 0")
    c.fill(2.0)
    out = run(bind("mma_sp", problem, device, alpha=0.0, beta=4.0, c=c), device, stream)
    equal(out, np.full((128, 128), 8.0), "alpha = 0")


@gpu
@pytest.mark.parametrize("sizes", [(128, 128, 64), (130, 136, 70), (65, 33, 96)])
def test_nothing_is_read_or_written_beyond_the_matrices(device, stream, sizes):
    """B and C lie in larger arrays, at addresses that 16, 2, 4, 8 and 16 divide, among NaN and marks."""
    import cupy

    m, n, k = sizes
    problem, exact = case(*sizes, "bfloat16")
    ops, guard, mark = problem.device(), 64, 0x1234
    for offset in (0, 1, 2, 4, 8):
        around_b = cupy.full(k * n + 2 * guard, 0x7FFF, cupy.uint16)
        around_c = cupy.full(m * n + 2 * guard, mark, cupy.uint16)
        b = around_b[guard + offset : guard + offset + k * n].reshape(k, n)
        c = around_c[guard + offset : guard + offset + m * n].reshape(m, n)
        b[:] = ops.b.bits
        there = Operands(ops.a, Half("bfloat16", b), Half("bfloat16", c))
        moved = replace(problem, make_device=lambda there=there: there, _device=None)
        out = run(bind("mma_sp", moved, device), device, stream)
        equal(out, exact, f"{sizes} at {offset}")
        host = around_c.get()
        assert (host[: guard + offset] == mark).all(), f"{sizes} at {offset}"
        assert (host[guard + offset + m * n :] == mark).all(), f"{sizes} at {offset}"


@functools.cache
def random_case(dtype: str):
    """A problem of random operands, its product in float64, and how far each element may be off."""
    m, n, k = 600, 520, 1000
    problem = operands.problem(m, n, k, seed=SEED, dtype=dtype)
    ops = problem.host()
    a, b = two_four.to_dense(ops.a).astype(np.float64), half.to_dense(ops.b).astype(np.float64)
    exact, terms = a @ b, np.abs(a) @ np.abs(b)
    # Rounded once; the sums before it are of exact products, in float32, a few units off each.
    slack = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype] * np.abs(exact)
    slack += 2.0**-23 * (8 + k / 16) * terms
    return problem, exact, slack


@gpu
@pytest.mark.parametrize("name", NAMED)
def test_random_operands_within_the_limits_and_every_element_within_its_own(device, stream, name):
    for dtype in DTYPES:
        problem, exact, slack = random_case(dtype)
        out = run(bind(name, problem, device), device, stream)
        where = f"{name}, {dtype}, seed {SEED}"
        check.compare(out, check.reference(exact), where)
        off = np.abs(half.to_dense(out) - exact)
        assert (off <= slack).all(), f"{where}: {(off / slack).max()} of the bound"


@gpu
def test_launches_repeat_to_the_bit(device, stream):
    """Also one after the other without waiting, as a timing does."""
    problem = operands.problem(1024, 768, 2048, seed=SEED)
    bound = bind("mma_sp", problem, device)
    first = run(bound, device, stream)
    for _ in range(20):
        bound.launch(stream)
    stream.sync()
    assert np.array_equal(half.to_host(bound.result()).bits, first.bits)
