"""On several GPUs, by itself, in some 40 s: every layout with NCCL gives the product, and a rank that dies ends all.

torchrun --nproc-per-node 2 tests/kernels/distributed/several_gpus.py
torchrun --nproc-per-node 2 tests/kernels/distributed/several_gpus.py --die 1
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

from kernels import distributed, formats
from kernels.distributed import generate, machine, partition
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


def check(a, reference, ranks, here, dtype: str = "float32", **asked) -> None:
    """Multiply twice; both results must be those of the CPU."""
    k = reference.shape[1]
    b = generate.dense(np.arange(k), np.arange(N), N, 5)
    given = half.to_bits(b, dtype) if dtype in half.DTYPES else b
    b = half.from_bits(given, dtype) if dtype in half.DTYPES else b
    plan = distributed.plan(a, N, ranks, machine=here, dtype=dtype, **asked)
    expected = (reference.astype(np.float64) @ b)[slice(*plan.c_rows)]
    if asked.get("c") == "replicated":
        expected = reference.astype(np.float64) @ b
    for _ in range(2):
        for panel in plan.result().arrays:
            panel.fill(77)
        out = formats.to_host(plan(given[slice(*plan.b_rows)], timed=True).whole())
        out = half.from_bits(out, dtype) if dtype in half.DTYPES else out
        error = np.abs(out - expected).max() / np.abs(expected).max()
        assert error < (2e-2 if dtype in half.DTYPES else 1e-5), f"{asked} {dtype}: {error}"
    assert plan.sent_bytes == plan.least_bytes
    worst = max(ranks.gather(float(error)))
    if ranks.rank == 0:
        times = plan.times
        print(
            f"{dtype} {asked or 'by rows'}: error {worst:.1e}, {plan.sent_bytes} bytes sent, {times.total:.2f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--die", type=int, help="the rank that is killed in the middle of exchanges")
    given = parser.parse_args()
    with distributed.start() as ranks:
        here = distributed.Gpu(distributed.place().local)
        graph = csr.to_scipy(generate.host_part(Rmat(11, 16, 3), np.array([0, 2048]), 0).a)
        mesh = csr.to_scipy(generate.host_part(Stencil(14), np.array([0, 2744]), 0).a)
        blocks = bcsr.random(1024, 1024, 0.2, 0, dtype="bfloat16")
        dense = bcsr.to_dense(blocks)
        for a in (graph, mesh):
            for asked in LAYOUTS:
                if ranks.size % asked.get("replicas", 1) == 0:
                    check(a, a, ranks, here, **asked)
        for asked in ({}, {"chunks": 3}, {"b": "replicated"}, {"c": "replicated"}):
            check(blocks, dense, ranks, here, "bfloat16", **asked)
        machine.TRIED, machine.SAMPLE = 0, 5000  # as large parts are planned, made on the GPUs
        made = Rmat(11, 16, 3)
        edges = generate.edges(made, ranks.size)
        check(generate.part(made, edges, ranks.rank), graph, ranks, here)
        # As parts whose entries 32 bits do not count.
        partition.INT32_MAX, partition.SLAB = 1000, 5000
        for large, whole in ((made, graph), (Stencil(14), mesh)):
            edges = generate.edges(large, ranks.size)
            for consumed in (False, True):
                part = replace(generate.part(large, edges, ranks.rank), consumed=consumed)
                assert len(part.slabs) > 2
                check(part, whole, ranks, here)
        if given.die is None:
            return
        if ranks.rank == 0:
            print(f"rank {given.die} dies at {time.strftime('%H:%M:%S')}", flush=True)
        plan = distributed.plan(graph, N, ranks, machine=here)
        for call in range(10**6):
            plan()
            if call == 100 and ranks.rank == given.die:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
