"""Two versions of cuSPARSELt side by side: where records go, which are read, and what is said of them."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from artifact.measure import records
from artifact.rooms.tensor_core_24 import experiments, facts, libraries


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


def test_versions_are_read_in_their_order_and_only_whole_ones(post, tmp_path):
    for version in ("0.10.0", "0.9.1"):
        other(post.run, tmp_path, version, 1.1)
    other(post.run, tmp_path, "0.11.0", 1.1, ("square",))  # the layers are still to come
    found = libraries.read(replace(post.run, folder=tmp_path))
    assert list(found) == ["0.9.1", "0.10.0"]
    assert set(found["0.9.1"]["variant"]) == set(libraries.NAMES)
    assert libraries.read(replace(post.run, folder=tmp_path / "nobody")) == {}


def test_the_records_own_version_is_no_other(post, tmp_path):
    other(post.run, tmp_path, post.machine["cusparselt"], 1.1)
    assert libraries.read(replace(post.run, folder=tmp_path)) == {}


def test_what_is_said_of_another_version_is_what_was_measured(post, tmp_path):
    """The clock of the other run is not the library's doing."""
    ours = facts.tuned(post)
    for name, df in dict(libraries.read(post.run)).items():
        times = df.pivot(index=experiments.KEYS, columns="variant", values="median_us")
        over = times["cusparselt"] / times["auto"]
        got = {k.removeprefix(f"other.{name.replace('.', '_')}."): v for k, v in ours}
        assert got["best.low"] == over.min() and got["behind"] == (over < 1).sum()
        large = [ratio for (m, n, k), ratio in over.items() if m * n * k >= 4096**3]
        assert got["large.reached"] == sum(r >= 1.1 for r in large) and got["large.count"] == len(large)


@pytest.fixture
def gpu(post, monkeypatch):
    """A GPU with a library of a version, which the test may change."""
    found = SimpleNamespace(version="0.10.0")
    info = SimpleNamespace(slug="some-gpu", open=lambda: "opened")
    monkeypatch.setattr(libraries.device, "require", lambda: info)
    monkeypatch.setattr(libraries.device, "describe", lambda _: post.machine | {"cusparselt": found.version})
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
