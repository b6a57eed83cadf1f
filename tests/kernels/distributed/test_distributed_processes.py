"""Real processes: what one does when another dies, and exchanges with gloo and with MPI where they are installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from artifact.paths import ROOT

WATCHED = """
import os, signal, sys, time
from kernels.distributed import comm, faults
at = comm.place()
how, who = sys.argv[1], int(sys.argv[2])
with faults.watched(at, arrival=6):
    time.sleep(0.3)
    if at.rank == who:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raises":
            raise ValueError("row 3 is wrong")
        if how == "says why":
            sys.exit("no more data")
        if how == "exits":
            os._exit(3)
    if how == "says well":
        sys.exit(at.rank and None)
    if how != "well":
        time.sleep(60)
"""

PRODUCT = """
import sys
import numpy as np
import scipy.sparse as sp
from kernels import distributed
a = sp.random_array((90, 90), density=0.1, rng=np.random.default_rng(1), dtype=np.float32).tocsr()
b = np.random.default_rng(2).standard_normal((90, 24)).astype(np.float32)
def check(ranks):
    for asked in ({}, {"chunks": 3}, {"replicas": 2}, {"c": "replicated"}):
        made = distributed.plan(a, 24, ranks, machine=distributed.Host(), **asked)
        out = made(b[slice(*made.b_rows)]).whole()
        rows = (0, 90) if asked.get("c") else made.c_rows
        error = np.abs(out - (a.astype(float) @ b)[slice(*rows)]).max()
        assert error < 1e-5, (asked, error)
"""
GLOO = (
    PRODUCT
    + """
with distributed.start(size=4, gpu=False) as ranks:
    check(ranks)
print("right")
"""
)
MPI = (
    PRODUCT
    + """
from mpi4py import MPI
from kernels.distributed.comm import Mpi
check(Mpi(MPI.COMM_WORLD))
print("right")
"""
)


def port() -> int:
    """One that is free, as is the next, which ranks watch each other through."""
    while True:
        with socket.socket() as found, socket.socket() as following:
            found.bind(("", 0))
            number = found.getsockname()[1]
            try:
                following.bind(("", number + 1))
            except OSError:
                continue
            return number


def started(code: str, *arguments, ranks, size: int, **more) -> list[subprocess.Popen]:
    common = os.environ | {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port()),
        "WORLD_SIZE": str(size),
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
        **more,
    }
    return [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]


def ended(processes) -> tuple[list[int], list[str]]:
    """(exit codes, lines on stderr of all)."""
    outputs = [process.communicate(timeout=60) for process in processes]
    lines = [line for _, err in outputs for line in err.splitlines()]
    return [process.returncode for process in processes], lines


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("killed", "its process ended without a word (killed, out of memory, or a crash)"),
        ("exits", "its process ended without a word (killed, out of memory, or a crash)"),
        ("raises", "ValueError: row 3 is wrong"),
        ("says why", "SystemExit: no more data"),
    ],
)
def test_a_rank_that_dies_ends_all_with_one_sentence(how, why, who):
    begin = time.monotonic()
    codes, lines = ended(started(WATCHED, how, who, ranks=range(3), size=3))
    assert time.monotonic() - begin < 30
    assert lines == [f"error: rank {who} died: {why}"]
    assert all(code != 0 for code in codes)


@pytest.mark.parametrize("how", ["well", "says well"])
def test_ranks_that_end_well_end_well(how):
    assert ended(started(WATCHED, how, 0, ranks=range(3), size=3)) == ([0, 0, 0], [])


def test_a_world_size_that_is_not_there_is_one_sentence():
    codes, lines = ended(started(WATCHED, "well", 0, ranks=range(2), size=3))
    assert codes == [70, 70]
    assert lines == [
        "error: 2 of 3 ranks came within 6 s, rank 2 did not: start 3 processes, or say another world size"
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_that_disagree_on_how_many_there_are(first):
    here = str(port())
    one = started(WATCHED, "well", 0, ranks=[first], size=2 + first, MASTER_PORT=here)
    time.sleep(0.5)
    other = started(WATCHED, "well", 0, ranks=[1 - first], size=3 - first, MASTER_PORT=here)
    codes, lines = ended([*one, *other])
    assert codes == [70, 70]
    assert lines == [
        "error: rank 1 was started as one of 3, but rank 0 as one of 2: start all with the same number of processes"
    ]


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_the_exchange_with_gloo():
    processes = started(GLOO, ranks=range(4), size=4)
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [out.strip() for out, _ in outputs] == ["right"] * 4, outputs


@pytest.mark.skipif(
    not (importlib.util.find_spec("mpi4py") and shutil.which("mpiexec")),
    reason="mpi4py or mpiexec is not installed",
)
def test_the_exchange_with_mpi():
    found = subprocess.run(
        ["mpiexec", "-n", "4", sys.executable, "-c", MPI],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.stdout.count("right") == 4, found.stderr
