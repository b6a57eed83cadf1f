"""Scaling over threads on the host: rows are complete and right, a wrong result is none, a file is gone on with."""

from __future__ import annotations

import types
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from artifact.distributed import scaling
from artifact.distributed.scaling import Case, Row
from kernels import distributed
from kernels.distributed import generate, partition


class Host(distributed.Host):
    """A host that has a GPU's name."""

    device = types.SimpleNamespace(name="NVIDIA Pretence")

    def __init__(self):
        pool = types.SimpleNamespace(free_all_blocks=lambda: None)
        names = {name: getattr(np, name) for name in ("empty", "ascontiguousarray")}
        self.xp = types.SimpleNamespace(get_default_memory_pool=lambda: pool, **names)


def fill(panels, begin: int, seed: int) -> None:
    for array, left in zip(panels.arrays, panels.edges, strict=False):
        rows = np.arange(begin, begin + array.shape[0])
        columns = np.arange(left, left + array.shape[1])
        array[...] = generate.dense(rows, columns, panels.edges[-1], seed)


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    def edges(made, parts):
        lengths = made.lengths(np.arange(made.m))
        return partition.by_nonzeros(np.concatenate([[0], np.cumsum(lengths)]), parts)

    monkeypatch.setattr(generate, "edges", edges)
    monkeypatch.setattr(generate, "part", generate.host_part)
    monkeypatch.setattr(generate, "fill_dense", fill)
    monkeypatch.setattr(scaling, "SAMPLE_MS", 0.1)
    real = scaling.bcsr.random
    monkeypatch.setattr(
        scaling.bcsr, "random", lambda *given, xp, **more: real(*given, xp=np, **more)
    )


SMALL = [
    Case("graph", 7, 16, "float32"),
    Case("mesh", 6, 16, "float32"),
    Case("block", 256, 16, "bfloat16"),
    Case("graph", 7, 16, "float32", degree=32, beyond=True),
]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_a_contender_is_checked_timed_and_described(ranks, case):
    said = []

    def work(comm):
        return scaling.measure(case, [scaling.OURS], Host(), comm, 3, said.append)

    rows = distributed.run_threads(ranks, work)
    (row,) = rows[0]
    assert (row.case, row.gpus, row.n, row.gpu) == (case.name, ranks, 16, "NVIDIA Pretence")
    assert row.q25_ms <= row.median_ms <= row.q75_ms and row.median_ms > 0
    assert row.multiplication_ms > 0 and row.error <= scaling.LIMITS[case.dtype]
    assert row.sent_bytes == row.least_bytes <= row.gathered_bytes
    assert (row.sent_bytes > 0) == (ranks > 1)
    assert row.imbalance >= 1 and row.nnz > 0
    assert any("TFLOP/s" in line for line in said)


def test_a_wrong_result_is_not_recorded(monkeypatch):
    said = []
    monkeypatch.setattr(generate, "expected", lambda *given: (np.ones(4), np.ones(4)))
    monkeypatch.setattr(scaling, "SAMPLED_COLUMNS", 2)

    def work(comm):
        rng = np.random.default_rng
        monkeypatch.setattr(np.random, "default_rng", lambda seed: rng(0))
        return scaling.measure(SMALL[1], [scaling.OURS], Host(), comm, 3, said.append)

    assert distributed.run_threads(1, work) == [[]]
    assert any("not measured" in line and "error" in line for line in said)


def test_contenders_that_do_not_take_a_case_say_so():
    said = []

    def work(comm):
        return scaling.measure(
            SMALL[0], [scaling.DTENSOR, scaling.STREAMED], Host(), comm, 3, said.append
        )

    assert distributed.run_threads(2, work) == [[], []]
    assert sum("not measured: " in line for line in said) == 2 * 2


def test_sizes_grow_with_the_gpus():
    for ranks in (1, 2, 4):
        every = scaling.cases(ranks, 24, 256, 65536, 512, 8192)
        assert Case("graph", 24, 512, "float32") in every
        assert Case("mesh", 256, 512, "float32") in every
        assert Case("graph", 23 + int(np.log2(ranks)), 512, "float32") in every
        assert len(every) == len(set(every)) == (3 if ranks == 2 else 6)
    sides = [scaling.cases(p, 24, 256, 65536, 512, 8192)[-2].size for p in (1, 4)]
    assert sides[1] ** 3 == pytest.approx(4 * sides[0] ** 3, rel=0.02)


ROW = Row(
    "graph", 7, "ours", 2, 128, 128, 16, 999, "float32", 1.5, 1.25, 2.0, 5, 0.5, 0.25, 1.0, 1.125, 64, 64, 128, 1e-7,
    0.5, 4, "union rows=1", "NVIDIA Pretence", "2026-01-01T00:00:00+00:00",
)  # fmt: skip


def test_a_file_is_gone_on_with(tmp_path):
    path = tmp_path / "deep" / "scaling.csv"
    assert scaling.read(path) == []
    scaling.write(path, [ROW, replace(ROW, gpus=1)])
    assert scaling.read(path) == [ROW, replace(ROW, gpus=1)]
    again = replace(ROW, median_ms=1.0)
    scaling.write(path, [*scaling.read(path), again])
    assert scaling.read(path) == [again, replace(ROW, gpus=1)]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="its columns are not case, size"):
        scaling.read(path)


def test_a_run_measures_what_is_missing_and_writes_it(tmp_path, monkeypatch, capsys):
    out = tmp_path / "scaling.csv"
    machine = {
        "gpu": "NVIDIA Pretence",
        "slug": "nvidia-pretence",
        "date": "2026-01-01",
        "commit": "0",
    }

    @contextmanager
    def alone(size=None):
        yield distributed.comm.Alone()

    monkeypatch.setattr(distributed, "start", alone)
    monkeypatch.setattr(distributed, "Gpu", lambda ordinal: Host())
    monkeypatch.setattr(scaling.gpus, "describe", lambda device: machine)
    monkeypatch.setattr(scaling.records, "write_machine", lambda folder, machine: None)
    sizes = "--scale 7 --side 6 --rows 256 -n 16 --tokens 16 --contenders ours"
    asked = ["--out", str(out), *sizes.split()]
    assert scaling.main(asked) == 0
    found = scaling.read(out)
    assert [(row.case, row.size) for row in found] == [
        ("graph", 7), ("mesh", 6), ("block", 256), ("graph", 6), ("mesh", 5), ("block", 128),
    ]  # fmt: skip
    capsys.readouterr()
    assert scaling.main(asked) == 0 and capsys.readouterr().out == ""
    assert scaling.read(out) == found
    assert scaling.main([*asked, "--tokens", "8", "--budget", "-1"]) == 0
    assert "left for another time" in capsys.readouterr().out
