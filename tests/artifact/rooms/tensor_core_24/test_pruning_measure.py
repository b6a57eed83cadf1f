"""The time of pruning and compressing without a GPU: what is checked, what is read, what is written down."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import synthetic

from artifact.measure import bench, check, records, run
from artifact.rooms.tensor_core_24 import experiments
from kernels.formats import two_four
from kernels.tensor_core_24 import operands
from kernels.tensor_core_24 import pruning as kernels

SIZES = {"full": (32, 80), "kick": (32,)}


def a_run(folder, mode: str = "measure", preset: str = "full", seed: int = 7) -> run.Run:
    room = "tensor_core_24"
    device = SimpleNamespace(
        sync=lambda: None,
        create_stream=lambda: SimpleNamespace(sync=lambda: None, close=lambda: None),
    )
    return run.Run(room, mode, mode, "nvidia-h200", preset, seed, folder, synthetic.machine(), device)


class Bound:
    """Does with NumPy what the kernel does, but leaves elements unwritten: "val" or "meta" -> which one."""

    name, prepare_ms, prepare_bytes = kernels.VARIANT, 0.0, 0

    def __init__(self, problem, unwritten):
        dense = problem.device().a
        self.right = two_four.compress(dense.bits, dense.dtype, prune=True)
        self.made = two_four.compress(dense.bits, dense.dtype, prune=True)
        self.unwritten = unwritten

    def launch(self, stream) -> None:
        for name in ("val", "meta"):
            array, right = getattr(self.made, name), getattr(self.right, name)
            assert (array != right).all(), "an output from before could pass for this launch's"
            before = array.copy()
            array[:] = right
            if name in self.unwritten:
                array[self.unwritten[name]] = before[self.unwritten[name]]

    def result(self):
        return self.made


@pytest.fixture
def kernel(monkeypatch):
    """A kernel that takes 2 µs; `unwritten`: for each size, what it leaves unwritten."""
    made = SimpleNamespace(unwritten={32: {}, 80: {}}, later={}, sizes=[], budgets=[])

    def bind(problem, device):
        made.sizes.append(problem.m)
        return Bound(problem, made.unwritten[problem.m])

    def time(bounds, device, *, budget_s, verify):
        made.budgets.append(budget_s)
        for name, bound in bounds.items():
            bound.unwritten = made.later
            verify(name, lambda bound=bound: bound.launch(None))
        return dict.fromkeys(bounds, bench.Timing(2.0, 1.5, 2.5, 9, 1980.0, math.nan, "", False))

    monkeypatch.setattr(kernels, "SIZES", SIZES)
    monkeypatch.setattr(kernels, "device_dense", operands.host_dense)
    monkeypatch.setattr(kernels, "bind", bind)
    monkeypatch.setattr(bench, "time", time)
    return made


def test_a_measurement_is_one_row_per_size(tmp_path, kernel):
    df = experiments.pruning(a_run(tmp_path))
    assert list(df.columns) == list(records.COLUMNS)
    assert kernel.sizes == [32, 80] and kernel.budgets == [run.BUDGETS_S["full"]] * 2
    assert list(df["m"]) == list(df["k"]) == [32, 80] and not df["n"].any()
    assert set(df["room"]) == {"tensor_core_24"} and set(df["experiment"]) == {"prepare"}
    assert set(df["variant"]) == {"prune_compress"} and set(df["seed"]) == {7}
    assert not df[["rel_err", "max_err", "tflops", "prepare_ms"]].any().any()
    assert df[["median_us", "q25_us", "q75_us", "samples"]].iloc[0].tolist() == [2.0, 1.5, 2.5, 9]
    # In: 2 bytes each; out: half of them, and one bit for each.
    assert df["gbps"].tolist() == pytest.approx([s * s * (2 + 1 + 1 / 8) / 2e3 for s in (32, 80)])
    assert records.read(tmp_path / "prepare.csv").equals(df)


def test_what_was_measured_is_not_measured_again(tmp_path, kernel):
    assert list(experiments.pruning(a_run(tmp_path, preset="kick"))["m"]) == [32]
    assert list(experiments.pruning(a_run(tmp_path))["m"]) == [32, 80]
    assert list(experiments.pruning(a_run(tmp_path))["m"]) == [32, 80]
    assert kernel.sizes == [32, 80]


def test_no_recorded_times(tmp_path, kernel):
    with pytest.raises(FileNotFoundError, match="prepare.csv"):
        experiments.pruning(a_run(tmp_path, "recorded"))
    experiments.pruning(a_run(tmp_path, preset="kick"))
    with pytest.raises(ValueError, match="prepare on nvidia-h200 have no prune_compress at m=80"):
        experiments.pruning(a_run(tmp_path, "recorded"))


@pytest.mark.parametrize(("name", "place"), [("val", (31, 15)), ("meta", (0, 1)), ("val", (7, 0))])
def test_one_wrong_element_leaves_no_record(tmp_path, kernel, name, place):
    kernel.unwritten[32][name] = place
    where = f"1 of .* elements of {name}, the first at row {place[0]}, column {place[1]}$"
    with pytest.raises(check.WrongResult, match=f"^prune_compress of 32 x 32 .*{where}"):
        experiments.pruning(a_run(tmp_path))
    assert not kernel.budgets and not list(tmp_path.glob("*.csv"))
