"""The machine's roofs: what is promised, what was measured, and where the records lie under them."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import synthetic
from drawn import words

from artifact.drawing.pages import machine as roofs
from artifact.measure import records

H200 = {
    "compute_capability": "9.0",
    "sm_count": 132,
    "sm_mhz_max": 1980,
    "memory_bus_bits": 6144,
    "memory_mhz_max": 3201,
}


def peaks(machine=H200, mhz=1980.0) -> pd.Series:
    return roofs.peaks(machine, pd.Series(float(mhz), list(roofs.ROOFS)))


def test_peaks_of_an_h200():
    assert peaks()[["copy", "shared_read", "fma"]].tolist() == pytest.approx([4916.7, 33454, 66.9], rel=1e-3)
    assert math.isnan(peaks()["l2_read"])


def test_a_machine_that_does_not_say_enough_promises_nothing():
    assert peaks({"compute_capability": "9.0"}, math.nan).isna().all()


def test_roofs_beside_what_is_promised():
    df = roofs.roofs(synthetic.ceilings(), H200).set_index("variant")
    assert list(df.index) == [*roofs.ROOFS]
    assert df["measured"].to_dict() == {"copy": 4000, "l2_read": 8000, "shared_read": 32000, "fma": 60}
    assert df["balance"]["copy"] == pytest.approx(60e12 / 4000e9)
    assert df["share"]["copy"] == pytest.approx(4000 / 4916.7, rel=1e-4)
    assert df["share"]["fma"] == pytest.approx(60 / 66.9, rel=1e-3)
    assert math.isnan(df["promised"]["l2_read"]) and math.isnan(df["balance"]["fma"])
    assert df["spread"].tolist() == pytest.approx([0.02] * 4)
    assert set(df["unit"]) == {"GB/s", "TFLOP/s"} and df["unit"]["fma"] == "TFLOP/s"


def test_the_roofline_and_its_data(gpu_folder):
    here = roofs.intensities(gpu_folder)
    assert set(here) == {"CSR, requested bytes", "CSR, least bytes"}
    fig, data = roofs.roofline(roofs.roofs(synthetic.ceilings(), H200), here)
    at = data[data["what"] == "DRAM copy"].iloc[0]
    assert (at["flop_per_byte"], at["tflops"]) == (pytest.approx(15), 60)
    ends = data[data["what"] == "CSR, least bytes"]["flop_per_byte"].tolist()
    assert ends == list(here["CSR, least bytes"])
    assert {"FP32 FMA 60.0 TFLOP/s", "DRAM copy 4.00 TB/s"} <= set(words(fig))
    fig, data = roofs.roofline(roofs.roofs(synthetic.ceilings(), H200), {})
    assert len(data) == 4 and (data["flop_per_byte"] > 0).all()


def test_intensities_tell_formats_apart_and_leave_tensor_cores_out(gpu_folder):
    alone = roofs.intensities(gpu_folder)
    for room in ("nm_cuda_core", "nm_spmm", "tensor_core_24"):
        df = synthetic.experiment("square", room=room)
        records.write(gpu_folder / room / "square.csv", df)
    both = roofs.intensities(gpu_folder)
    assert set(both) - set(alone) == {
        f"{format}, {kind} bytes" for format in ("2:4", "N:M vectors") for kind in ("requested", "least")
    }
    assert {name: both[name] for name in alone} == alone
    fig, data = roofs.roofline(roofs.roofs(synthetic.ceilings(), H200), both)
    assert len(data) == 4 + 2 * 6
    bars = [line.get_ydata()[0] for line in fig.axes[0].lines if line.get_linewidth() == 5]
    bottom = fig.axes[0].get_ylim()[0]
    assert len(set(bars)) == 6 and all(bottom < y < 6 * bottom for y in bars)
