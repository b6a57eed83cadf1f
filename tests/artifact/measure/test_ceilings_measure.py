"""Measured ceilings without a GPU: what is checked, what is read, what is written down."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic
from refused import refused

from artifact.measure import bench, ceilings, records, run, verification
from kernels import ceilings as kernels
from kernels.ceilings import launch as launch_

EXPECTED = np.arange(1, 5, dtype=np.float64)


def test_errors_are_relative_to_the_mean():
    assert ceilings._errors("fma", EXPECTED.astype(np.float32), EXPECTED) == verification.Errors(0.0, 0.0)
    errors = ceilings._errors("fma", (EXPECTED + np.array([0, 0, 0, 1e-3])).astype(np.float32), EXPECTED)
    assert errors[:2] == pytest.approx((1e-3 / 2.5 / 2, 1e-3 / 2.5), rel=1e-3)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0, -4.0, 4.0 * (1 + 3 * kernels.TOLERANCE)], ids=str)
def test_one_wrong_element_is_enough(wrong):
    out = np.float32([*EXPECTED[:3], wrong])
    refused(
        "^microbenchmark copy is off by .*nothing$",
        ceilings._errors,
        "copy",
        out,
        EXPECTED,
        kind=verification.WrongResult,
    )


# ---------------------------------------------------------------- reading and measuring


class Device:
    compute_capability = (9, 0)

    def sync(self) -> None:
        pass

    def create_stream(self):
        return SimpleNamespace(sync=lambda: None, close=lambda: None)


def measured(folder, mode="measure") -> pd.DataFrame:
    made = run.Run("ceilings", mode, mode, "nvidia-h200", "full", 7, folder, synthetic.machine(), Device())
    return ceilings.measure(made)


@pytest.fixture
def microbenchmarks(monkeypatch):
    """Microbenchmarks that take 2 µs; values: name -> what it writes in place of 1, before and after it is timed."""
    values: dict[str, list[float]] = {}

    def prepare(name, device, seed):
        assert seed == 7
        out, writes = np.zeros(8, np.float32), list(values.get(name, [1.0]))

        def launch(stream=None):
            assert np.isnan(out).all(), "an output from before could pass for this launch's"
            out[:] = writes.pop(0) if len(writes) > 1 else writes[0]

        bound = SimpleNamespace(name=name, prepare_ms=0.0, prepare_bytes=0, launch=launch, result=lambda: out)
        if "mma" in name:
            return kernels.Ceiling(bound, 6_000_000, 0, np.ones(8), launch_.MMA_FLOPS, launch_.TENSOR_TOLERANCE)
        return kernels.Ceiling(bound, *((6_000_000, 0) if name == "fma" else (0, 8000)), np.ones(8))

    def time(bounds, device, *, budget_s, verify):
        ((name, bound),) = bounds.items()
        verify(name, bound.launch)
        return {name: bench.Timing(2.0, 1.5, 2.5, 9, 1980.0, math.nan, "", False)}

    monkeypatch.setattr(kernels, "prepare", prepare)
    monkeypatch.setattr(bench, "time", time)
    return values


@pytest.mark.parametrize("mode", ["recorded", "measure"])
def test_what_was_measured_is_read_and_not_measured_again(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(kernels, "prepare", lambda *_: pytest.fail("this must only read"))
    df = measured(synthetic.folder(tmp_path, frames={}) / "ceilings", mode).set_index("variant")
    assert list(df.index) == ["copy", "l2_read", "shared_read", "fma"]
    assert df["gbps"]["copy"] == synthetic.COPY_GBPS and df["tflops"]["fma"] == synthetic.FMA_TFLOPS


def test_a_measurement_is_one_row_per_microbenchmark(tmp_path, microbenchmarks):
    df = measured(tmp_path)
    assert list(df["variant"]) == list(kernels.VARIANTS) and records.read(tmp_path / "ceilings.csv").equals(df)
    assert {*df["seed"]} == {7} and {*df["room"], *df["experiment"]} == {"ceilings"}
    arithmetic, rates = df["variant"].str.contains("mma|fma"), df[["tflops", "gbps"]]
    assert {*rates[arithmetic].itertuples(index=False)} == {(3, 0)} and {
        *rates[~arithmetic].itertuples(index=False)
    } == {(0, 4)}
    assert list(df["variant"][~arithmetic]) == ["copy", "l2_read", "shared_read"]
    said = df.set_index("variant")["flops_def"]
    assert said["fma"] == "2·FMA" and {*said.filter(like="mma").drop("fma", errors="ignore")} == {"2·m·n·k of an MMA"}


OFF = 1 + 5 * kernels.TOLERANCE


@pytest.mark.parametrize(
    ("name", "writes", "right"),
    [
        ("mma", [OFF], True),  # sums of the tensor cores drift by more than what is wrong for the others
        ("wgmma_sp", [OFF], True),
        ("mma", [1.02], False),
        ("fma", [OFF], False),
        ("fma", [1.0, 1.5], False),  # after it was timed
    ],
)
def test_each_microbenchmark_has_a_tolerance_of_its_own(tmp_path, microbenchmarks, name, writes, right):
    microbenchmarks[name] = writes
    if right:
        error = measured(tmp_path).set_index("variant")["max_err"][name]
        assert error == pytest.approx(5 * kernels.TOLERANCE, rel=1e-3)
    else:
        refused(f"microbenchmark {name} is off by", measured, tmp_path, kind=verification.WrongResult)
        assert not list(tmp_path.iterdir())


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
    assert df["promised"][["mma", "wgmma", "wgmma_sp_ra"]].tolist() == pytest.approx([dense, dense, 2 * dense])
    assert df["share"]["wgmma"] == pytest.approx(800 / dense)
    assert df["over_dense"].tolist() == pytest.approx([np.nan, 1.5, np.nan, 1.75, 1.875], nan_ok=True)
    assert df["of_best"].tolist() == pytest.approx([0.75, 1.125, 1.0, 1.75, 1.875])
    assert df["idea"]["wgmma"] == kernels.VARIANTS["wgmma"].idea


def test_a_gpu_without_warpgroups_has_two_rows():
    df = ceilings.tensor_cores(a_record({"mma": 300.0, "mma_sp": 600.0}), H200)
    assert df["variant"].tolist() == ["mma", "mma_sp"] and df["of_best"].tolist() == [1, 2]
