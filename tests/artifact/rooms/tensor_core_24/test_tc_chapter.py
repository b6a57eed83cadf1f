"""Tables and facts of the chapter, on the shipped records and on what other GPUs or parts of them would give."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from artifact.measure import records
from artifact.measure import run as harness
from artifact.rooms.tensor_core_24 import (
    epilogue,
    experiments,
    facts,
    sass,
    tables,
    trials,
    variants,
)
from artifact.rooms.tensor_core_24.experiments import Ceilings, Counters
from kernels import tensor_core_24 as room

ADA = {"compute_capability": "8.9", "shared_bytes_per_sm": 102400}
BENCHMARKS = experiments.stated("benchmarks")


@pytest.fixture(scope="module")
def square(run):
    return experiments.measure(run, "square")


@pytest.fixture(scope="module")
def both(run, square):
    return experiments.together(square, experiments.measure(run, "llm"))


@pytest.fixture(scope="module")
def ceilings(run):
    return experiments.ceilings(harness.start("ceilings", mode="recorded"), run.machine)


@pytest.fixture(scope="module")
def studies(run):
    return experiments.studies(run)


def faster(df: pd.DataFrame, variant: str, factor: float) -> pd.DataFrame:
    """Records in which a contender is faster than it was."""
    df = df.copy()
    rows = df["variant"] == variant
    df.loc[rows, "median_us"] /= factor
    df.loc[rows, "tflops"] *= factor
    return df


def without_ladder(ladder):
    frame = ladder.frame[~ladder.frame["variant"].isin(ladder.rungs)]
    return replace(ladder, frame=frame, rungs={})


# ---------------------------------------------------------------- what fits where


def test_what_takes_a_size():
    hopper = harness.start("tensor_core_24", mode="recorded").machine
    ada = hopper | ADA
    assert variants.takes(hopper, "wgmma_keep", 4096, 4096, 4096)
    assert not variants.takes(ada, "wgmma_keep", 4096, 4096, 4096)
    assert not variants.takes(hopper, "wgmma_stream_k", 512, 512, 4096)  # fewer tiles than SMs
    assert variants.takes(hopper, "mma_sp_stages_5", 2048, 2048, 2048)
    assert not variants.takes(ada, "mma_sp_stages_5", 2048, 2048, 2048)
    shapes = [{"m": s, "n": s, "k": s} for s in (4096, 512)]
    assert not variants.takes_all(hopper, "wgmma_stream_k", shapes)


def test_step_of_the_published_kernel():
    """128 x 128 x 64: A's values and metadata and B, each warp its part; what cp.async writes is a stage."""
    step = variants.step()
    assert step.flop == 2 * 128 * 128 * 64
    assert step.written == 128 * 32 * 2 + 64 * 128 * 2 + 128 * 4 * 2
    assert step.read == 4 * (64 * 32 * 2 + 64 * 64 * 2 + 64 * 4 * 2)
    assert step.clocks == (step.read + step.written) / 128


def test_rungs_build_on_what_their_prediction_names():
    before = {name: rung.before for name, rung in variants.rungs().items()}
    assert before["wgmma_one_stage"] == "mma_sp"
    assert before["wgmma_tall"] == "wgmma_keep"  # not multicast, the row above
    assert before["wgmma_packed"] == "wgmma_tall"
    assert before["wgmma_split_k"] == "wgmma_keep"
    assert variants.rungs()["wgmma_keep"].tiles(4096) == 32 * 16


def test_predictions_use_the_sign():
    assert variants.prediction("mma_sp_ca").startswith("0.9×,")


def test_choices_of_the_shipped_file_and_of_a_gpu_without(run, both, ceilings):
    keys = [(4096, 4096, 4096), (1, 2, 3)]
    found = variants.chosen(run, keys)
    assert list(found) == keys[:1]
    table = tables.chosen(found, both, ceilings)
    assert table["shape"].tolist() == ["4096³"]
    nowhere = variants.chosen(replace(run, gpu="none"), keys)
    assert tables.chosen(nowhere, both, ceilings).empty


# ---------------------------------------------------------------- the published kernel


# ---------------------------------------------------------------- the ladder


def test_ladder_on_hopper_and_elsewhere(run, ladder, tmp_path):
    assert list(ladder.rungs) == list(room.RUNGS)
    assert ladder.climbed == [4096, 8192] and ladder.sizes == [2048, 4096, 8192]
    assert np.isnan(ladder.rate("wgmma_stream_k", 2048))
    assert ladder.gain("wgmma_tall", 4096) == pytest.approx(
        ladder.rate("wgmma_tall", 4096) / ladder.rate("wgmma_keep", 4096)
    )
    records.write(tmp_path / "ladder.csv", ladder.frame.assign(experiment="ladder"))
    ada = experiments.ladder(replace(run, machine=run.machine | ADA, folder=tmp_path))
    assert ada.rungs == {} and set(ada.frame["variant"]) == {
        "mma_sp",
        "auto",
        "cusparselt",
        "cublaslt",
    }
    assert tables.gains_rounded(ada) is None and not list(facts.climbed(ada, run.machine))


