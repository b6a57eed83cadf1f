"""The Hopper kernels on `wgmma.mma_async.sp`: configurations, preparation, launch.

Preparation is offline, like the compression itself: the metadata is put into the order in which a
stage of the ring holds it, and for wgmma_packed A's values, too. Its time is `prepare_ms`. Otherwise
A's values, B and C stay as they are: TMA masks what lies beyond a matrix. Where n is no multiple of 8,
which TMA cannot address, a launch copies B to padded rows and C back from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from kernels import jit, pitch
from kernels.contract import Launch, Problem, require, timed
from kernels.formats import two_four
from kernels.formats.half import Half, array_module
from kernels.tensor_core_24.operands import require_extra
from kernels.tma import tensor_map

HERE = Path(__file__).parent
TARGETS = ("sm_90a",)
K = 64  #: columns of A in a stage
KERNELS = (
    "one_stage", "ring", "specialised", "persistent", "packed", "multicast", "stream_k", "split_k",
)  # fmt: skip
#: These add beta·C and a bias, too.
COMPLETE = ("ring", "persistent", "packed", "stream_k", "split_k")
_DTYPES = {"bfloat16": "BF16", "float16": "F16"}
_KEEP = {"": 0, "a": 1, "b": 2}
INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Config:
    """The knobs of the kernels, as sparse_stages.cuh and store.cuh describe them."""

    kernel: str = "persistent"  #: wgmma_<kernel>.cu
    groups: int = 2  #: warpgroups that multiply
    blocks: int = 1  #: blocks of 64 rows of C of each
    n: int = 256  #: columns of C that a block computes
    stages: int = 4  #: of the ring
    buffers: int = 2  #: squares of 64 x 64 that a warpgroup stores C through
    splits: int = 1  #: blocks that share the steps of a tile; split_k only
    band: int = 8  #: rows of tiles that are worked on at a time
    keep: str = ""  #: the operand that L2 is asked to keep, "a" or "b"; the other one it may let go

    @property
    def m(self) -> int:
        """Rows of C that a block computes."""
        return 64 * self.groups * self.blocks


def entry(config: Config, dtype: str, extra: bool = False) -> str:
    """The template instantiation for a dtype; extra: with beta·C and bias."""
    c, t, flag = config, _DTYPES[dtype], str(extra).lower()
    arguments = {
        "one_stage": f"{t}, {c.blocks}, {c.n}",
        "ring": f"{t}, {c.blocks}, {c.n}, {c.stages}, {flag}",
        "specialised": f"{t}, {c.groups}, {c.blocks}, {c.n}, {c.stages}, {c.buffers}",
        "multicast": f"{t}, {c.groups}, {c.blocks}, {c.n}, {c.stages}, {c.buffers}",
        "packed": f"{t}, {c.groups}, {c.blocks}, {c.n}, {c.stages}, {c.buffers}, {flag}",
        "persistent": f"{t}, {c.groups}, {c.blocks}, {c.n}, {c.stages}, {c.buffers}, {flag}",
        "stream_k": f"{t}, {c.groups}, {c.blocks}, {c.n}, {c.stages}, {c.buffers}, {flag}",
        "split_k": f"{t}, {c.groups}, {c.blocks}, {c.n}, {c.stages}, {c.splits}, {flag}",
    }[c.kernel]
    return f"wgmma_{c.kernel}<{arguments}>"


def source(config: Config) -> Path:
    return HERE / f"wgmma_{config.kernel}.cu"


def shared_bytes(config: Config) -> int:
    """Dynamic shared memory of a block: the ring, rounded to 1024, and the squares of each warpgroup."""
    stage = config.m * K + config.n * 2 * K + config.m * 8
    return -(-config.stages * stage // 1024) * 1024 + config.groups * config.buffers * 8192


def ring_metadata(a: two_four.TwoFour, rows: int = 64):
    """Metadata in the order of the ring: uint32 (m'/64, 2 k'), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and 64; what is added is valid metadata of
    zeros. For each 64 rows and 64 columns of A there are 128 words, 32 for each warp of a warpgroup
    and its 16 rows, in the order of the lanes; a word is the one of `two_four.swizzle`.
    """
    swizzled = two_four.swizzle(a.meta, rows, K)
    words = swizzled.view(np.uint32).reshape(-1, 4, 8, swizzled.shape[1] // 8, 4)
    moved = words.transpose(0, 3, 1, 2, 4).reshape(words.shape[0], -1)
    return moved if moved.flags.c_contiguous else moved.copy()


def pack_values(a: two_four.TwoFour, rows: int = 64):
    """A's values in the order of use: uint16 (m'/64, k'/64, 64, 32), NumPy or CuPy.

    m' and k' are m and k rounded up to multiples of `rows` and 64, with zeros. A piece is 64 rows and 64
    columns of A, 32 values a row; the four units of 16 bytes of row r are at u ^ (r // 2 % 4), the
    64-byte swizzle of TMA, which wgmma undoes.
    """
    xp = array_module(a.val)
    high, wide = -(-a.m // rows) * rows, -(-a.k // K) * K // 2
    val = a.val
    if val.shape != (high, wide):
        val = xp.zeros((high, wide), xp.uint16)
        val[: a.m, : a.k_pad // 2] = a.val
    units = val.reshape(high // 64, 64, wide // 32, 4, 8).transpose(0, 2, 1, 3, 4)
    row, unit = xp.arange(64)[:, None], xp.arange(4)[None, :]
    pieces = units[:, :, row, unit ^ row // 2 % 4].reshape(high // 64, wide // 32, 64, 32)
    return xp.ascontiguousarray(pieces)


def tiles(config: Config, m: int, n: int) -> tuple[int, int]:
    """Tiles in a column and in a row of C."""
    return ceil(m / config.m), ceil(n / config.n)


def check(config: Config, m: int, n: int, k: int, sms: int, shared_most: int) -> None:
    """Raise ValueError, one sentence, where a configuration does not take a problem on a GPU.

    sms: its multiprocessors; shared_most: bytes of shared memory that a block may have.
    """
    c = config
    alone = c.kernel in ("one_stage", "ring")  # one warpgroup, which also asks for stages
    for what, value, known in (
        ("kernel", c.kernel, KERNELS), ("groups", c.groups, (1,) if alone else (1, 2)),
        ("rows of a tile", c.m, (64, 128, 256)), ("n", c.n, (64, 128, 192, 256)),
        ("keep", c.keep, tuple(_KEEP)), ("buffers", c.buffers, range(1, 17)),
        ("splits", c.splits, range(1, 9) if c.kernel == "split_k" else (1,)),
        ("stages", c.stages, (1,) if c.kernel == "one_stage" else range(2, 33)),
    ):  # fmt: skip
        ends = f"{known[0]} to {known[-1]}" if isinstance(known, range) else ""
        choice = ends or ", ".join(map(repr, known))
        require(value in known, f"wgmma_{c.kernel} has {what} {value!r}, but takes {choice}")
    require(c.band >= 1, f"wgmma_{c.kernel} has bands of {c.band} rows of tiles: give it 1 or more")
    require(
        c.keep or c.kernel not in ("packed", "multicast"),
        f"wgmma_{c.kernel} always asks L2 to keep an operand: say which, 'a' or 'b'",
    )
    require(
        c.blocks * c.n <= 384,
        f"wgmma_{c.kernel} keeps {c.blocks} x {c.n} / 2 sums in a thread, but has registers for 192: "
        "use a smaller tile",
    )
    require(
        max(m, n, k) <= INT32_MAX // 2,
        f"wgmma_{c.kernel} takes sizes up to {INT32_MAX // 2}, not m={m}, n={n}, k={k}: multiply in "
        "several ranges",
    )
    need = shared_bytes(c)
    require(
        need + 1024 <= shared_most,
        f"wgmma_{c.kernel} with {c.stages} stages of {c.m} x {c.n} needs {need} bytes of shared memory "
        f"and a KiB for its barriers, but a block may have {shared_most}: use fewer stages",
    )
    high, wide = tiles(c, m, n)
    if c.kernel == "stream_k":
        require(
            high * wide >= sms,
            f"stream_k shares {high} x {wide} tiles among {sms} multiprocessors, each of which must "
            "get at least one: use split_k or a smaller tile",
        )
    if c.kernel == "split_k":
        require(
            ceil(k / K) >= c.splits,
            f"split_k cannot cut {ceil(k / K)} steps of {K} columns into {c.splits} parts: use fewer",
        )
        require(
            4 * c.m * c.n <= c.stages * (c.m * K + c.n * 2 * K + c.m * 8),
            f"split_k adds {c.m} x {c.n} sums in the memory of its {c.stages} stages: use more stages",
        )


def shared_tiles(count: int, sms: int) -> int:
    """Tiles that stream_k cuts along k: none where they divide evenly, else one wave and the rest."""
    return 0 if count % sms == 0 else count % sms + sms


def bind(
    name: str,
    problem: Problem,
    device,
    config: Config,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Half | None = None,
    bias=None,
    metadata=None,
    cache: dict | None = None,
) -> Launch:
    """Make a configuration ready: D (m, n) = alpha·A·B + beta·C + bias, FP32 sums, rounded once.

    c: the C of beta, (m, n), looked at where beta is not 0; bias: float32 (m,), one for each row; CuPy.
    metadata: what `ring_metadata(a, 256)` returns, where it is there already; cache: where
    configurations that are tried on one problem share what else they prepare. A Launch may be under way
    on two streams at once: both write the same. Raises ValueError, one sentence, where the GPU has no wgmma, the
    configuration does not take the problem, or the operands do not go together.
    """
    import cupy
    from cuda.core import LaunchConfig

    require(
        jit.arch_of(device) in TARGETS,
        f"{name} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: use mma_sp",
    )
    properties = device.properties
    m, n, k = problem.m, problem.n, problem.k
    sms = properties.multiprocessor_count
    check(config, m, n, k, sms, properties.max_shared_memory_per_block_optin)
    extra = beta != 0 or bias is not None
    require(
        not extra or config.kernel in COMPLETE,
        f"wgmma_{config.kernel} adds neither C nor a bias: use one of {', '.join(COMPLETE)}",
    )
    operands = problem.device()
    require_extra(name, operands, beta, c, bias)
    if beta == 0:
        c = None
    a, b, out = operands.a, operands.b, operands.c
    cache = {} if cache is None else cache
    prepare_ms = 0.0
    if metadata is None:
        metadata, prepare_ms = timed(lambda: ring_metadata(a, 256))

    packed = None
    if config.kernel == "packed":
        if "packed" not in cache:
            cache["packed"], pack_ms = timed(lambda: pack_values(a, 256))
            prepare_ms += pack_ms
        packed = cache["packed"]
    pairs = config.kernel == "multicast"  # of blocks, one below the other
    width = ceil(n / 8) * 8  # elements of a row of B and C whose rows the copy engine can address
    before, after = [], []
    b_bits, c_bits, c_in = b.bits, out.bits, None if c is None else c.bits
    addresses = [x.data.ptr for x in (b_bits, c_bits, c_in) if x is not None]
    if width != n or any(address % 16 for address in addresses):
        if "b" not in cache:
            cache["b"], cache["c"] = (cupy.empty((rows, width), cupy.uint16) for rows in (k, m))
        b_bits, c_bits = cache["b"], cache["c"]
        before.append(pitch.copy(b.bits, b_bits, device))
        after.append(pitch.copy(c_bits, out.bits, device))
        if c is not None:
            c_in = cupy.empty_like(c_bits)
            before.append(pitch.copy(c.bits, c_in, device))

    val = a.val.copy() if a.val.data.ptr % 16 else a.val  # a part of another array
    maps = (
        tensor_map(val, (config.m, K // 2), 64) if packed is None else packed.data.ptr,
        tensor_map(metadata, (config.m // 64, 128)),
        tensor_map(b_bits, (K // 2 if pairs else K, 64), 128),
        tensor_map(c_bits, (64, 64), 128),
    )
    high, wide = tiles(config, m, n)
    if pairs:
        high = ceil(high / 2)
    count = high * wide
    arguments = [np.int32(x) for x in (ceil(k / K), high, wide, min(config.band, high))]
    workspace = ()
    if config.kernel == "stream_k":
        workspace = (
            cupy.empty((sms, config.m * config.n), cupy.float32),
            cupy.zeros((sms, config.groups, 2), cupy.uint32),  # `Handover`s
        )
        cupy.cuda.get_current_stream().synchronize()  # the zeros are there, whatever stream comes next
        arguments += [np.int32(shared_tiles(count, sms)), *(x.data.ptr for x in workspace)]
    if config.kernel in ("persistent", "packed", "multicast", "stream_k", "split_k"):
        arguments.append(np.int32(_KEEP[config.keep]))
    arguments.append(np.float32(alpha))
    if config.kernel in COMPLETE:
        arguments += [
            np.float32(beta), 0 if c_in is None else c_in.data.ptr,
            0 if bias is None else bias.data.ptr, *map(np.int32, (m, n, width)),
        ]  # fmt: skip
    shared = shared_bytes(config)
    kernel = jit.load(
        jit.compile_cubin(source(config), entry(config, a.dtype, extra), jit.arch_of(device)),
        shared,
    )
    threads = 128 if config.kernel in ("one_stage", "ring") else 128 * (config.groups + 1)
    resident = {"persistent": sms, "packed": sms, "stream_k": sms, "multicast": sms // 2}
    grid = min(count, resident.get(config.kernel, count))  # of clusters, where there are any
    cluster = {"cluster": 2 if pairs else config.splits} if pairs or config.splits > 1 else {}
    launch = LaunchConfig(grid=grid, block=threads, shmem_size=shared, **cluster)
    held = metadata.nbytes + sum(x.nbytes for x in (*workspace, packed) if x is not None)
    return Launch(
        name,
        [*before, (kernel, launch, (*maps, *arguments)), *after],
        out,
        prepare_ms,
        held,
        keep=(operands, val, metadata, packed, workspace, b_bits, c_bits, c_in, c, bias),
    )
