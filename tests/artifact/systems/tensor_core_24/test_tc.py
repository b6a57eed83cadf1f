"""The chapter's experiments, facts and pictures, on the shipped records and on what other GPUs would give."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from refused import refused

from artifact.book import facts as facts_
from artifact.book.facts import tree
from artifact.measure import records, run as harness
from artifact.systems.tensor_core_24 import energy, experiments, facts, libraries, pictures, tables
from kernels import tensor_core_24 as system
from kernels.contract import require
from kernels.formats import two_four

# ---------------------------------------------------------------- what fits where


@pytest.mark.parametrize(
    ("variant", "size", "hopper"),
    [("wgmma_keep", 4096, True), ("wgmma_stream_k", 512, False), ("mma_sp_stages_5", 2048, True)],
)
def test_what_takes_a_size(post, ada, variant, size, hopper):
    """Stream-K has fewer tiles than SMs there; the others need wgmma, or more shared memory than Ada's."""
    shapes = [dict.fromkeys("mnk", s) for s in (4096, size)]
    assert experiments.takes(post.machine, variant, *shapes) is hopper
    assert not experiments.takes(ada.machine, variant, *shapes)


# ---------------------------------------------------------------- records


def test_every_part_finds_what_there_is(post, ada):
    """On a kick, which has few sizes, and on a GPU without wgmma, the parts say less and raise nothing."""
    kick = experiments.Chapter(harness.start("tensor_core_24", "recorded", preset="kick"))
    known = tree(dict(facts_.read(post.run.folder / facts_.FILE)))
    assert {name.split(".")[0] for name, _ in facts.of(kick.run)} <= {*known}
    for part in (facts.published, facts.climbed, facts.profiled, facts.energies, facts.tuned, facts.rows, facts.eight):
        list(part(ada))
    for table in (tables.rows, tables.ragged, tables.chosen, tables.float16):
        assert len(table(ada)) <= len(table(post)) > 0
    for figure in (tables.throughput, tables.share_of_peak, tables.per_cent, tables.studies, tables.ladder):
        assert len(figure(ada)) <= len(figure(post)) and len(figure(kick))
    assert energy.shares(ada) is None and tables.layers(ada["fp8"], "fp8_auto") is None and not [*facts.eight(ada)]


# ---------------------------------------------------------------- machine code, and where there is a GPU


def report(names, **more) -> pd.DataFrame:
    row = {"target": "sm_90a", "registers": 168, "instructions": 1000, "spills": False, "HMMA": 0}
    return pd.DataFrame([row | {"variant": name} | more for name in names])


def test_published_machine_code():
    rows, loop = experiments.published(report(["mma_sp"], entry=system.VARIANTS["mma_sp"].entries[0]))
    got = dict(facts.code(rows, loop))
    assert got["code.first"] == got["code.second"] == 32 and got["code.past_l1"]
    excerpt = experiments.published_excerpt(loop).splitlines()
    assert excerpt[0].startswith("HMMA.SP") and "…" in excerpt


@pytest.mark.parametrize("which", ["", "wgmma_tall"])
def test_machine_code_of_the_ladder(which):
    df = report(system.RUNGS).assign(spills=lambda rows: rows["variant"] == which)
    rows, found = experiments.ladder_rows(df).set_index("variant"), dict(facts.compiled(df))
    assert list(rows.index) == list(system.RUNGS) and (rows["spilled"] == "yes").sum() == bool(which)
    assert (found["compiled.which"], found["compiled.spilling"], found["compiled.other"]) == (which, bool(which), 0)


@pytest.mark.gpu
def test_epilogue_is_right_on_a_gpu(tmp_path):
    tried = experiments.epilogue(harness.start("tensor_core_24", mode="measure", preset="kick", records=tmp_path))
    assert tried["rel_err"] < 5e-3 and 0 < tried["plain_us"] and 0 < tried["all_us"]
    assert dict(facts.epilogue(tried))["epilogue.at"] == "1000 × 520 × 712"


# ---------------------------------------------------------------- who refuses a shape


