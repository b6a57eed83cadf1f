"""How our FP32 rungs are launched; `family` says what they are made of."""

import functools
from math import ceil

import numpy as np

from .. import jit, padding, tma
from ..contract import Launch, Problem, require, timed
from ..formats import layout
from . import family, operands, schedule
from .family import Config

MAX_GRID = 65535


def prepare(variant: str, problem: Problem, device) -> Launch:
    """One of `family.RUNGS` or `family.TRIALS`, ready to run on float32 operands."""
    return prepare_config(variant, problem, device, family.named(variant, problem, device))


def prepare_config(name: str, problem: Problem, device, config: Config) -> Launch:
    """Compile a configuration for `device` (a current `cuda.core.Device`), lay B out, make it ready.

    Raises ValueError where the GPU or the configuration does not take the problem.
    """
    ops = problem.device()
    b = ops.b
    operands.require_float32(name, ops)
    arch = jit.arch_of(device)
    require(
        config.kernel == "wide" or arch in family.HOPPER,
        f"{name} needs the copy engine of {family.HOPPER[0]}, which {arch} has not: use wide",
    )
    c, m, n, k = config, problem.m, problem.n, problem.k
    slot, pattern = family.slot_of(b), (b.keep, b.group)
    family.check(c, *pattern, slot, device.properties.max_shared_memory_per_block_optin)
    from cuda.core import LaunchConfig

    # Zeros fill a step's rows up to a multiple of four, their index is 0.
    windows, height = family.windows(c, b.group), family.rows(c, *pattern)
    depth, tiles = windows * b.group, (ceil(m / c.bm), ceil(n / c.bn))
    steps = ceil(k / depth)
    (val, index), prepare_ms = timed(lambda: layout.vector_steps(b, c.bn, windows, slot, height, True))
    require(
        tiles[1] <= MAX_GRID,
        f"{name} has a grid row for every {c.bn} columns of C and n = {n} needs more than {MAX_GRID}: "
        "multiply in several column ranges",
    )
    a, lda, copies = padding.aligned(ops.a, device)
    shared = family.shared_bytes(c, *pattern, slot)
    aligned = m % 4 == 0 and ops.c.data.ptr % padding.ALIGNMENT == 0
    kernel = jit.loaded(family.source(c), family.entry(c, *pattern, slot, aligned), device, shared)
    cluster = {"cluster": (1, 1, c.split)} if c.kernel == "cluster" else {}
    grid: int | tuple[int, int] = tiles  # with a cluster it counts clusters, which are split blocks deep
    one, i32 = np.float32(1), np.int32
    work: tuple = ()
    shares: tuple = ()
    if c.kernel == "stream":
        resident = device.properties.multiprocessor_count * c.blocks
        work = table, partial, handovers = _work(_parts(*tiles, steps, resident), c)
        grid = len(table)  # one list of parts for each block
        shares = (
            i32(family.tail(c, *pattern, b.w)),
            table.data.ptr,
            i32(table.shape[1]),
            partial.data.ptr,
            handovers.data.ptr,
        )
    launch = LaunchConfig(grid=grid, block=c.threads, shmem_size=shared, **cluster)
    arrays = val.data.ptr, index.data.ptr, *shares, ops.c.data.ptr
    arguments: tuple
    if c.kernel == "wide":
        arguments = (*map(i32, (m, n, k, steps, lda)), one, a.data.ptr, *arrays)
    else:
        across = a[:, :m] if copies else a.T  # A^T (k, m), its rows lda apart: a copy is made so
        box = tma.tensor_map(across, (depth, c.bm))
        arguments = (i32(m), i32(n), i32(steps), one, box, *arrays)
    return Launch(
        name,
        [*copies, (kernel, launch, arguments)],
        ops.c,
        prepare_ms,
        val.nbytes + index.nbytes,
        keep=(ops, (val, index), a, work, arguments),
        scratch=(*work[1:], *([a] if copies else [])),
    )


_parts = functools.lru_cache(256)(schedule.parts)


def _work(table: np.ndarray, config: Config) -> tuple:
    """Return a schedule on the device, for each of its blocks a tile of partial sums, for each warp a `Handover`."""
    import cupy

    blocks = len(table)
    partial = cupy.empty((blocks, config.bm, config.bn), np.float32)
    return cupy.asarray(table), partial, cupy.zeros((blocks, config.threads // 32, 2), np.uint32)
