"""`python -m artifact profile`: what it refuses, and that profiles.toml lists only what exists."""

import importlib
import itertools
import math
from contextlib import nullcontext
from types import SimpleNamespace

import pandas as pd
import pytest

from artifact import cli, paths, registry
from artifact.measure import device, records
from artifact.profiling import ncu
from artifact.verdicts import evidence, load

PROFILES = registry.profiles()
SYSTEMS = list(PROFILES)
#: Those that have kernels: a system's trial may be written before them.
BUILT = [system for system in SYSTEMS if (paths.ROOT / "kernels" / system / "launch.py").is_file()]
#: Modules of systems with problems of their own.
PARTS = [system for system in SYSTEMS if "." in system]


def refused(capsys, *arguments: str) -> str:
    """The one line on stderr with which `profile` refuses these arguments."""
    assert cli.main(["profile", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("artifact: ") and err.count("\n") == 1
    return err


def planned(system: str) -> list[dict]:
    plan = PROFILES[system]
    return [s | {"density": d} for d, s in itertools.product(plan["densities"], plan["shapes"])]


# ---------------------------------------------------------------- the command


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "find", lambda *_: None)
    monkeypatch.setattr(ncu, "profile", lambda *_, **__: pytest.fail("there is no GPU"))


@pytest.mark.parametrize("system", ["juggle", "ceilings", "../casper_sparse"])
def test_an_unknown_system_names_the_known_ones(capsys, no_gpu, system):
    err = refused(capsys, system)
    assert repr(system) in err and f"known: {', '.join(SYSTEMS)}" in err
    assert "needs an NVIDIA GPU" in refused(capsys) and "needs an NVIDIA GPU" in refused(capsys, "casper_sparse")


INFO = SimpleNamespace(slug="nvidia-h200", gpu="NVIDIA H200")


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine that seems to have a GPU, and folders of its own."""
    monkeypatch.setattr(device, "require", lambda *_: INFO)
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "records")
    return tmp_path


@pytest.fixture
def profiled(monkeypatch):
    """The calls of `ncu.profile`, which seems to work: one counter is 5 in each launch, one is missing."""
    calls = []

    def profile(system, shapes, contenders, metrics, *, folder, gpu):
        calls.append((system, list(shapes), list(contenders), list(metrics), folder))
        found = [(ncu.TIME, 5.0), (ncu.METRICS[1], math.nan)] * len(shapes) * len(contenders)
        return pd.DataFrame(found, columns=["metric", "value"])

    monkeypatch.setattr(ncu, "profile", profile)
    return calls


def test_what_is_listed_is_profiled_and_recorded(capsys, gpu, profiled):
    assert cli.main(["profile"]) == 0
    assert [call[0] for call in profiled] == SYSTEMS
    for system, shapes, contenders, metrics, folder in profiled:
        assert shapes == planned(system) and contenders == PROFILES[system]["contenders"]
        wanted = load.counters_wanted(claim for claim in load.claims() if claim.room == system)
        assert {*ncu.METRICS, *wanted} <= {*metrics} and len({*metrics}) == len(metrics)
        assert folder == (gpu / "records" / "nvidia-h200").joinpath(*system.split("."))
    out, err = capsys.readouterr()
    for said in (
        f"{SYSTEMS[0]}: {len(planned(SYSTEMS[0])) * len(profiled[0][2])} values of 1 counters",
        f"not on this GPU: {ncu.METRICS[1]}",
        f"counters and launches are in {gpu}",
    ):
        assert said in out and err == ""


def test_a_system_adds_its_own_metrics(gpu, profiled, monkeypatch):
    system = next(system for system in SYSTEMS if "metrics" not in PROFILES[system])
    own = {system: PROFILES[system] | {"metrics": ["own.sum", ncu.METRICS[2]]}}
    monkeypatch.setattr(registry, "profiles", lambda: own)
    assert cli.main(["profile"]) == 0
    ((_, _, _, metrics, _),) = profiled
    assert metrics.count("own.sum") == metrics.count(ncu.METRICS[2]) == 1


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", "uses the shipped profiles"),
        ("==ERROR== Failed to initialize\n", "could not profile: Failed to initialize"),
    ],
)
def test_where_ncu_fails_there_is_one_sentence_and_no_file(capsys, gpu, monkeypatch, printed, said):
    monkeypatch.setattr(ncu.shutil, "which", lambda *_: "/opt/ncu")
    failed = SimpleNamespace(returncode=1, stdout=printed)
    monkeypatch.setattr(ncu.subprocess, "run", lambda *_, **__: failed)
    assert said in refused(capsys, SYSTEMS[0])
    assert not (gpu / "records").exists()


# ---------------------------------------------------------------- profiles.toml


GOOD = """contenders = ["v1"]
densities = [0.5]
shapes = [{ m = 1, n = 2, k = 3 }]
[part]
metrics = ["own"]
"""


@pytest.mark.parametrize(
    "old,new,says",
    [
        ("", "", ""),
        ('contenders = ["v1"]', "", "room: the key 'contenders' is missing"),
        ('["v1"]', '["v1", "v1"]', "'contenders' is .* nothing twice"),
        ("[0.5]", "[]", "'densities' is .* has something"),
        ("[0.5]", "[1.5]", "'densities.0' is 1.5"),
        ("m = 1", "m = 0", "'shapes.0.m' is 0"),
        ("k = 3", 'k = "3"', "'shapes.0.k' is '3'"),
        ("metrics", "counters", "room.part: the key 'counters' is none of contenders"),
    ],
)
def test_a_profile_is_complete_and_lists_nothing_twice(tmp_path, monkeypatch, old, new, says):
    monkeypatch.setattr(registry, "find", lambda folder: ["room"])
    path = records.write_text(tmp_path / "room" / registry.PROFILES, GOOD.replace(old, new))
    with pytest.raises(ValueError, match=f"{path}: .*{says}") if says else nullcontext():
        system, part = registry.profiles(tmp_path).values()
        assert system["shapes"] == [{"m": 1, "n": 2, "k": 3}] and part == system | {"metrics": ["own"]}


def test_own_metrics_are_none_that_every_system_has():
    assert not {metric for plan in PROFILES.values() for metric in plan.get("metrics", ())} & set(ncu.METRICS)


@pytest.mark.parametrize("system", [*BUILT, *PARTS])
def test_shapes_make_problems(system):
    module = importlib.import_module(f"kernels.{system}")
    for shape in planned(system):
        problem = module.problem(**shape)
        assert problem.nnz > 0 and (problem.m, problem.n, problem.k) == tuple(shape[key] for key in ("m", "n", "k"))


def test_contenders_of_claims_on_counters_are_profiled():
    for claim in load.claims():
        if "counters" in claim.experiment:
            named = {*evidence.contenders(claim.rule.quantity.keywords.get("of", ()))} - {
                evidence.BEST
            }  # whichever algorithm that is at a point
            assert named <= set(PROFILES[claim.room]["contenders"]), claim.id
