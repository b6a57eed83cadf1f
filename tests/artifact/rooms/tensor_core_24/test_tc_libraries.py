"""Two versions of cuSPARSELt side by side: where records go, which are read, and what is said of them."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from artifact.measure import records
from artifact.rooms.tensor_core_24 import experiments, facts, libraries


@pytest.fixture(scope="module")
def both(run):
    return experiments.together(experiments.measure(run, "square"), experiments.measure(run, "llm"))


def other(run, folder, version: str, faster: float, names=libraries.EXPERIMENTS) -> None:
    """Records of another version, `faster` times as fast as the shipped one, on a clock of its own."""
    where = folder / records.LIBRARIES / version
    where.mkdir(parents=True)
    for name in names:
        df = experiments.measure(run, name, libraries.NAMES)
        slower = df["variant"].map({"auto": 1.3, "cusparselt": 1.3 / faster})
        times = {column: df[column] * slower for column in ("median_us", "q25_us", "q75_us")}
        rates = {column: df[column] / slower for column in ("tflops", "gbps")}
        records.write(where / f"{name}.csv", df.assign(**times, **rates))


def test_versions_are_read_in_their_order_and_only_whole_ones(run, tmp_path):
    for version in ("0.10.0", "0.9.1"):
        other(run, tmp_path, version, 1.1)
    other(run, tmp_path, "0.11.0", 1.1, ("square",))  # the layers are still to come
    found = libraries.read(replace(run, folder=tmp_path))
    assert list(found) == ["0.9.1", "0.10.0"]
    assert set(found["0.9.1"]["variant"]) == set(libraries.NAMES)
    assert libraries.read(replace(run, folder=tmp_path / "nobody")) == {}


@pytest.mark.parametrize("faster", [0.5, 1.25])
def test_what_is_said_is_what_was_measured(run, both, tmp_path, faster):
    """The clock of the other run is not the library's doing."""
    other(run, tmp_path, "0.10.0", faster)
    got = dict(facts.other_libraries(libraries.read(replace(run, folder=tmp_path)), both, {"cusparselt": "0.8.0"}))
    us = experiments.wide(both, "median_us")
    over = us["cusparselt"] / us["auto"] / faster
    assert got["other.0_10_0.best.mean"] == pytest.approx(records.geomean(over))
    assert got["other.0_10_0.best.low"] == pytest.approx(over.min())
    assert got["other.0_10_0.newer"] == pytest.approx(faster)
    large = [ratio for (m, n, k), ratio in over.items() if m * n * k >= 4096**3]
    assert got["other.0_10_0.large.reached"] == sum(r >= 1.1 for r in large)
    assert got["other.0_10_0.behind"] == (over < 1).sum()


def test_nothing_is_said_of_the_records_own_version_or_of_none(run, both, tmp_path):
    other(run, tmp_path, "0.8.0", 1.1)
    machine = {"cusparselt": "0.8.0"}
    assert not list(facts.other_libraries(libraries.read(replace(run, folder=tmp_path)), both, machine))
    assert not list(facts.other_libraries({}, both, machine))


@pytest.fixture
def gpu(run, monkeypatch):
    """A GPU with a library of a version, which the test may change."""
    found = SimpleNamespace(version="0.10.0")
    info = SimpleNamespace(slug="some-gpu", open=lambda: "opened")
    monkeypatch.setattr(libraries.device, "require", lambda: info)
    monkeypatch.setattr(libraries.device, "describe", lambda _: run.machine | {"cusparselt": found.version})
    monkeypatch.setattr(libraries.device, "sources", lambda _: "x")
    return found


def test_a_measurement_lies_beside_the_rooms_records(gpu, tmp_path, monkeypatch):
    run = libraries.begin(tmp_path, "kick")
    assert run.folder == tmp_path / "some-gpu" / "tensor_core_24" / "libraries" / "0.10.0"
    assert records.read_machine(run.folder)["cusparselt"] == "0.10.0" and run.device == "opened"
    seen = []

    def noted(self, experiment, problems, contenders, timer):
        seen.append((experiment, len(list(problems)), list(contenders)))
        return pd.DataFrame()

    monkeypatch.setattr(libraries.Run, "measure", noted)
    monkeypatch.setattr(libraries.Run, "variants", lambda self: {"auto": len, "mma_sp": len})
    monkeypatch.setattr(libraries.Run, "baselines", lambda self: {"cusparselt": len, "cublaslt": len})
    libraries.measure(run)
    assert [name for name, *_ in seen] == [*libraries.EXPERIMENTS, *libraries.LINEAR]
    assert all(count and names == ["auto", "cusparselt"] for _, count, names in seen)


def test_without_a_library_there_is_one_sentence(gpu, tmp_path):
    gpu.version = None
    with pytest.raises(ValueError, match="^no cuSPARSELt answers here: let SPARSITY_CUSPARSELT name"):
        libraries.begin(tmp_path)
    assert not list(tmp_path.iterdir())