def test_table_of_the_rungs():
    table = tables.rungs()
    assert table["rung"].tolist() == [f"<code>{name}</code>" for name in room.RUNGS]
    assert table["tile"].iloc[0] == "128 × 128"


def test_what_came_counts_the_predictions_that_hit(run, ladder):
    gains = tables.gains(ladder)
    assert gains["predicted"].notna().any()
    hit = gains.set_index("rung")["predicted"]
    frame = ladder.frame[ladder.frame["variant"].isin(["mma_sp", "wgmma_one_stage"])]
    rung = ladder.rungs["wgmma_one_stage"]
    factor = hit[rung.name] / replace(ladder, frame=frame).gain(rung.name, 4096)
    exact = faster(frame[frame["m"] == 4096], rung.name, factor)
    one = replace(ladder, frame=exact, rungs={rung.name: rung}, climbed=[4096], has_gaps=False)
    got = dict(facts.climbed(one, run.machine))
    assert (got["predicted.count"], got["predicted.near"], got["predicted.rungs"]) == (1, 1, "`wgmma_one_stage`")


def test_profile(ladder, counters):
    profile = experiments.profile(counters, ladder)
    assert profile.sizes and profile.holds("wgmma_keep", "auto")
    assert not profile.holds("wgmma_keep", "cusparse")
    assert len(tables.profile(profile).data) == len(profile.contenders)


def test_without_counters(ladder, run, square):
    none = experiments.profile(Counters({}), ladder)
    assert tables.profile(none) is None
    for found in (
        facts.profiled(none, ladder, run.machine),
        facts.left(none, square),
        facts.alone(experiments.counters(run, "bounds"), none),
        facts.conflicts(Counters({})),
    ):
        assert not list(found)


def test_records_from_before_a_rung_have_a_ladder_without_it():
    """As the H100's: of the rungs that a GPU runs, those that were measured."""
    there = harness.start("tensor_core_24", "recorded", "nvidia-h100-80gb-hbm3")
    measured = set(records.read(there.folder / "ladder.csv")["variant"])
    ladder = experiments.ladder(there)
    assert set(ladder.rungs) == measured & set(room.RUNGS)
    assert ladder.climbed == [4096, 8192]


def test_counters_of_a_missing_file(run, tmp_path):
    assert experiments.counters(replace(run, folder=tmp_path)) == Counters({})


# ---------------------------------------------------------------- the family


def test_the_ceiling_is_of_the_faster_loop():
    """With A in registers on one GPU, from shared memory on another."""
    slow = {"mma_sp": 900.0, "wgmma": 800.0}
    for registers, memory, best in ((1760.0, 1640.0, "wgmma_sp_ra"), (1680.0, 1700.0, "wgmma_sp")):
        found = Ceilings(slow | {"wgmma_sp_ra": registers, "wgmma_sp": memory}, {})
        assert found.best_sparse == best and found.called == "wgmma.sp" and found.two_instructions
        assert found.lines["wgmma.sp"] == max(registers, memory) == found.of_contenders["auto"][1]
    older = Ceilings({"mma_sp": 300.0}, {})
    assert (older.best_sparse, older.called, older.two_instructions) == ("mma_sp", "mma.sp", False)
    assert list(older.of_contenders) == ["mma_sp"] and Ceilings({}, {}).best_sparse is None
    assert older.lines == {"mma.sp": 300.0} and Ceilings({}, {}).lines == {}


def test_rows_of_b(run):
    """What eight columns more cost is said of shapes with as many tiles, with the counters that show it."""
    rows, counters = experiments.rows(run), experiments.counters_of_rows(run)
    rate = experiments.wide(rows, "tflops")
    choices = experiments.chosen_of_rows(run, rows)
    got = dict(facts.rows(rows, counters, choices))
    us = experiments.wide(rows, "median_us")
    more = us.loc[4096, 4104, 4096] / us.loc[4096, 4160, 4096] - 1
    assert {v: got[f"rows.more.{v}"] for v in more.index} == more.to_dict()
    assert more["wgmma_lean"] > max(0.02, 2 * more["wgmma_lean_tall"]), "the tile is what it depends on"
    assert got["rows.grown.requests"] > 2 and got["rows.best.count"] == 4
    assert sum("after a copy" in str(took) for took in got.values()) == 2
    table = tables.rows(rows)
    assert list(table["rows at [B]"]) == [128, 16, 32, 64, 128, 16, 16, 16] and len(table) == len(rate)
    # Without counters, without choices, and without the two shapes that are compared.
    assert not any("grown" in name for name, _ in facts.rows(rows, Counters({}), choices))
    assert not any("took" in name for name, _ in facts.rows(rows, counters, {}))
    layers = dict(facts.rows(rows[rows["n"] == 1000], counters, {}))
    assert layers["rows.best.count"] == 3 and not any("more" in name for name in layers)
    assert not list(facts.rows(None, counters, {}))


def test_rows_without_records_or_the_kernels(run, tmp_path):
    assert experiments.rows(replace(run, folder=tmp_path)) is None
    assert experiments.rows(replace(run, machine=run.machine | ADA)) is None
    assert experiments.counters_of_rows(replace(run, folder=tmp_path)) == Counters({})


