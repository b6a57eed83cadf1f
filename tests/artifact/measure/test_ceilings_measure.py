"""Measured ceilings without a GPU: what is checked, what is read, what is written down."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic

from artifact.measure import bench, ceilings, check, records, run
from kernels import ceilings as kernels
from kernels.ceilings import launch

EXPECTED = np.arange(1, 5, dtype=np.float64)


# ---------------------------------------------------------------- errors


def test_a_right_output_has_small_errors():
    errors = ceilings._errors("fma", EXPECTED.astype(np.float32), EXPECTED)
    assert errors == check.Errors(0.0, 0.0)


def test_errors_are_relative_to_the_mean():
    out = (EXPECTED + np.array([0, 0, 0, 1e-3])).astype(np.float32)
    errors = ceilings._errors("fma", out, EXPECTED)
    assert errors.max_err == pytest.approx(1e-3 / 2.5, rel=1e-3)
    assert errors.rel_err == pytest.approx(1e-3 / 2.5 / 2, rel=1e-3)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0, -4.0, 4.0 * (1 + 3 * kernels.TOLERANCE)], ids=str)
def test_one_wrong_element_is_enough(wrong):
    out = EXPECTED.astype(np.float32)
    out[3] = wrong
    with pytest.raises(check.WrongResult, match="microbenchmark copy is off by") as error:
        ceilings._errors("copy", out, EXPECTED)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- reading and measuring


def a_run(folder, mode: str) -> run.Run:
    return run.Run("ceilings", mode, mode, "nvidia-h200", "full", 7, folder, synthetic.machine(), Device())


class Device:
    compute_capability = (9, 0)

    def sync(self) -> None:
        pass

    def create_stream(self):
        return SimpleNamespace(sync=lambda: None, close=lambda: None)


class Bound:
    """Writes `value` everywhere, as long as someone launches it."""

    prepare_ms, prepare_bytes = 0.0, 0

    def __init__(self, name: str, value: float):
        self.name, self.value, self.output = name, value, np.zeros(8, np.float32)

    def launch(self, stream) -> None:
        assert np.isnan(self.output).all(), "an output from before could pass for this launch's"
        self.output[:] = self.value

    def result(self) -> np.ndarray:
        return self.output


@pytest.fixture
def microbenchmarks(monkeypatch):
    """Microbenchmarks that take 2 µs; name -> what it writes in place of 1."""
    values: dict[str, float] = {}
    seeds = []

    def bind(name, device, seed):
        seeds.append(seed)
        work = Bound(name, values.get(name, 1.0))
        if "mma" in name:
            return kernels.Ceiling(work, 6_000_000, 0, np.ones(8), launch.MMA_FLOPS, launch.TENSOR_TOLERANCE)
        flops, moved = (6_000_000, 0) if name == "fma" else (0, 8000)
        return kernels.Ceiling(work, flops, moved, np.ones(8))

    timing = bench.Timing(2.0, 1.5, 2.5, 9, 1980.0, math.nan, "", False)
    monkeypatch.setattr(kernels, "bind", bind)

    def time(bounds, device, *, budget_s, verify):
        ((name, bound),) = bounds.items()
        later.get(name, lambda bound: None)(bound)
        verify(name, lambda: bound.launch(None))
        return {name: timing}

    later = {}
    monkeypatch.setattr(bench, "time", time)
    return SimpleNamespace(values=values, seeds=seeds, later=later)


@pytest.fixture
def no_launch(monkeypatch):
    monkeypatch.setattr(kernels, "bind", lambda *_: pytest.fail("this must only read"))


def test_recorded_ceilings_are_read(tmp_path, no_launch):
    folder = synthetic.folder(tmp_path, frames={}) / "ceilings"
    df = ceilings.measure(a_run(folder, "recorded")).set_index("variant")
    assert list(df.index) == ["copy", "l2_read", "shared_read", "fma"]
    assert df["gbps"]["copy"] == synthetic.COPY_GBPS and df["tflops"]["fma"] == synthetic.FMA_TFLOPS


def test_what_was_measured_is_not_measured_again(tmp_path, no_launch):
    folder = synthetic.folder(tmp_path, frames={}) / "ceilings"
    assert len(ceilings.measure(a_run(folder, "measure"))) == 4


def test_a_microbenchmark_that_is_wrong_after_timing_is_not_recorded(tmp_path, microbenchmarks):
    microbenchmarks.later["fma"] = lambda bound: setattr(bound, "value", 1.5)
    with pytest.raises(check.WrongResult, match="microbenchmark fma is off by"):
        ceilings.measure(a_run(tmp_path, "measure"))
    assert not list(tmp_path.iterdir())


def test_a_measurement_is_one_row_per_microbenchmark(tmp_path, microbenchmarks):
    df = ceilings.measure(a_run(tmp_path, "measure"))
    assert list(df.columns) == list(records.COLUMNS)
    assert list(df["variant"]) == list(kernels.VARIANTS)
    assert microbenchmarks.seeds == [7] * len(kernels.VARIANTS) and set(df["seed"]) == {7}
    assert set(df["room"]) == set(df["experiment"]) == {"ceilings"}
    rates = df.set_index("variant")[["tflops", "gbps", "flops_def"]]
    arithmetic = ["fma", "mma", "mma_sp", "wgmma", "wgmma_sp", "wgmma_sp_ra"]
    assert rates["tflops"].to_dict() == dict.fromkeys(kernels.VARIANTS, 0) | dict.fromkeys(
        arithmetic, pytest.approx(3.0)
    )
    assert rates["gbps"].to_dict() == dict.fromkeys(arithmetic, 0) | dict.fromkeys(
        ("copy", "l2_read", "shared_read"), pytest.approx(4.0)
    )
    assert rates["flops_def"]["fma"] == "2·FMA"
    assert set(rates["flops_def"][arithmetic[1:]]) == {"2·m·n·k of an MMA"}
    assert records.read(tmp_path / "ceilings.csv").equals(df)


def test_each_microbenchmark_has_a_tolerance_of_its_own(tmp_path, microbenchmarks):
    """Sums of the tensor cores drift by more than what is wrong for the others."""
    off = 1 + 5 * kernels.TOLERANCE
    microbenchmarks.values |= {"mma": off, "wgmma_sp": off}
    df = ceilings.measure(a_run(tmp_path, "measure")).set_index("variant")
    assert df["max_err"]["mma"] == pytest.approx(5 * kernels.TOLERANCE, rel=1e-3)
    for name in ("mma", "fma"):
        values = {"mma": 1.02, "fma": off}
        microbenchmarks.values.clear()
        microbenchmarks.values[name] = values[name]
        with pytest.raises(check.WrongResult, match=f"microbenchmark {name} is off"):
            ceilings.measure(a_run(tmp_path / name, "measure"))


# ---------------------------------------------------------------- tensor cores

H200 = {"compute_capability": "9.0", "sm_count": 132, "sm_mhz_max": 1980}


def a_record(rates: dict[str, float], sm_mhz=1500.0):
    df = synthetic.ceilings()
    row = df.iloc[0].to_dict()
    rows = [row | {"variant": v, "tflops": t, "sm_mhz": sm_mhz} for v, t in rates.items()]
    return pd.concat([df, pd.DataFrame(rows)], ignore_index=True)


def test_tensor_cores_beside_what_is_promised_and_beside_each_other():
    rates = {"mma": 600.0, "mma_sp": 900.0, "wgmma": 800.0, "wgmma_sp": 1400.0, "wgmma_sp_ra": 1500}
    df = ceilings.tensor_cores(a_record(rates), H200).set_index("variant")
    assert df["measured"].to_dict() == rates
    dense = 4096 * 132 * 1500 / 1e6
    assert df["promised"]["wgmma"] == df["promised"]["mma"] == pytest.approx(dense)
    assert df["promised"]["wgmma_sp_ra"] == pytest.approx(2 * dense)
    assert df["share"]["wgmma"] == pytest.approx(800 / dense)
    assert df["over_dense"][["mma_sp", "wgmma_sp", "wgmma_sp_ra"]].tolist() == pytest.approx([1.5, 1.75, 1.875])
    assert df["over_dense"][["mma", "wgmma"]].isna().all()
    assert df["of_best"].tolist() == pytest.approx([0.75, 1.125, 1.0, 1.75, 1.875])
    assert df["idea"]["wgmma"] == kernels.VARIANTS["wgmma"].idea


def test_a_gpu_without_warpgroups_has_two_rows():
    df = ceilings.tensor_cores(a_record({"mma": 300.0, "mma_sp": 600.0}), H200)
    assert df["variant"].tolist() == ["mma", "mma_sp"] and df["of_best"].tolist() == [1, 2]


# ---------------------------------------------------------------- the columns of the record


def test_bytes_and_flops_become_rates():
    work = ceilings._as_problem("x", kernels.Ceiling(None, 3_000_000, 8000, None), 0)
    timing = bench.Timing(2.0, 1.5, 2.5, 9, 1980.0, math.nan, "", False)
    row = run.row(work, "x", "ceilings", run.Prepared(0, 0), check.Errors(0, 0), timing, gpu="G", when="now")
    assert row["tflops"] == pytest.approx(1.5) and row["gbps"] == pytest.approx(4.0)
    assert set(row) == set(records.COLUMNS)
