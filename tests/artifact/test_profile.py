"""`python -m artifact profile`: what it refuses, and that profiles.toml lists only what exists."""

from __future__ import annotations

import importlib
import itertools
import tomllib
from types import SimpleNamespace

import pandas as pd
import pytest

from artifact import claims, cli, device, ncu, paths, records
from artifact.baselines import cusparse

PROFILES = tomllib.loads(cli.PROFILES.read_text(encoding="utf-8"))
ROOMS = list(PROFILES)


def refused(capsys, *arguments: str) -> str:
    """The one line on stderr with which `profile` refuses these arguments."""
    assert cli.main(["profile", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("artifact: ") and err.count("\n") == 1
    return err


def planned(room: str) -> list[dict]:
    plan = PROFILES[room]
    return [s | {"density": d} for d, s in itertools.product(plan["densities"], plan["shapes"])]


# ---------------------------------------------------------------- the command


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "find", lambda *_: None)
    monkeypatch.setattr(ncu, "profile", lambda *_, **__: pytest.fail("there is no GPU"))


@pytest.mark.parametrize("room", ["juggle", "ceilings", "../casper_sparse"])
def test_an_unknown_room_names_the_known_ones(capsys, no_gpu, room):
    err = refused(capsys, room)
    assert repr(room) in err and f"known: {', '.join(ROOMS)}" in err


@pytest.mark.parametrize("arguments", [[], ["casper_sparse"]])
def test_without_a_gpu(capsys, no_gpu, arguments):
    assert "needs an NVIDIA GPU" in refused(capsys, *arguments)


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine that seems to have a GPU, and folders of its own."""
    monkeypatch.setattr(device, "require", lambda *_: SimpleNamespace(slug="nvidia-h200"))
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "records")
    return tmp_path


def test_without_nsight_compute(capsys, gpu, monkeypatch):
    monkeypatch.setattr(ncu.shutil, "which", lambda *_: None)
    assert "ncu is not on the PATH" in refused(capsys, "casper_sparse")
    assert not (gpu / "records").exists()


def test_what_is_listed_is_profiled_and_recorded(capsys, gpu, monkeypatch):
    asked = []

    def profile(room, shapes, contenders, metrics, *, report):
        asked.append((room, list(shapes), list(contenders), list(metrics), report))
        rows = [
            (name, *(shape[key] for key in ("m", "n", "k", "density")), 0, "kernel", ncu.TIME, 5, "ns")
            for shape in shapes
            for name in contenders
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=list(ncu.COLUMNS))

    monkeypatch.setattr(ncu, "profile", profile)
    assert cli.main(["profile", "--keep", str(gpu / "kept")]) == 0
    assert [call[0] for call in asked] == ROOMS
    for room, shapes, contenders, metrics, report in asked:
        assert shapes == planned(room) and contenders == PROFILES[room]["contenders"]
        assert {*ncu.METRICS, *claims.counters_wanted(claims.load())} == set(metrics)
        assert len(set(metrics)) == len(metrics)
        assert report == gpu / "kept" / f"{room}.ncu-rep"
        df = records.read_counters(gpu / "records" / "nvidia-h200" / room / "counters.csv")
        assert len(df) == len(shapes) * len(contenders)
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------- profiles.toml


@pytest.mark.parametrize("room", ROOMS)
def test_a_profile_is_complete_and_lists_nothing_twice(room):
    assert set(PROFILES[room]) == {"contenders", "densities", "shapes"}
    for key, values in PROFILES[room].items():
        assert values, key
        assert all(values.count(value) == 1 for value in values), key
    assert all(set(shape) == {"m", "n", "k"} for shape in PROFILES[room]["shapes"])


@pytest.mark.parametrize("room", ROOMS)
def test_contenders_exist(room):
    known = {*importlib.import_module(f"kernels.{room}").VARIANTS}
    known |= {f"cusparse_{algorithm}" for algorithm in cusparse.ALGORITHMS}
    assert set(PROFILES[room]["contenders"]) <= known


@pytest.mark.parametrize("room", ROOMS)
def test_the_published_kernel_and_the_library_are_among_them(room):
    variants = importlib.import_module(f"kernels.{room}").VARIANTS
    contenders = PROFILES[room]["contenders"]
    assert {name for name, kernel in variants.items() if kernel.published} <= set(contenders)
    assert any(name.startswith("cusparse_") for name in contenders)


@pytest.mark.parametrize("room", ROOMS)
def test_shapes_make_problems(room):
    module = importlib.import_module(f"kernels.{room}")
    for shape in planned(room):
        problem = module.problem(**shape)
        assert problem.nnz > 0 and (problem.m, problem.n, problem.k) == tuple(
            shape[key] for key in ("m", "n", "k")
        )


@pytest.mark.parametrize("room", ROOMS)
def test_shapes_are_points_of_the_sweeps(room):
    sweeps = importlib.import_module(f"kernels.{room}").sweeps("full")
    swept = [shape for shapes in sweeps.values() for shape in shapes]
    for shape in planned(room):
        assert shape in swept
    for experiment, shapes in sweeps.items():
        assert any(shape in shapes for shape in planned(room)), experiment


def test_every_variant_takes_every_n():
    from kernels.casper_sparse import VARIANTS, launch

    plan = PROFILES["casper_sparse"]
    for name in set(plan["contenders"]) & set(VARIANTS):
        for shape in plan["shapes"]:
            launch.entry(name, shape["n"])  # ValueError where it does not, as for `auto`


def test_densities_are_the_ends_of_the_sweeps():
    from kernels.casper_sparse import sweeps

    swept = [s["density"] for shapes in sweeps("full").values() for s in shapes]
    assert PROFILES["casper_sparse"]["densities"] == [min(swept), max(swept)]


def test_contenders_of_claims_on_counters_are_profiled():
    for claim in claims.load():
        if "counters" in claim.experiment:
            named = {*claim.rule.get("variants", ()), claim.rule.get("variant", claims.BEST)}
            named -= {claims.BEST}  # whichever algorithm that is at a point
            assert named <= set(PROFILES[claim.room]["contenders"]), claim.id
