"""The chapter's experiments, facts and pictures, on the shipped records and on what other GPUs would give."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import SPEEDUP, evidence, frames, outcome

from artifact.measure import records
from artifact.measure import run as harness
from artifact.rooms.tensor_core_24 import energy, experiments, facts, libraries, measures, pictures, tables, variants
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED
from kernels import jit
from kernels import tensor_core_24 as room
from kernels.formats import two_four

# ---------------------------------------------------------------- what fits where


def test_what_takes_a_size(post, ada):
    def cubes(*sizes: int) -> list[dict]:
        return [{"m": s, "n": s, "k": s} for s in sizes]

    assert variants.takes(post.machine, "wgmma_keep", *cubes(4096))
    assert not variants.takes(ada.machine, "wgmma_keep", *cubes(4096))
    assert not variants.takes(post.machine, "wgmma_stream_k", *cubes(4096, 512))  # fewer tiles than SMs
    assert variants.takes(post.machine, "mma_sp_stages_5", *cubes(2048))
    assert not variants.takes(ada.machine, "mma_sp_stages_5", *cubes(2048))


# ---------------------------------------------------------------- records


def test_ladder_on_hopper_and_elsewhere(post, ada):
    assert list(post.rungs.index) == list(room.RUNGS)
    assert post.climbed == [4096, 8192] and list(post.rates.index) == [2048, 4096, 8192]
    assert np.isnan(post.rates["wgmma_stream_k"][2048])
    tall = post.gains["wgmma_tall"][4096]
    assert tall == pytest.approx(post.rates["wgmma_tall"][4096] / post.rates["wgmma_keep"][4096])
    assert post.tiles["wgmma_keep"][4096] == 32 * 16
    assert ada.rungs.empty and tables.gains(ada).empty


def test_the_ceiling_is_of_the_faster_loop(post, ada):
    """With A in registers on one GPU, from shared memory on another."""
    for registers, memory, best in ((1760.0, 1640.0, "wgmma_sp_ra"), (1680.0, 1700.0, "wgmma_sp")):
        found = experiments.Chapter(post.run)
        loops = {"mma_sp": 900.0, "wgmma": 800.0, "wgmma_sp_ra": registers, "wgmma_sp": memory}
        found.__dict__["ceilings"] = pd.DataFrame({"tflops": loops})
        assert found.loops.to_dict() == {"mma.sp": "mma_sp", "wgmma (dense)": "wgmma", "wgmma.sp": best}
        assert found.loops.index[-1] == "wgmma.sp"
    assert ada.loops.to_dict() == {"mma.sp": "mma_sp"}


def test_every_part_finds_what_there_is(post, ada):
    """On a kick, which has few sizes, and on a GPU without wgmma, the parts say less and raise nothing."""
    kick = experiments.start("recorded", "nvidia-h200", "kick")
    full, few = ({name.split(".")[0] for name, _ in facts.of(one.run)} for one in (post, kick))
    assert few <= full
    for part in (facts.published, facts.climbed, facts.profiled, facts.energies, facts.tuned, facts.rows, facts.eight):
        list(part(ada))
    for table in (tables.rows, tables.ragged, tables.chosen, tables.float16):
        assert len(table(post)) and len(table(ada)) <= len(table(post))
    for figure in (tables.throughput, tables.share_of_peak, tables.per_cent, tables.studies, tables.ladder):
        assert len(figure(post)) > len(figure(ada)) - 1 and len(figure(kick))
    assert energy.shares(ada) is None and tables.layers(ada["fp8"], "fp8_auto") is None


# ---------------------------------------------------------------- machine code, and where there is a GPU


def report(names, **more) -> pd.DataFrame:
    row = {"target": "sm_90a", "registers": 168, "instructions": 1000, "spills": False, "HMMA": 0}
    return pd.DataFrame([row | {"variant": name} | more for name in names])


def test_published_machine_code():
    rows, loop = variants.published(report(["mma_sp"], entry=room.VARIANTS["mma_sp"].entries[0]))
    got = dict(facts.code(rows, loop))
    assert got["code.first"] == got["code.second"] == 32 and got["code.past_l1"]
    excerpt = variants.published_excerpt(loop).splitlines()
    assert excerpt[0].startswith("HMMA.SP") and "…" in excerpt


def test_machine_code_of_the_ladder():
    df = report(room.RUNGS).assign(spills=lambda rows: rows["variant"] == "wgmma_tall")
    rows = variants.ladder_rows(df).set_index("variant")
    assert list(rows.index) == list(room.RUNGS) and rows["spilled"]["wgmma_tall"] == "yes"
    assert dict(facts.compiled(df))["compiled.which"] == "wgmma_tall"
    clean = dict(facts.compiled(df.assign(spills=False)))
    assert (clean["compiled.spilling"], clean["compiled.other"]) == (0, 0)


@pytest.mark.gpu
def test_epilogue_is_right_on_a_gpu(tmp_path):
    run = harness.start("tensor_core_24", mode="measure", preset="kick", records=tmp_path)
    tried = experiments.epilogue(run)
    assert tried["rel_err"] < 5e-3
    assert 0 < tried["plain_us"] and 0 < tried["all_us"]
    assert dict(facts.epilogue(tried))["epilogue.at"] == "1000 × 520 × 712"


ROOM = "tensor_core_24"


# ---------------------------------------------------------------- the experiment


def run_of(mode: str, folder, capability: str = "9.0"):
    return SimpleNamespace(
        mode=mode,
        folder=folder,
        preset="full",
        seed=0,
        device=None,
        machine={"compute_capability": capability},
    )


def test_without_wgmma_there_is_nothing(ada):
    assert ada["fp8"].empty and ada["fp8_outputs"].empty and not list(facts.eight(ada))


# ---------------------------------------------------------------- who refuses a shape


def test_a_library_that_refuses_a_shape_has_no_row_there(post, tmp_path):
    """As on a GPU, but that binding is all that is done."""

    def refuses(problem):
        if problem.m == 512:
            raise ValueError("out of resources")

    binds = dict.fromkeys(experiments.CONTENDERS["fp8"], lambda problem: None) | {"cusparselt": refuses}
    measured: dict[tuple, list[set]] = {}

    def point(experiment, shapes, here):
        (problem,) = shapes
        for bind in here.values():
            bind(problem)
        measured.setdefault((problem.m, problem.n, problem.k), []).append(set(here))

    records.write(tmp_path / "fp8.csv", post["fp8"])
    run = run_of("measure", tmp_path)
    run.preset, run.measure = "kick", point
    problems = experiments.in_eight(run)["fp8"]
    for _ in range(2):  # what refused is not asked again
        found = experiments.of_the_willing(run, "fp8", problems, binds)
    assert measured.pop((512, 512, 512)) == [{*binds} - {"cusparselt"}] * 2
    assert measured and all(names == [{*binds}] * 2 for names in measured.values())
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


@pytest.mark.gpu
@pytest.mark.parametrize("phase", [("prefill", 1, 256, 256, 1), ("decode", 4, 1, 256, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_each_contender_multiplies_as_the_dense_layer(phase, bias):
    torch = pytest.importorskip("torch")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma is what Hopper has")
    from artifact.rooms.tensor_core_24 import model

    torch.manual_seed(model.SEED)
    tiny, phase = model.Model("tiny", 512, 1, 4, 2, 1024, 64, 1e4, bias), model.Phase(*phase)
    with torch.no_grad():
        layers, inputs = model.contenders(tiny), model.inputs_of(tiny, phase)[0]
        errors = model.check(layers, phase, inputs)
        assert set(errors) == set(model.CONTENDERS) and errors["bf16", "dense"] == 0
        assert errors["bf16", "2:4"] < errors["e4m3", "dense"]
        layers["bf16", "2:4"] = layers["bf16", "dense"]  # which is not pruned
        with pytest.raises(ValueError, match="2:4 weights in bf16 is .* off") as caught:
            model.check(layers, phase, inputs)
        assert "\n" not in str(caught.value)


def over(ceiling: str, other: str, low=2.0, high=2.0):
    quantity = {"ceiling": ceiling, "over": other, "rate": "gbps"}
    expect = {"near": [low, high], "factor": 1.02, "partly": 1.2}
    return outcome(evidence(), quantity, "each point", expect, ["ceilings"], "tensor_core_24")


@pytest.mark.parametrize(
    "low,high,expected",
    [(2, 2, REPRODUCED), (1.9, 1.9, PARTLY), (2.2, 2.2, PARTLY), (1, 1, NOT_REPRODUCED)],
)
def test_a_ceiling_over_another(low, high, expected):
    """The L2 of the model delivers twice what its DRAM does."""
    got = over("l2_read", "copy", low, high)
    assert got.verdict == expected and got.measured == "2.00× over copy"
    assert "l2_read 8000 GB/s, copy 4000 GB/s" in got.why


# ---------------------------------------------------------------- sizes held against one of them


@pytest.mark.parametrize(
    "best,expected",
    [({2048: 0.5}, REPRODUCED), ({1024: 1.3, 2048: 1.2}, PARTLY), ({2048: 1.5}, NOT_REPRODUCED)],
)
def test_the_share_of_sizes_above_one_of_them(best, expected):
    """best: speedups at some sizes; elsewhere 1."""
    e = evidence(frames(lambda m, n, k, d: best.get(m, 1.0)))
    reduce = {"share_above_that_at": "m", "value": 2048}
    expect = {"at_least": 0.9, "partly": 0.2}
    got = outcome(e, SPEEDUP, reduce, expect, ["square"], "tensor_core_24")
    assert got.verdict == expected and "of 12 points" in got.measured
    with pytest.raises(NotMeasured, match="at m = 2049 and elsewhere"):
        outcome(e, SPEEDUP, reduce | {"value": 2049}, expect, ["square"], "tensor_core_24")


# ---------------------------------------------------------------- machine code


def of_a_kernel(variant="mma_sp"):
    """Records of the room's published kernel; of which numbers does not matter."""
    rows = synthetic.experiment("square")
    return evidence({"square": rows[rows["variant"] == rows["variant"].iloc[0]].assign(variant=variant)})


