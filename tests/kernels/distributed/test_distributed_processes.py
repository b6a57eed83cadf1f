"""Real processes: what one does when another dies, and exchanges with gloo and with MPI where they are installed."""

import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from artifact.paths import ROOT
from kernels import distributed
from kernels.distributed import comm

#: Of one that has imported nearly everything.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "kernels.distributed"])
#: What strangers say; the last one nothing.
LINES = (b"\n", b"GET / HTTP/1.1\n", b"\xff" * 9999 + b"\n", b"rank 9 of 3\n", b"rank " + b"9" * 9999 + b" of 3\n", b"")


def watched(errors: Path, environment: dict[str, str], how: str, arrival: float) -> None:
    """A rank's process; of three, the last one dies as `how` says, or "first" of them; "well" all end one by one."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    os.environ.update(environment)
    at = distributed.place()
    comm.ECHO *= 9 if "echoes" in how else 1
    with comm.watched(at, arrival=arrival):
        if "echoes" in how and at.rank == 1:
            raise ValueError("what another's death made")
        time.sleep(0.3)
        if at.rank == (0 if "first" in how else 2):
            if "killed" in how:
                os.kill(os.getpid(), signal.SIGKILL)
            if "raises" in how:
                raise ValueError("row 3 is wrong")
            if "says why" in how:
                sys.exit("no more data")
        if how == "says well":
            sys.exit(at.rank and None)
        time.sleep(at.rank / 2 if how == "well" else 60)
    time.sleep(at.rank / 4)  # rank 0 ends before


class Job:
    """Ranks that are started one by one; at a port that is free, and the next one, they find each other."""

    def __init__(self, folder: Path):
        self.folder, self.every = folder, []
        with socket.socket() as found:
            found.bind(("", 0))
            self.port = found.getsockname()[1]

    def start(self, how: str, *ranks: int, size: int = 3, arrival: float = 40, **environment: str) -> None:
        for rank in ranks:
            here = {"RANK": f"{rank}", "WORLD_SIZE": f"{size}", "LOCAL_RANK": f"{rank}", "MASTER_PORT": f"{self.port}"}
            errors = self.folder / f"{len(self.every)}"
            process = PROCESSES.Process(target=watched, args=(errors, here | environment, how, arrival))
            process.start()
            self.every.append((process, errors))

    def ended(self) -> tuple[list[int], list[str]]:
        """(exit codes, lines on stderr of all)."""
        for process, _ in self.every:
            process.join(60)
        lines = [line for _, errors in self.every for line in errors.read_text().splitlines()]
        return [process.exitcode for process, _ in self.every], lines


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("first is killed", f"rank 0 died: {comm.SILENT}"),
        ("killed", f"rank 2 died: {comm.SILENT}"),
        ("killed, and another echoes it", f"rank 2 died: {comm.SILENT}"),
        ("first raises", "rank 0 died: ValueError: row 3 is wrong"),
        ("raises", "rank 2 died: ValueError: row 3 is wrong"),
        ("says why", "rank 2 died: SystemExit: no more data"),
    ],
)
def test_a_rank_that_dies_ends_all_within_20_s_with_one_sentence(job, how, why):
    begin = time.monotonic()
    job.start(how, 0, 1, 2)
    codes, lines = job.ended()
    assert time.monotonic() - begin < 20
    assert lines == [f"error: {why}"] and all(codes)


@pytest.mark.parametrize(("how", "host"), [("well", "localhost"), ("says well", "127.0.0.2")])
def test_ranks_that_end_well_end_well_whatever_strangers_say(job, how, host):
    """Rank 0 listens on its host alone, unless MASTER_ADDR names it otherwise; who says nothing holds nobody up."""
    job.start(how, 0, MASTER_ADDR=host)
    strangers, deadline = [], time.monotonic() + 30
    while not strangers and time.monotonic() < deadline:
        try:
            strangers = [socket.create_connection(("127.0.0.1", job.port + 1)) for _ in LINES]
        except OSError:
            time.sleep(0.05)
    for stranger, said in zip(strangers, LINES, strict=True):
        stranger.sendall(said)
    with socket.socket() as other:
        assert (other.connect_ex(("127.0.0.2", job.port + 1)) != 0) == (host == "localhost")
    job.start(how, 1, 2, MASTER_ADDR=host)
    begin = time.monotonic()
    assert job.ended() == ([0, 0, 0], []) and time.monotonic() - begin < comm.SILENCE


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        ([(0, 3), (1, 3)], "2 of 3 ranks came within 3 s, rank 2 did not: start 3 processes"),
        ([(0, 2), (1, 3)], "rank 1 was started as one of 3, but rank 0 as one of 2"),
        ([(0, 3), (1, 3), (1, 3)], "rank 1 was started twice"),
        ([(1, 2)], "rank 1 did not reach rank 0 at localhost:"),
    ],
)
def test_ranks_that_are_not_all_there_or_disagree_are_one_sentence(job, ranks, says):
    for rank, size in ranks:
        job.start("waits", rank, size=size, arrival=3)
    codes, (line,) = job.ended()
    assert set(codes) == {comm.CODE} and says in line


def test_where_the_launcher_ends_all_a_rank_says_why_and_exits(job):
    """No other is there, and none is waited for."""
    job.start("raises", 2, TORCHELASTIC_RUN_ID="none", LOCAL_WORLD_SIZE="3")
    assert job.ended() == ([comm.CODE], ["error: rank 2 died: ValueError: row 3 is wrong"])


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "none"}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


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
    assert distributed.place({}) == distributed.comm.Place(0, 1, 0)


@pytest.mark.parametrize(("rank", "says"), [("2", "RANK is 2, but ranks of WORLD_SIZE = 2"), ("x", "must be numbers")])
def test_a_place_that_is_none(monkeypatch, rank, says):
    for name, value in {"RANK": rank, "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=says), distributed.start(gpu=False):
        pass


def test_a_rank_alone_is_not_watched_and_another_world_size_is_refused():
    with distributed.start(gpu=False) as ranks:
        assert (ranks.rank, ranks.size, ranks.gather(3)) == (0, 1, [3])
    with pytest.raises(ValueError, match="there are 1 processes, but 4 are asked for"), distributed.start(size=4):
        pass


@pytest.mark.parametrize(
    ("needs", "command"),
    [
        ("torch", [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]),
        ("mpi4py", ["mpiexec", "-n"]),
    ],
)
def test_the_exchange_between_processes_without_a_gpu(needs, command):
    pytest.importorskip(needs)
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    python = [sys.executable] * (needs == "mpi4py")
    script = Path(__file__).with_name("several_gpus.py")
    env = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    asked = [*command, "4", *python, str(script), "--host", needs]
    found = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0 and found.stdout.count("'replicas': 2") > 1, found.stderr