def test_products_of_microseconds(run, tmp_path):
    """Both libraries beside `auto`, and of the trials what the copy engine costs, cold and warm."""
    df = experiments.small(run)
    tried = trials.read(run.folder / "bounds", trials.LADDER)
    us = experiments.wide(df, "median_us")
    got = dict(facts.small(df, tried))
    over = {name: us[name] / us["auto"] for name in ("cusparselt", "cublaslt")}
    assert got["few.best.mean"] == pytest.approx(records.geomean(over["cusparselt"]))
    assert got["few.dense.low"] == over["cublaslt"].min() and got["copies.warm"] > got["copies.cold"] > 0
    table = tables.small(df)
    assert table["over dense"].tolist() == [f"{x:.2f}×" for x in over["cublaslt"]]
    assert table["auto [µs]"].tolist() == [f"{x:.2f}" for x in us["auto"]]
    assert not any("copies" in name for name, _ in facts.small(df, None))
    assert all("copies" in name for name, _ in facts.small(None, tried))
    assert experiments.small(replace(run, folder=tmp_path)) is None
    assert experiments.small(replace(run, machine=run.machine | ADA)) is None


def test_counters_by_columns_are_not_those_of_cubes(run):
    cubes, columns = experiments.counters(run), experiments.counters_of_rows(run)
    assert {size for _, size, _ in cubes.values} == {4096, 8192}
    assert {size for _, size, _ in columns.values} == {4096, 4104}
    same = ("wgmma_lean", 4096, experiments.TIME)
    assert cubes.values[same] == columns.values[same] != columns.values["wgmma_lean", 4104, experiments.TIME]


@pytest.mark.parametrize(("n", "begin"), [(1, 2), (4, 8), (1000, 16), (4112, 32), (4128, 64), (4096, 128), (192, 128)])
def test_where_rows_begin(n, begin):
    assert variants.begin_at(n) == begin


def test_any_size(run, square):
    ragged = experiments.measure(run, "ragged", experiments.RAGGED)
    table = tables.ragged(ragged, square)
    assert table.loc[table["M × N × K"] == "333 × 777 × 1111", "auto"].item().isdigit()
    got = dict(facts.off_by_one(ragged, square))
    assert 0 < got["off.aligned.auto"] < got["off.odd.auto"] < got["off.odd.cublaslt"] < 1
    assert not any("off" in name for name, _ in facts.off_by_one(ragged[ragged["m"] == 1000], square))


def test_float16_and_errors(run, square, both):
    halves = experiments.measure(run, "float16")
    assert tables.float16(halves, square)["contender"].tolist()[0] == "mma_sp"
    assert dict(facts.float16(halves, square))["fp16.error"] == pytest.approx(8, rel=0.05)
    wrong = both.assign(rel_err=np.where(both["variant"] == "cusparselt", 1.0, both["rel_err"]))
    assert dict(facts.errors(wrong, both))["error.most"] < 1  # of a library, which is none of ours


# ---------------------------------------------------------------- machine code, and where there is a GPU


def test_published_machine_code():
    report = pd.DataFrame(
        {
            "variant": "mma_sp",
            "entry": room.VARIANTS["mma_sp"].entries[0],
            "target": "sm_90a",
            "registers": 255,
            "spills": False,
            "HMMA.SP": 64,
        },
        index=[0],
    )
    made = sass.published(report)
    assert made.multiplications == 64 and made.selectors == {"0x0": 32, "0x1": 32}
    assert made.past_l1
    excerpt = sass.published_excerpt(made.loop).splitlines()
    assert excerpt[0].startswith("HMMA.SP") and "…" in excerpt


def test_machine_code_of_the_ladder():
    rows = [
        {
            "variant": name,
            "target": "sm_90a",
            "registers": 168,
            "HGMMA.SP": 8,
            "UTMALDG": 2,
            "instructions": 1000,
            "spills": name == "wgmma_tall",
            "HMMA": 0,
        }
        for name in room.RUNGS
    ]
    report = pd.DataFrame(rows)
    table = sass.ladder_table(report)
    assert table["variant"].tolist() == list(room.RUNGS)
    assert table.loc[table["variant"] == "wgmma_tall", "spills"].item() == "yes"
    assert dict(facts.compiled(report))["compiled.which"] == "wgmma_tall"
    clean = dict(facts.compiled(report.assign(spills=False)))
    assert (clean["compiled.spilling"], clean["compiled.other"]) == (0, 0)


def test_epilogue_is_not_tried_without_a_gpu(run):
    assert epilogue.tried(run) is None
    assert not list(facts.epilogue(None))


@pytest.mark.gpu
def test_epilogue_is_right_on_a_gpu(tmp_path):
    run = harness.start("tensor_core_24", mode="measure", preset="kick", records=tmp_path)
    tried = epilogue.tried(run)
    assert tried.rel_err < 5e-3
    assert 0 < tried.plain_us and 0 < tried.all_us
    assert dict(facts.epilogue(tried))["epilogue.at"] == "1000 × 520 × 712"
