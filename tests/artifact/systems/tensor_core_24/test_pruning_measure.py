"""The time of pruning and compressing without a GPU: what is checked, what is read, what is written down."""

import math
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import synthetic
from refused import refused

from artifact.measure import bench, records, run, verification
from artifact.systems.tensor_core_24 import experiments
from kernels.formats import two_four
from kernels.tensor_core_24 import operands, pruning as kernels

SIZES = {"full": (32, 80), "kick": (32,)}


def a_run(folder, mode: str = "measure", preset: str = "full", seed: int = 7) -> run.Run:
    return run.Run("tensor_core_24", mode, mode, "nvidia-h200", preset, seed, folder, synthetic.machine(), Mock())


class PreparedKernel:
    """Does with NumPy what the kernel does, but leaves elements unwritten: "val" or "meta" -> which one."""

    name, prepare_ms, prepare_bytes = kernels.VARIANT, 0.0, 0

    def __init__(self, problem, unwritten):
        dense, self.unwritten = problem.device().a, unwritten
        self.right, self.made = (two_four.compress(dense.bits, dense.dtype, prune=True) for _ in range(2))

    def launch(self, stream) -> None:
        for name in ("val", "meta"):
            array, right = getattr(self.made, name), getattr(self.right, name)
            assert (array != right).all(), "an output from before could pass for this launch's"
            written = np.ones(array.shape, bool)
            written[self.unwritten.get(name, ...)] = name not in self.unwritten
            np.copyto(array, right, where=written)

    def result(self):
        return self.made


@pytest.fixture
def kernel(monkeypatch):
    """A kernel that takes 2 µs; `unwritten`: what it leaves unwritten."""
    made = SimpleNamespace(unwritten={}, sizes=[], budgets=[])

    def prepare(problem, device):
        made.sizes.append(problem.m)
        return PreparedKernel(problem, made.unwritten)

    def time(bounds, device, *, budget_s, verify):
        made.budgets.append(budget_s)
        for name, bound in bounds.items():
            verify(name, partial(bound.launch, None))
        return dict.fromkeys(bounds, bench.Timing(2.0, 1.5, 2.5, 9, 1980.0, math.nan, "", False))

    for where, name, what in (
        (kernels, "SIZES", SIZES),
        (kernels, "device_dense", operands.host_dense),
        (kernels, "prepare", prepare),
        (bench, "time", time),
    ):
        monkeypatch.setattr(where, name, what)
    return made


def test_a_measurement_is_one_row_per_size(tmp_path, kernel):
    df = experiments.pruning(a_run(tmp_path))
    assert list(df.columns) == list(records.COLUMNS)
    assert kernel.sizes == [32, 80] and kernel.budgets == [run.BUDGETS_S["full"]] * 2
    assert list(df["m"]) == list(df["k"]) == [32, 80]
    same = {"room": "tensor_core_24", "experiment": "prepare", "variant": "prune_compress", "seed": 7, "n": 0}
    assert (df[[*same]] == [*same.values()]).all(axis=None)
    assert not df[["rel_err", "max_err", "tflops", "prepare_ms"]].any(axis=None)
    assert df[["median_us", "q25_us", "q75_us", "samples"]].iloc[0].tolist() == [2.0, 1.5, 2.5, 9]
    # In: 2 bytes each; out: half of them, and one bit for each.
    assert df["gbps"].tolist() == pytest.approx([s * s * (2 + 1 + 1 / 8) / 2e3 for s in (32, 80)])
    assert records.read(tmp_path / "prepare.csv").equals(df)


def test_what_was_measured_is_not_measured_again(tmp_path, kernel):
    for preset, sizes in (("kick", [32]), ("full", [32, 80]), ("full", [32, 80])):
        assert list(experiments.pruning(a_run(tmp_path, preset=preset))["m"]) == sizes
    assert kernel.sizes == [32, 80]


@pytest.mark.parametrize(("name", "place"), [("val", (31, 15)), ("meta", (0, 1)), ("val", (7, 0))])
def test_one_wrong_element_leaves_no_record(tmp_path, kernel, name, place):
    kernel.unwritten[name] = place
    where = f"1 of .* elements of {name}, the first at row {place[0]}, column {place[1]}$"
    refused(
        f"^prune_compress of 32 x 32 .*{where}", experiments.pruning, a_run(tmp_path), kind=verification.WrongResult
    )
    assert not kernel.budgets and not list(tmp_path.glob("*.csv"))
