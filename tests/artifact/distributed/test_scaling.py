"""Scaling over threads on the host: rows are complete and right, a wrong result is none, a file is gone on with."""

from __future__ import annotations

import types
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from scaled import rows

from artifact.distributed import scaling
from artifact.distributed.scaling import Case
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
    monkeypatch.setattr(scaling.bcsr, "random", lambda *given, xp, **more: real(*given, xp=np, **more))


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
    assert list(row) == list(scaling.COLUMNS)
    assert (row["case"], row["gpus"], row["n"], row["gpu"]) == (case.name, ranks, 16, "NVIDIA Pretence")
    assert row["q25_ms"] <= row["median_ms"] <= row["q75_ms"] and row["median_ms"] > 0
    assert row["multiplication_ms"] > 0 and row["error"] <= scaling.LIMITS[case.dtype]
    assert row["sent_bytes"] == row["least_bytes"] <= row["gathered_bytes"]
    assert (row["sent_bytes"] > 0) == (ranks > 1)
    assert row["imbalance"] >= 1 and row["nnz"] > 0
    assert any("TFLOP/s" in line for line in said)


def refused(case, ranks, spoil, monkeypatch) -> str:
    """Why our plan is not measured where `spoil` changes the rows of C of a rank: (rank, array, first row)."""
    said = []
    real = distributed.plan

    def planned(part, n, comm, **more):
        plan = real(part, n, comm, **more)

        def call(**given):
            out = plan(**given)
            spoil(comm.rank, out.arrays[0], plan.c_rows[0])
            return out

        call.__dict__.update(vars(plan))
        call.operand, call.result = plan.operand, plan.result
        return call

    monkeypatch.setattr(distributed, "plan", planned)
    found = distributed.run_threads(
        ranks, lambda comm: scaling.measure(case, [scaling.OURS], Host(), comm, 3, said.append)
    )
    assert found == [[]] * ranks
    lines = [line for line in said if "not measured" in line]
    assert len(set(lines)) == 1, "all ranks say the same"
    return lines[0]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", SMALL[:3], ids=lambda case: case.name)
def test_one_wrong_row_of_any_rank_is_found(monkeypatch, case, ranks):
    """Whichever it is, and not only where rows are sampled: none are here."""
    monkeypatch.setattr(scaling, "SAMPLED", 0)

    def spoil(rank, out, first):
        if rank == ranks - 1:
            out[5] = out[6]

    line = refused(case, ranks, spoil, monkeypatch)
    assert "is wrong in row" in line and ("is wrong in row 5: " in line or ranks > 1)


@pytest.mark.parametrize(
    ("value", "case", "sampled"), [(0x7FFF, 2, 0), (0x7FFF, 2, 1000), (np.nan, 0, 1000), (np.nan, 1, 0), (None, 1, 0)]
)
def test_what_nobody_wrote_is_wrong_and_so_is_one_element(monkeypatch, case, value, sampled):
    """NaN has no size that a limit could be held against."""
    monkeypatch.setattr(scaling, "SAMPLED", sampled)

    def spoil(rank, out, first):
        if value is None:
            out[9, 2] *= 1.01
        else:
            out[9] = value

    line = refused(SMALL[case], 1, spoil, monkeypatch)
    assert ("an error of inf at sampled rows" if sampled else "is wrong in row 9: ") in line


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sampled_element_is_held_to_its_limit(monkeypatch, dtype):
    """Half of the limit more is wrong, half of it less is right."""
    limit = {"float32": 2e-6, "bfloat16": 1e-2}[dtype]
    part = types.SimpleNamespace(rows=np.array([0, 3]), consumed=True)
    for share, right in ((0.5, True), (1.5, False)):
        made = types.SimpleNamespace(
            part=part, expected=lambda row, columns: (np.full(columns.size, 2.0), np.full(columns.size, 100.0))
        )
        value = 2 + 100 * limit * share
        out = np.full((3, 16), value, np.float32)
        if dtype == "bfloat16":
            out = scaling.half.to_bits(out, dtype)
        case = Case("block", 3, 16, dtype)
        asked = made, case, scaling.Panels((0, 16), [out]), distributed.comm.alone()
        if right:
            assert scaling.checked(*asked) == pytest.approx(limit * share, rel=0.1)
        else:
            with pytest.raises(scaling.Wrong, match="an error of .* at sampled rows, over"):
                scaling.checked(*asked)