def test_a_library_that_refuses_a_shape_has_no_row_there(post, tmp_path):
    """As on a GPU, but that binding is all that is done."""
    refuses = Mock(side_effect=lambda problem: require(problem.m != 512, "out of resources"))
    binds = dict.fromkeys(experiments.CONTENDERS["fp8"], lambda problem: None) | {"cusparselt": refuses}

    def point(experiment, shapes, here, timer):
        assert not [prepare for prepare in here.values() if prepare(*shapes)]

    records.write(tmp_path / "fp8.csv", post["fp8"])
    run = SimpleNamespace(
        room="tensor_core_24", mode="measure", folder=tmp_path, preset="kick", seed=0, device=None, measure=point
    )
    problems = experiments.in_eight(run)["fp8"]
    for _ in range(2):  # what refused is not asked again
        found = experiments.of_the_willing(run, "fp8", problems, binds)
    assert refuses.call_count == 2 * len(problems) - 1
    ((key, why),) = records.read_absent(tmp_path)["fp8"].items()
    assert key[:3] == ("cusparselt", "e4m3", 512) and "out of resources" in why
    assert {*zip(found["m"], found["n"], found["k"], strict=True)} == {(p.m, p.n, p.k) for p in problems}


def test_the_map_of_the_metadata_is_that_of_the_instruction():
    """PTX ISA, mma.sp.m16n8k32: lane 4g + t holds row g in the low half and row g + 8 in the high
    one; t of 0 and 1 with selector 0 the columns 0–15 and 16–31, t of 2 and 3 the next with 1."""
    data = pictures.metadata_map(two_four.random(64, 64, "bfloat16", 0).meta)
    assert len(data) == 256 and not data.duplicated(["row", "column"]).any()
    assert not data.duplicated(["register", "lane", "half"]).any()
    row = data["row"] % 16
    assert (data["lane"] == 4 * (row % 8) + data["column"]).all()
    assert (data["half"] == np.where(row < 8, "low", "high")).all()
    assert (data["register"] == data["row"] // 16).all()
    assert (data["selector"] == data["column"] // 2).all()


@pytest.fixture
def gpu(post, monkeypatch):
    """The machine of a GPU with a library of a version."""
    machine, info = post.machine | {"cusparselt": "0.10.0"}, SimpleNamespace(slug="some-gpu", open=lambda: "opened")
    for name, answer in (("require", info), ("describe", machine), ("sources", "x")):
        monkeypatch.setattr(libraries.device, name, lambda *_, answer=answer: answer)
    return machine


def test_a_measurement_lies_beside_the_systems_records(gpu, tmp_path, monkeypatch):
    run = libraries.begin(tmp_path, "kick")
    assert run.folder == tmp_path / "some-gpu" / "tensor_core_24" / "libraries" / "0.10.0"
    assert records.read_machine(run.folder)["cusparselt"] == "0.10.0" and run.device == "opened"
    measure = Mock()
    monkeypatch.setattr(libraries.Run, "measure", measure)
    monkeypatch.setattr(libraries.Run, "variants", lambda self: {"auto": len, "mma_sp": len})
    monkeypatch.setattr(libraries.Run, "baselines", lambda self: {"cusparselt": len, "cublaslt": len})
    libraries.measure(run)
    seen = [(name, list(contenders), bool(problems)) for (name, problems, contenders, _), _ in measure.call_args_list]
    assert seen == [(name, ["auto", "cusparselt"], True) for name in (*libraries.EXPERIMENTS, *libraries.LINEAR)]


def test_without_a_library_there_is_one_sentence(gpu, tmp_path):
    gpu["cusparselt"] = None
    refused("^no cuSPARSELt answers here: let SPARSITY_CUSPARSELT name", libraries.begin, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
@pytest.mark.xdist_group("dense_layers")
@pytest.mark.parametrize("phase", [("prefill", 1, 256, 256, 1), ("decode", 4, 1, 256, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_each_contender_multiplies_as_the_dense_layer(phase, bias):
    torch = pytest.importorskip("torch")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma is what Hopper has")
    from artifact.systems.tensor_core_24 import model

    torch.manual_seed(model.SEED)
    tiny, phase = model.Model("tiny", 512, 1, 4, 2, 1024, 64, 1e4, bias), model.Phase(*phase)
    with torch.no_grad():
        layers, inputs = model.contenders(tiny), model.inputs_of(tiny, phase)[0]
        errors = model.check(layers, phase, inputs)
        assert set(errors) == set(model.CONTENDERS) and errors["bf16", "dense"] == 0
        assert errors["bf16", "2:4"] < errors["e4m3", "dense"]
        layers["bf16", "2:4"] = layers["bf16", "dense"]  # which is not pruned
        refused("2:4 weights in bf16 is .* off", model.check, layers, phase, inputs)
