"""On several GPUs, by itself, in some 40 s: every layout with NCCL gives the product, and a rank that dies ends all.

torchrun --nproc-per-node 2 tests/kernels/distributed/several_gpus.py
torchrun --nproc-per-node 2 tests/kernels/distributed/several_gpus.py --die 1
torchrun --nproc-per-node 4 tests/kernels/distributed/several_gpus.py --host torch
mpiexec -n 4 python tests/kernels/distributed/several_gpus.py --host mpi4py
"""

import argparse
import itertools
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

from kernels import distributed, formats
from kernels.distributed import backend, comm, generate, partition
from kernels.distributed.generate import Rmat, Stencil
from kernels.formats import bcsr, csr, half

N = 96
LAYOUTS = (
    {},
    {"chunks": 1},
    {"chunks": 3},
    {"first": "local"},
    {"first": "whole"},
    {"b": "replicated"},
    {"c": "replicated"},
    {"replicas": 2},
    {"replicas": 2, "chunks": 3, "c": "replicated"},
)
GRAPH, MESH = Rmat(11, 16, 3), Stencil(14)


def whole(made):
    return csr.to_scipy(generate.host_part(made, np.array([0, made.m]), 0).a)


def check(a, reference, ranks, here, dtype: str = "float32", **asked) -> None:
    """Multiply twice; both results must be those of the CPU."""
    given = half.to_bits(generate.dense(np.arange(reference.shape[1]), np.arange(N), N, 5), dtype)
    plan = distributed.plan(a, N, ranks, machine=here, dtype=dtype, **asked)
    expected = reference.astype(np.float64) @ half.from_bits(given, dtype)
    if asked.get("c") != "replicated":
        expected = expected[slice(*plan.c_rows)]
    for _ in range(2):
        for panel in plan.result().arrays:
            panel.fill(77)
        out = half.from_bits(formats.to_host(plan(given[slice(*plan.b_rows)], timed=True).whole()), dtype)
        error = float(np.abs(out - expected).max() / np.abs(expected).max())
        assert plan.times.multiplication > 0
        assert error < (1e-5 if dtype == "float32" else 2e-2), f"{asked} {dtype}: {error}"
    assert plan.sent_bytes == plan.least_bytes
    worst = max(ranks.gather(error))
    if ranks.rank == 0:
        print(f"{dtype} {asked or 'by rows'}: error {worst:.1e}, {plan.sent_bytes} bytes, {plan.times}", flush=True)


def layouts(ranks, here) -> None:
    """All of a graph, of a mesh and of blocks, which every rank has whole."""
    for a in map(whole, (GRAPH, MESH)):
        for asked in LAYOUTS:
            if ranks.size % asked.get("replicas", 1) == 0:
                check(a, a, ranks, here, **asked)
    blocks = bcsr.random(1024, 1024, 0.2, 0, dtype="bfloat16")
    for asked in ({}, {"chunks": 3}, {"b": "replicated"}, {"c": "replicated"}):
        check(blocks, bcsr.to_dense(blocks), ranks, here, "bfloat16", **asked)


def large(ranks, here, put=setattr) -> None:
    """Parts that are made on the GPUs: as those that are not tried, and as those whose entries 32 bits do not count.

    put: changes what a module counts as large.
    """
    for module, most in ((backend, {"TRIED": 0, "SAMPLE": 5000}), (partition, {"INT32_MAX": 1000, "SLAB": 5000})):
        for name, value in most.items():
            put(module, name, value)
        for made, consumed in itertools.product((GRAPH, MESH), (False, True)):
            part = generate.part(made, generate.edges(made, ranks.size), ranks.rank)
            assert (len(part.slabs) > 2) == (module is partition)
            check(replace(part, consumed=consumed), whole(made), ranks, here)


def die(which: int, ranks, here) -> None:
    """The rank is killed in the middle of exchanges."""
    plan = distributed.plan(whole(GRAPH), N, ranks, machine=here)
    for call in range(10**6):
        plan()
        if call == 100 and ranks.rank == which:
            print(f"rank {which} dies at {time.strftime('%H:%M:%S')}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--die", type=int, help="a rank")
    parser.add_argument("--host", choices=("torch", "mpi4py"), help="without GPUs, by what carries rows then")
    given = parser.parse_args()
    if given.host == "mpi4py":
        from mpi4py import MPI

        layouts(comm.Mpi(MPI.COMM_WORLD), distributed.Host())
        return
    with distributed.start(gpu=not given.host) as ranks:
        here = distributed.Host() if given.host else distributed.Gpu(distributed.place().local)
        layouts(ranks, here)
        if not given.host:
            large(ranks, here)
        if given.die is not None:
            die(given.die, ranks, here)


if __name__ == "__main__":
    main()
