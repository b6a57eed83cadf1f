"""Scaling over threads on the host: rows are complete and right, a wrong result is none, a file is gone on with."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from refused import refused
from scaled import rows

from artifact.distributed import scaling
from artifact.distributed.scaling import OURS, Case, Panels
from artifact.measure import verification
from kernels import distributed
from kernels.distributed import generate, partition
from kernels.formats import csr, half


class Host(distributed.Host):
    """A host that has a GPU's name."""

    device = SimpleNamespace(name="NVIDIA Pretence")
    xp = SimpleNamespace(empty=np.empty, ascontiguousarray=np.ascontiguousarray)
    xp.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)


def fill(panels, begin: int, seed: int) -> None:
    for array, left in zip(panels.arrays, panels.edges, strict=False):
        at = (np.arange(first, first + size) for first, size in zip((begin, left), array.shape, strict=True))
        array[...] = generate.dense(*at, panels.edges[-1], seed)


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    row_ptr = lambda made: np.append(0, np.cumsum(made.lengths(np.arange(made.m))))  # noqa: E731
    for name, what in {
        "edges": lambda made, parts: partition.by_nonzeros(row_ptr(made), parts),
        "part": generate.host_part,
        "fill_dense": fill,
    }.items():
        monkeypatch.setattr(generate, name, what)
    monkeypatch.setattr(scaling, "SAMPLE_MS", 0.1)
    real = scaling.bcsr.random
    monkeypatch.setattr(scaling.bcsr, "random", lambda *given, xp, **more: real(*given, xp=np, **more))


GRAPH, MESH, BLOCK = Case("graph", 7, 16, "float32"), Case("mesh", 6, 16, "float32"), Case("block", 128, 16, "bfloat16")
BEYOND = Case("graph", 7, 16, "float32", degree=32, beyond=True)


def measured(case: Case, ranks: int, *names: str) -> tuple[list, list[str]]:
    """(rows of each rank, what all say)."""
    said: list[str] = []
    work = lambda comm: scaling.measure(case, names or [OURS], Host(), comm, 3, said.append)  # noqa: E731
    return distributed.run_threads(ranks, work), said


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", [GRAPH, MESH, BLOCK, BEYOND], ids=str)
def test_a_contender_is_checked_timed_and_described(ranks, case):
    ((row,), *_), said = measured(case, ranks)
    assert list(row) == list(scaling.COLUMNS) and any("TFLOP/s" in line for line in said)
    assert (row["case"], row["gpus"], row["n"], row["gpu"]) == (case.name, ranks, 16, "NVIDIA Pretence")
    assert 0 < row["q25_ms"] <= row["median_ms"] <= row["q75_ms"] and row["multiplication_ms"] > 0
    assert row["error"] <= scaling.LIMITS[case.dtype] and row["imbalance"] >= 1 and row["nnz"] > 0
    assert row["sent_bytes"] == row["least_bytes"] <= row["gathered_bytes"] and (row["sent_bytes"] > 0) == (ranks > 1)


@pytest.mark.parametrize(
    ("case", "ranks", "value", "sampled", "says"),
    [
        *((case, 1, "another row", 0, "is wrong in row 9: ") for case in (GRAPH, MESH, BLOCK)),
        *((case, 2, "another row", 0, "is wrong in row ") for case in (GRAPH, MESH, BLOCK)),
        (MESH, 1, "a little", 0, "is wrong in row 9: "),
        *((case, 1, "nothing", 0, "is wrong in row 9: ") for case in (MESH, BLOCK)),
        *((case, 1, "nothing at all", 9, "an error of inf at sampled rows") for case in (GRAPH, BLOCK)),
    ],
)
def test_one_wrong_row_of_any_rank_is_found(monkeypatch, case, ranks, value, sampled, says):
    """Whichever it is, and not only where rows are sampled; NaN has no size that a limit could be held against."""
    monkeypatch.setattr(scaling, "SAMPLED", sampled)
    real = distributed.Plan.__call__

    def call(plan, **given):
        out = real(plan, **given)
        if plan.comm.rank == ranks - 1:
            row, nothing = out.arrays[0][9], 0x7FFF if case.dtype == "bfloat16" else np.nan
            wrong = {"another row": out.arrays[0][8], "a little": 1.01 * row}
            (out.arrays[0] if "all" in value else row)[...] = wrong.get(value, nothing)
        return out

    monkeypatch.setattr(distributed.Plan, "__call__", call)
    found, said = measured(case, ranks)
    (line,) = {line for line in said if "not measured" in line}  # all ranks say the same
    assert found == [[]] * ranks and says in line


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("share", [0.5, 1.5])
def test_a_sampled_element_is_held_to_its_limit(dtype, share):
    """Half of the limit more is wrong, half of it less is right."""
    case, limit = Case("block", 3, 16, dtype), scaling.LIMITS[dtype]
    row, b = lambda row: (np.arange(2), np.array([51.0, -49.0])), lambda rows, columns: np.ones((2, columns.size))
    made = SimpleNamespace(part=SimpleNamespace(rows=np.array([0, 3]), consumed=True), row=row, b=b)
    out = half.to_bits(np.full((3, 16), 2 + 100 * limit * share, np.float32), dtype)
    asked = made, case, case.panel(out), distributed.comm.alone()
    if share < 1:
        assert scaling.checked(*asked) == pytest.approx(limit * share, rel=0.1)
    else:
        refused("an error of .* at sampled rows, over", scaling.checked, *asked, kind=verification.WrongResult)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("chunk", [50, 1000, 2**24])
