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
from kernels import distributed

WATCHED = """
import os, signal, sys, time
from kernels.distributed import comm, faults
at = comm.place()
how, who = sys.argv[1], int(sys.argv[2])
with faults.watched(at, arrival=float(os.environ.get("ARRIVAL", 40))):
    time.sleep(0.3)
    if at.rank == who:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "raises":
            raise ValueError("row 3 is wrong")
        if how == "says why":
            sys.exit("no more data")
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
    print("right")
"""
GLOO = f"""{PRODUCT}
with distributed.start(size=4, gpu=False) as ranks:
    check(ranks)
"""
MPI = f"""{PRODUCT}
from mpi4py import MPI
from kernels.distributed.comm import Mpi
check(Mpi(MPI.COMM_WORLD))
"""
#: What strangers say; the last one nothing.
LINES = (b"{}\n[1]\n", b"GET / HTTP/1.1\n" + b"[" * 9999 + b"\n", b'{"rank": 9, "size": 3}\n', b"")
SILENT = "its process ended without a word (killed, out of memory, or a crash)"


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
    common = {"MASTER_PORT": str(port()), "WORLD_SIZE": str(size), "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    common = os.environ | common | more
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


@pytest.mark.parametrize(
    ("how", "who", "why"),
    [
        ("killed", 0, SILENT),
        ("killed", 2, SILENT),
        ("raises", 0, "ValueError: row 3 is wrong"),
        ("raises", 2, "ValueError: row 3 is wrong"),
        ("says why", 1, "SystemExit: no more data"),
    ],
)
def test_a_rank_that_dies_ends_all_within_20_s_with_one_sentence(how, why, who):
    begin = time.monotonic()
    codes, lines = ended(started(WATCHED, how, who, ranks=range(3), size=3))
    assert time.monotonic() - begin < 20 + 10  # to start three processes
    assert lines == [f"error: rank {who} died: {why}"]
    assert all(code != 0 for code in codes)


@pytest.mark.parametrize(("how", "host"), [("well", "localhost"), ("says well", "127.0.0.2")])
def test_ranks_that_end_well_end_well_whatever_strangers_say(how, host):
    """Rank 0 listens on its host alone, unless MASTER_ADDR names it otherwise; who says nothing holds nobody up."""
    number = port()
    first = started(WATCHED, how, 9, ranks=[0], size=3, MASTER_PORT=str(number), MASTER_ADDR=host)
    strangers, deadline = [], time.monotonic() + 30
    while not strangers and time.monotonic() < deadline:
        try:
            strangers = [socket.create_connection(("127.0.0.1", number + 1)) for _ in LINES]
        except OSError:
            time.sleep(0.05)
    for stranger, said in zip(strangers, LINES, strict=True):
        stranger.sendall(said)
    with socket.socket() as other:
        refused = other.connect_ex(("127.0.0.2", number + 1)) != 0
    more = started(WATCHED, how, 9, ranks=[1, 2], size=3, MASTER_PORT=str(number), MASTER_ADDR=host)
    assert ended([*first, *more]) == ([0, 0, 0], [])
    assert refused == (host == "localhost")
    for stranger in strangers:
        stranger.close()


def test_a_world_size_that_is_not_there_is_one_sentence():
    codes, lines = ended(started(WATCHED, "well", 0, ranks=range(2), size=3, ARRIVAL="6"))
    assert codes == [70, 70]
    assert "2 did not: start 3 processes, or say another world size" in lines[0] and "came within 6 s" in lines[0]


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        ([(0, 2), (1, 3)], "rank 1 was started as one of 3, but rank 0 as one of 2"),
        ([(0, 3), (1, 3), (1, 3)], "rank 1 was started twice"),
    ],
)
def test_ranks_that_disagree(ranks, says):
    number = str(port())
    every = [started(WATCHED, "well", 0, ranks=[rank], size=size, MASTER_PORT=number) for rank, size in ranks]
    codes, lines = ended([process for (process,) in every])
    assert set(codes) == {70} and len(lines) == 1 and says in lines[0]


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("environment", "ended"),
    [
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "2"}, True),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "1"}, False),  # over two hosts
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, False),
        (MPIRUN | SLURM, True),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, False),
        (SLURM | {"SLURM_KILL_BAD_EXIT": "0"}, False),
    ],
)
def test_what_started_the_processes_ends_them_or_a_watch_does(environment, ended):
    assert distributed.place(environment) == distributed.comm.Place(1, 2, 1, ended)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK is 2, but ranks of WORLD_SIZE = 2 are 0 to 1"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "must be numbers: start the processes with torchrun"),
    ],
)
def test_a_place_that_is_none(environment, says):
    assert distributed.place({}).size == 1
    with pytest.raises(ValueError, match=says):
        distributed.place(environment)


def test_where_the_launcher_ends_all_a_rank_says_why_and_exits():
    """No other is there, and none is waited for."""
    alone = started(WATCHED, "raises", 1, ranks=[1], size=2, TORCHELASTIC_RUN_ID="none", LOCAL_WORLD_SIZE="2")
    assert ended(alone) == ([70], ["error: rank 1 died: ValueError: row 3 is wrong"])


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch is not installed")
def test_the_exchange_with_gloo():
    processes = started(GLOO, ranks=range(4), size=4)
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [out.strip() for out, _ in outputs] == ["right"] * 4, outputs


@pytest.mark.skipif(not (importlib.util.find_spec("mpi4py") and shutil.which("mpiexec")), reason="MPI is not installed")
def test_the_exchange_with_mpi():
    command = ["mpiexec", "-n", "4", sys.executable, "-c", MPI]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert found.stdout.count("right") == 4, found.stderr