def test_instructions_are_counted_in_the_machine_code():
    counts = {
        op: measures.machine_code(of_a_kernel(), ["square"], op, "mma_sp", "sm_89").all.item()
        for op in ("HMMA.SP", "LDSM", "HGMMA")
    }
    assert counts["HMMA.SP"] == 64 and counts["LDSM"] > 0 and counts["HGMMA"] == 0


def test_the_machine_code_is_of_a_kernel_that_was_measured():
    with pytest.raises(NotMeasured, match="'mma_sp' was not measured in square"):
        measures.machine_code(of_a_kernel("any_n"), ["square"], "HMMA.SP", "mma_sp", "sm_89")


def test_without_a_disassembler_instructions_are_not_counted(monkeypatch):
    def missing(*_):
        raise FileNotFoundError("nvdisasm is not there")

    monkeypatch.setattr(measures, "instructions", missing)
    with pytest.raises(NotMeasured, match="nvdisasm is not there."):
        measures.machine_code(of_a_kernel(), ["square"], "HMMA.SP", "mma_sp", "sm_89")


COPY = """
extern "C" __global__ void copy(const float* from, float* to) {
  __shared__ __align__(16) float tile[256];
  unsigned place = (unsigned)__cvta_generic_to_shared(tile + 4 * threadIdx.x);
  asm volatile("cp.async.POLICY.shared.global [%0], [%1], BYTES;" ::"r"(place), "l"(from + 4 * threadIdx.x));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  to[threadIdx.x] = tile[threadIdx.x];
}
"""


@pytest.mark.parametrize("policy,size,exists", [("cg", 16, True), ("cg", 8, False), ("ca", 8, True)])
def test_copies_past_l1_are_of_16_bytes_only(tmp_path, policy, size, exists):
    """What the source found in an example; a statement on the instruction set, so that no record can show it."""
    source = tmp_path / "copy.cu"
    source.write_text(COPY.replace("POLICY", policy).replace("BYTES", str(size)))
    if exists:
        assert jit.compile_cubin(source, "copy", "sm_89").code
    else:
        with pytest.raises(jit.CompileError, match="unexpected value '8', expected to be 16"):
            jit.compile_cubin(source, "copy", "sm_89")