def stored(x, dtype: str):
    return x if dtype == "float32" else scaling.half.to_bits(x, dtype)


def numbers(x, dtype: str):
    return x if dtype == "float32" else scaling.half.from_bits(x, dtype)


def slab(dense: np.ndarray) -> scaling.csr.Csr:
    row, col = np.nonzero(dense)
    row_ptr = np.searchsorted(row, np.arange(len(dense) + 1)).astype(np.int32)
    return scaling.csr.Csr(*dense.shape, row_ptr, col.astype(np.int32), dense[row, col])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("chunk", [50, 1000, 2**24])
def test_rounding_stays_far_below_what_a_row_may_be_off(monkeypatch, dtype, chunk):
    """Rows of any length and size, in panels, in slabs, in chunks of all sizes."""
    monkeypatch.setattr(scaling, "CHUNK", chunk)
    rng = np.random.default_rng(8)
    m, k, n = 70, 90, 24
    dense = (rng.normal(size=(m, k)) * (rng.random((m, k)) < 0.3)).astype(np.float32)
    dense[3] = 0
    dense[5] *= 1e6
    dense, b = (numbers(stored(x, dtype), dtype) for x in (dense, rng.normal(size=(k, n)).astype(np.float32)))

    def fill(panels, begin):
        panels.arrays[0][...] = stored(b[begin : begin + panels.arrays[0].shape[0]], dtype)

    slabs = [slab(dense[:20]), slab(dense[20:21]), slab(dense[21:])]
    part = types.SimpleNamespace(slabs=slabs, k=k, rows=np.array([0, m]))
    made = types.SimpleNamespace(part=part, fill=fill)
    case, c = Case("graph", m, n, dtype), stored(dense @ b, dtype)
    out = scaling.Panels((0, 10, n), [c[:, :10].copy(), c[:, 10:].copy()])
    over, _ = scaling.off_by(made, case, out)
    assert 0 < over < 0.7
    out.arrays[1][11] = out.arrays[1][12]
    over, at = scaling.off_by(made, case, out)
    assert over > 2 and at == 11


def test_a_time_is_that_of_the_slowest_rank():
    """In every sample, whoever is slow in it."""
    import time

    def work(comm):
        slow = 0.02 if comm.rank == 1 else 0.0
        return scaling.timed(lambda: time.sleep(slow), Host(), comm, 3)

    for times in distributed.run_threads(2, work):
        assert 20 <= times["q25_ms"] <= times["median_ms"] <= times["q75_ms"]


def test_contenders_that_do_not_take_a_case_say_so():
    said = []

    def work(comm):
        return scaling.measure(SMALL[0], [scaling.DTENSOR, scaling.STREAMED], Host(), comm, 3, said.append)

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


def test_a_file_is_gone_on_with(tmp_path):
    path = tmp_path / "deep" / "scaling.csv"
    assert scaling.read(path).empty
    df = rows()[[*scaling.COLUMNS]].assign(median_ms=1.25)
    scaling.write(path, df)
    pd.testing.assert_frame_equal(scaling.read(path), df, rtol=1e-5)
    scaling.write(path, pd.concat([scaling.read(path), df[:1].assign(median_ms=1.0)]))
    found = scaling.read(path)
    assert len(found) == len(df) and (found["median_ms"] == 1.0).sum() == 1
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
        yield distributed.comm.alone()

    monkeypatch.setattr(distributed, "start", alone)
    monkeypatch.setattr(distributed, "Gpu", lambda ordinal: Host())
    monkeypatch.setattr(scaling.device, "describe", lambda device: machine)
    monkeypatch.setattr(scaling.records, "write_machine", lambda folder, machine: None)
    sizes = "--scale 7 --side 6 --rows 256 -n 16 --tokens 16 --contenders ours"
    asked = ["--out", str(out), *sizes.split()]
    assert scaling.main(asked) == 0
    found = scaling.read(out)
    assert [(row.case, row.size) for row in found.itertuples()] == [
        ("graph", 7),
        ("mesh", 6),
        ("block", 256),
        ("graph", 6),
        ("mesh", 5),
        ("block", 128),
    ]
    capsys.readouterr()
    assert scaling.main(asked) == 0 and capsys.readouterr().out == ""
    assert scaling.read(out).equals(found)
    assert scaling.main([*asked, "--tokens", "8", "--budget", "-1"]) == 0
    assert "left for another time" in capsys.readouterr().out