def test_rounding_stays_far_below_what_a_row_may_be_off(monkeypatch, dtype, chunk):
    """Rows of any length and size, in panels, in slabs, in chunks of all sizes."""
    monkeypatch.setattr(scaling, "CHUNK", chunk)
    rng, (m, k, n) = np.random.default_rng(8), (70, 90, 24)
    dense = (rng.normal(size=(m, k)) * (rng.random((m, k)) < 0.3)).astype(np.float32)
    dense[3] = 0
    dense[5] *= 1e6
    a, b = (half.to_bits(x, dtype) for x in (dense, rng.normal(size=(k, n)).astype(np.float32)))
    dense, c = half.from_bits(a, dtype), half.to_bits(half.from_bits(a, dtype) @ half.from_bits(b, dtype), dtype)

    def fill(panels, begin):
        panels.arrays[0][...] = b[begin : begin + panels.arrays[0].shape[0]]

    slabs = [csr.from_scipy(sp.csr_array(dense[x])) for x in (slice(20), slice(20, 21), slice(21, m))]
    made = SimpleNamespace(part=SimpleNamespace(slabs=slabs, k=k, rows=np.array([0, m])), fill=fill)
    case, out = Case("graph", m, n, dtype), Panels((0, 10, n), [c[:, :10].copy(), c[:, 10:].copy()], dtype)
    assert 0 < scaling.off_by(made, case, out)[0] < 0.7
    if dtype == "float32":  # errors that all have the signs of a random vector
        signs = np.random.default_rng(scaling.SEED).choice((-1.0, 1.0), (n, scaling.VECTORS))[:, 0]
        off = c + (3 * scaling.SUMMED * signs * (abs(dense) @ abs(b))).astype(np.float32)
        assert scaling.off_by(made, case, case.panel(off))[0] == pytest.approx(3 * np.sqrt(n) / scaling.SPREAD, rel=0.2)
    out.arrays[1][11] = out.arrays[1][12]
    over, at = scaling.off_by(made, case, out)
    assert over > 2 and at == 11


def test_a_time_is_that_of_the_slowest_rank():
    """In every sample, whoever is slow in it."""
    work = lambda comm: scaling.timed(lambda: time.sleep(0.02 * comm.rank), Host(), comm, 3)  # noqa: E731
    for times in distributed.run_threads(2, work):
        assert 20 <= times["q25_ms"] <= times["median_ms"] <= times["q75_ms"]


def test_contenders_that_do_not_take_a_case_say_so():
    found, said = measured(GRAPH, 2, scaling.DTENSOR, scaling.STREAMED)
    assert found == [[], []] and sum("not measured: " in line for line in said) == 2 * 2


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_sizes_grow_with_the_gpus(ranks):
    """From half of what is the same on all: with two GPUs both are one."""
    every = scaling.cases(ranks, 24, 256, 65536, 512, 8192)
    graph, mesh, block = every[-3:]
    assert {Case("graph", 24, 512, "float32"), Case("mesh", 256, 512, "float32")} <= set(every)
    assert len(every) == len(set(every)) == (3 if ranks == 2 else 6)
    assert 2**graph.size == ranks * 2**23 and block.size == ranks * 32768
    assert mesh.size**3 == pytest.approx(ranks * 256**3 / 2, rel=0.01)


def test_a_file_is_gone_on_with(tmp_path):
    path = tmp_path / "deep" / "scaling.csv"
    assert scaling.read(path).empty
    df = rows()[[*scaling.COLUMNS]].assign(median_ms=1.25)
    scaling.write(path, df)
    pd.testing.assert_frame_equal(scaling.read(path), df, rtol=1e-5)
    scaling.write(path, pd.concat([scaling.read(path), df[:1].assign(median_ms=1.0)]))
    assert sorted(scaling.read(path)["median_ms"]) == [1.0, *[1.25] * (len(df) - 1)]
    path.write_text("a,b\n1,2\n")
    refused("its columns are not case, size", scaling.read, path)


def test_a_run_measures_what_is_missing_and_writes_it(tmp_path, monkeypatch, capsys):
    @contextmanager
    def alone(size=None):
        yield distributed.comm.alone()

    for where, name, what in (
        (distributed, "start", alone),
        (distributed, "Gpu", lambda ordinal: Host()),
        (scaling.device, "describe", lambda device: {"gpu": "NVIDIA Pretence"}),
        (scaling.records, "write_machine", lambda folder, machine: None),
    ):
        monkeypatch.setattr(where, name, what)
    sizes = "--scale 7 --side 6 --rows 128 -n 16 --tokens 16 --contenders ours"
    asked = ["--out", str(tmp_path / "scaling.csv"), *sizes.split()]
    assert scaling.main([*asked, "--cases", "mesh,graph"]) == 0 and scaling.main(asked) == 0
    found = scaling.read(tmp_path / "scaling.csv")
    assert [*zip(found["case"], found["size"], strict=True)] == [
        *(("graph", 7), ("mesh", 6), ("graph", 6), ("mesh", 5), ("block", 128), ("block", 64)),
    ]
    capsys.readouterr()
    assert scaling.main(asked) == 0 and capsys.readouterr().out == ""
    assert scaling.read(tmp_path / "scaling.csv").equals(found)
    assert scaling.main([*asked, "--tokens", "8", "--budget", "-1"]) == 0
    assert "left for another time" in capsys.readouterr().out
