"""Tables and sentences of the chapter, on the shipped records and on what other GPUs or parts of them would give."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from artifact.drawing.cells import NO_COUNTERS
from artifact.measure import records
from artifact.measure import run as harness
from artifact.rooms.tensor_core_24 import (
    epilogue,
    experiments,
    prepare,
    sass,
    tables,
    trials,
    variants,
)
from artifact.rooms.tensor_core_24.experiments import Ceilings, Counters
from artifact.rooms.tensor_core_24.prose import hopper_ladder, published_kernel, tuned_family
from kernels import tensor_core_24 as room
from kernels.formats import two_four

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
    assert "1 shapes, 1 combinations" in tuned_family.chosen(table, ceilings, run.gpu)
    nowhere = variants.chosen(replace(run, gpu="none"), keys)
    empty = tables.chosen(nowhere, both, ceilings)
    assert "no shipped file" in tuned_family.chosen(empty, ceilings, "none")


# ---------------------------------------------------------------- the published kernel


def test_what_a_compressed_matrix_takes():
    text = published_kernel.compressed(two_four.random(64, 64, "bfloat16", 0))
    assert "8,192 bytes dense and 4,608 compressed, 56.2%" in text


def test_pruning_is_told_or_said_to_be_missing(run, tmp_path):
    told = published_kernel.pruned(prepare.measure(run))
    assert "µs at" in told and "GB/s" in told
    missing = prepare.measure(replace(run, folder=tmp_path))
    assert published_kernel.pruned(missing).endswith("was not recorded.")


def test_share_of_the_library(square):
    share = published_kernel.share(square, BENCHMARKS)
    assert set(share.there) <= set(square["m"]) and 4096 in share.there
    assert not share.carries_over
    assert "does not carry over" in published_kernel.over_the_library(square, share)
    better = faster(square, "mma_sp", 1 / share.measured.min())
    share = published_kernel.share(better, BENCHMARKS)
    assert share.carries_over
    assert published_kernel.over_the_library(better, share).endswith("carries over to this GPU.")


def test_the_instruction_is_a_reason_only_where_there_are_two(square, ceilings):
    text = published_kernel.instruction(square, ceilings)
    assert "which no kernel with `mma.sp` can" in text
    one = Ceilings({"mma": 400.0, "mma_sp": 700.0}, ceilings.sm_mhz)
    assert one.best_sparse == "mma_sp" and list(one.of_contenders) == ["mma_sp"]
    assert published_kernel.instruction(square, one) == ""
    assert Ceilings({}, {}).best_sparse is None


def test_gain_and_loss_against_the_dense_instruction(square, ceilings):
    peaks = {"mma_sp": 900.0, "wgmma": 1000.0, "wgmma_sp": 1500.0}
    assert "loses 10%" in published_kernel.instruction(square, Ceilings(peaks, {}))
    peaks["mma_sp"] = 1200.0
    assert "gains 20%" in published_kernel.instruction(square, Ceilings(peaks, {}))


def test_shared_memory_with_counters_and_without(square, ceilings, counters, run):
    clocks = published_kernel.clocks(ceilings, run.machine["sm_count"], BENCHMARKS)
    share = published_kernel.share(square, BENCHMARKS)
    rest = share, BENCHMARKS
    assert clocks.level
    text = published_kernel.shared_memory(square, ceilings, clocks, *rest, counters)
    assert "both take nearly the same time" in text and "Nsight Compute counts" in text
    text = published_kernel.shared_memory(square, ceilings, clocks, *rest, Counters({}))
    assert text.endswith(NO_COUNTERS)
    slow = replace(clocks, shared=2 * clocks.here)
    assert "here\nthey do not." in published_kernel.shared_memory(square, ceilings, slow, *rest, counters)
    assert published_kernel.clocks(Ceilings({}, {}), 132, BENCHMARKS) is None
    assert published_kernel.shared_memory(square, ceilings, None, *rest, counters) == ""


def test_side_studies_tell_each_choice(studies, run, counters):
    shapes = room.sweeps("full")["studies"]
    text = published_kernel.side_studies(studies, run.machine, counters, shapes)
    assert text.count("\n- **") == len(variants.STUDIES)
    assert text.count("*Predicted:") == len(variants.STUDIES)
    assert "Conflicts are" in text
    assert "nan" not in text


def test_side_studies_that_are_not_there(studies, run):
    shapes = room.sweeps("full")["studies"]
    some = studies[~studies["variant"].isin(["mma_sp_x2", "mma_sp_stages_5"])]
    text = published_kernel.side_studies(some, run.machine | ADA, Counters({}), shapes)
    assert "half a step ahead**: was not recorded." in text
    assert "5 stages**: does not fit into the shared memory of this GPU." in text
    assert "Conflicts are" not in text


def test_a_study_that_costs_is_said_to(studies, run, counters):
    shapes = room.sweeps("full")["studies"]
    slow = faster(studies, "mma_sp_x2", 0.5)
    text = published_kernel.side_studies(slow, run.machine, counters, shapes)
    assert "In this kernel it costs." in text


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
    assert tables.gains_rounded(ada) is None and hopper_ladder.what_came(ada) == ""
    assert "no `wgmma`" in hopper_ladder.only_compiled(run.machine | ADA)
    assert hopper_ladder.only_compiled(run.machine) == ""


def test_table_of_the_rungs():
    table = tables.rungs()
    assert table["rung"].tolist() == [f"<code>{name}</code>" for name in room.RUNGS]
    assert table["tile"].iloc[0] == "128 × 128"


def test_what_came_counts_the_predictions_that_hit(ladder):
    gains = tables.gains(ladder)
    assert gains["predicted"].notna().any()
    hit = gains.set_index("rung")["predicted"]
    frame = ladder.frame[ladder.frame["variant"].isin(["mma_sp", "wgmma_one_stage"])]
    rung = ladder.rungs["wgmma_one_stage"]
    factor = hit[rung.name] / replace(ladder, frame=frame).gain(rung.name, 4096)
    exact = faster(frame[frame["m"] == 4096], rung.name, factor)
    one = replace(ladder, frame=exact, rungs={rung.name: rung}, climbed=[4096], has_gaps=False)
    text = hopper_ladder.what_came(one)
    assert "Of 1 predictions with a number, 1 was within 5% of what came at 4096³: `wgmma_one_stage`." in text
    assert "A dash" not in text
    assert "A dash" in hopper_ladder.what_came(ladder)


def test_profile_and_its_sentences(ladder, counters, ceilings, run):
    profile = experiments.profile(counters, ladder)
    assert profile.sizes and profile.holds("wgmma_keep", "auto")
    assert not profile.holds("wgmma_keep", "cusparse")
    assert len(tables.profile(profile).data) == len(profile.contenders)
    for text in (
        hopper_ladder.profiled(profile),
        hopper_ladder.shared_memory(profile, ceilings),
        hopper_ladder.from_l2(profile, ladder, 132),
        hopper_ladder.clock(profile, ladder, run.machine),
    ):
        assert text and "nan" not in text


def test_without_counters(ladder, ceilings, run, square, both):
    none = experiments.profile(Counters({}), ladder)
    assert tables.profile(none) is None
    assert hopper_ladder.profiled(none) == NO_COUNTERS
    assert hopper_ladder.shared_memory(none, ceilings) == ""
    assert hopper_ladder.from_l2(none, ladder, 132) == ""
    assert hopper_ladder.clock(none, ladder, run.machine) == ""
    over = tuned_family.speedups(both)
    assert tuned_family.what_is_left(none, square, over, ceilings) == ""
    ideas = hopper_ladder.more_ideas(ladder, Counters({}), 132)
    assert len(ideas) == 11
    assert not any("handle" in idea or "million" in idea for idea in ideas)


def test_records_from_before_a_rung_have_a_ladder_without_it():
    """As the H100's: of the rungs that a GPU runs, those that were measured."""
    there = harness.start("tensor_core_24", "recorded", "nvidia-h100-80gb-hbm3")
    measured = set(records.read(there.folder / "ladder.csv")["variant"])
    ladder = experiments.ladder(there)
    assert set(ladder.rungs) == measured & set(room.RUNGS)
    assert ladder.climbed == [4096, 8192]
    assert hopper_ladder.more_ideas(ladder, experiments.counters(there), 132)


def test_counters_of_a_missing_file(run, tmp_path):
    assert experiments.counters(replace(run, folder=tmp_path)) == Counters({})


def test_more_ideas(ladder, counters):
    multicast, packed, stream_k, split_k, few, last, refilling, three, pieces, threads, gpc = hopper_ladder.more_ideas(
        ladder, counters, 132
    )
    assert "Yet without it" in multicast
    assert "of `wgmma_tall`" in packed and "L2 handles" in packed
    assert "3.88 waves at 4096³" in stream_k  # 512 tiles on 132 SMs
    assert "2048³ has 256, 4096³ has 1024" in split_k
    assert "of `wgmma_keep`" in few and "144, 95 and 76 million instructions" in few
    assert "2.67 waves at 4096³, of which the last is too full" in last  # 352 tiles
    assert "10.42 waves at 8192³, of which the last is cut" in last
    assert "of `wgmma_lean_tall`" in refilling and "the clock that power leaves" in refilling
    assert "begin with 128 registers a thread" in three and "69 million instructions instead of 141" in three
    assert "lost in clock rate again" in three
    assert "2.67 waves at 4096³, of which the last is too full to be cut" in pieces
    assert "whose 56 last ones become 112 of at most 128 rows" in pieces and "4% fewer clocks" in pieces
    assert "of `wgmma_ring`" in threads and "where there are 8192 of them, as at 4096³" in threads
    assert "of 8 rows instead of 16" in gpc and "Hoped for was half." in gpc
    nothing = hopper_ladder.more_ideas(without_ladder(ladder), counters, 132)
    assert nothing == ["Nothing of it was measured on this GPU."]


def test_what_multiplications_take_alone(run, ladder, counters):
    """Nearly all of the clocks; of a kernel that waited as long again, half."""
    profile, bounds = experiments.profile(counters, ladder), experiments.counters(run, "bounds")
    text = hopper_ladder.alone(bounds, profile)
    assert "128 × 256 1.33 of 1.36 million clocks (97%), loads alone 1.29" in text
    assert "192 × 256 1.36 of 1.36 million clocks (100%)" in text and "it is the instruction" in text
    assert "shared memory delivers 87 to 88% of 128 bytes" in text and "nan" not in text
    assert "at most 3% of the clocks are to be had" in text
    waits = {
        (v, size, m): 2 * x if m == experiments.TIME and not v.endswith("ed") else x
        for (v, size, m), x in bounds.values.items()
    }
    waiting = hopper_ladder.alone(Counters(waits), profile)
    assert "not all hidden" in waiting and "at most" not in waiting
    assert hopper_ladder.alone(Counters({}), profile) == ""
    assert hopper_ladder.alone(bounds, experiments.profile(Counters({}), ladder)) == ""


# ---------------------------------------------------------------- the family


def test_against_the_libraries(both):
    over = tuned_family.speedups(both)
    text = tuned_family.against_libraries(over)
    assert f"Over all {len(over.best)} shapes" in text and "nan" not in text
    assert len(over.large) + len(over.small) == len(over.best)
    ahead = tuned_family.speedups(faster(both, "auto", 2))
    text = tuned_family.against_libraries(ahead)
    assert "nowhere behind" in text and "All of them reach 1.10×." in text
    behind = tuned_family.speedups(faster(both, "auto", 0.5))
    text = tuned_family.against_libraries(behind)
    assert "Under 0.95×:" in text and "None of them reach 1.10×" in text


def test_the_ceiling_is_of_the_faster_loop():
    """With A in registers on one GPU, from shared memory on another."""
    slow = {"mma_sp": 900.0, "wgmma": 800.0}
    for registers, memory, best in ((1760.0, 1640.0, "wgmma_sp_ra"), (1680.0, 1700.0, "wgmma_sp")):
        found = Ceilings(slow | {"wgmma_sp_ra": registers, "wgmma_sp": memory}, {})
        assert found.best_sparse == best and found.called == "wgmma.sp" and found.two_instructions
        assert found.lines["wgmma.sp"] == max(registers, memory) == found.of_contenders["auto"][1]
    older = Ceilings({"mma_sp": 300.0}, {})
    assert (older.best_sparse, older.called, older.two_instructions) == ("mma_sp", "mma.sp", False)
    assert older.lines == {"mma.sp": 300.0} and Ceilings({}, {}).lines == {}


def test_level_is_not_behind():
    def said(ratio: float) -> str:
        return tuned_family._behind({(512, 512, 512): ratio, (1024, 1024, 1024): 1.2})

    assert said(1.02) == ""
    assert said(1.005) == said(0.995) == ", and level with it at 512³"
    assert said(0.985) == ", so behind at 512³"


def test_rows_of_b(run):
    """What eight columns more cost is said of shapes with as many tiles, with the counters that show it."""
    rows, counters = experiments.rows(run), experiments.counters_of_rows(run)
    rate = experiments.wide(rows, "tflops")
    choices = variants.chosen(run, rate.index)
    text = tuned_family.rows(rows, counters, choices)
    us = experiments.wide(rows, "median_us")
    more = us.loc[4096, 4104, 4096] / us.loc[4096, 4160, 4096] - 1
    assert f"`wgmma_lean` takes {more['wgmma_lean']:+.0%} of time; cuSPARSELt's best {more['cusparselt']:+.0%}" in text
    assert more["wgmma_lean"] > max(0.02, 2 * more["wgmma_lean_tall"]), "the tile is what it depends on"
    assert "of the requests of `wgmma_lean`" in text and "after a copy" in text and "nan" not in text
    assert "Over the 4 shapes with such rows" in text
    table = tables.rows(rows)
    assert list(table["rows at [B]"]) == [128, 16, 32, 64, 128, 16, 16, 16] and len(table) == len(rate)
    # Without counters, without choices, and without the two shapes that are compared.
    assert "of the requests" not in tuned_family.rows(rows, Counters({}), choices)
    assert "the tuner took" not in tuned_family.rows(rows, counters, {})
    layers = rows[rows["n"] == 1000]
    assert "Eight columns" not in tuned_family.rows(layers, counters, {})
    assert "Over the 3 shapes" in tuned_family.rows(layers, counters, {})
    assert tuned_family.rows(None, counters, {}) == ""


def test_rows_without_records_or_the_kernels(run, tmp_path):
    assert experiments.rows(replace(run, folder=tmp_path)) is None
    assert experiments.rows(replace(run, machine=run.machine | ADA)) is None
    assert experiments.counters_of_rows(replace(run, folder=tmp_path)) == Counters({})


def test_products_of_microseconds(run, tmp_path):
    """Both libraries beside `auto`, and of the trials what the copy engine costs, cold and warm."""
    df = experiments.small(run)
    tried = trials.read(run.folder / "bounds", trials.LADDER)
    us = experiments.wide(df, "median_us")
    text = tuned_family.small(df, tried)
    over = {name: us[name] / us["auto"] for name in ("cusparselt", "cublaslt")}
    for ratio in over.values():
        assert f"at {records.geomean(ratio):.2f}×" in text and f"{ratio.min():.2f}× at its" in text
    assert (over["cublaslt"] > 1).all() and "behind" not in text
    assert "it is not its trip to DRAM" in text and "nan" not in text
    table = tables.small(df)
    assert table["over dense"].tolist() == [f"{x:.2f}×" for x in over["cublaslt"]]
    assert table["auto [µs]"].tolist() == [f"{x:.2f}" for x in us["auto"]]

    slower = tuned_family.small(faster(df, "cublaslt", 1.5), None)
    assert "behind it at 512³ (0." in slower and "copy engine" not in slower
    gone = tried.assign(value=tried["value"].where(tried["trial"] != "copy_engine_warm", 5.1))
    assert "so part of it is the trip to DRAM" in tuned_family.small(df, gone)
    assert tuned_family.small(None, tried) == ""
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


def test_version_of_the_library(run):
    assert "0.8.1" in tuned_family.version({"cusparselt": "0.8.0"})
    assert tuned_family.version({"cusparselt": "0.9.0"}).strip() == "The library is cuSPARSELt 0.9.0."
    assert "unknown version" in tuned_family.version({})


def test_what_is_left(ladder, counters, square, both, ceilings):
    profile = experiments.profile(counters, ladder)
    over = tuned_family.speedups(both)
    text = tuned_family.what_is_left(profile, square, over, ceilings)
    assert "What is missing" in text and "nan" not in text
    met = tuned_family.speedups(faster(both, "auto", 2))
    assert "What is left" in tuned_family.what_is_left(profile, square, met, ceilings)


def test_any_size(run, square):
    ragged = experiments.measure(run, "ragged", ["mma_sp", "auto", "cublaslt"])
    table = tables.ragged(ragged, square)
    assert table.loc[table["M × N × K"] == "333 × 777 × 1111", "auto"].item().isdigit()
    assert "loses" in tuned_family.one_off(ragged, square)
    slow = faster(ragged, "cublaslt", 10)
    assert "not everywhere ahead" in tuned_family.one_off(slow, square)
    assert tuned_family.one_off(ragged[ragged["m"] == 1000], square) == ""


def test_float16_and_errors(run, square, both):
    halves = experiments.measure(run, "float16")
    assert tables.float16(halves, square)["contender"].tolist()[0] == "mma_sp"
    assert "in BF16 at" in tuned_family.float16(halves, square)
    wrong = both.assign(rel_err=np.where(both["variant"] == "cusparselt", 1.0, both["rel_err"]))
    text = tuned_family.errors(wrong, both)
    assert "1.0e+00" not in text  # of a library, which is none of ours
    assert "(`" in text and "ms for `auto` at" in text


def test_in_short(run, square, both, ceilings, studies, ladder):
    share = published_kernel.share(square, BENCHMARKS)
    clocks = published_kernel.clocks(ceilings, run.machine["sm_count"], BENCHMARKS)
    over, mean = tuned_family.speedups(both), published_kernel.mean_of(studies)
    code = sass.Published(pd.DataFrame(), 64, {"0x0": 32, "0x1": 32}, True, [])
    text = tuned_family.in_short(code, share, clocks, ceilings, mean, ladder, over)
    assert "64 `mma.sp` a step with both selectors, copies past L1." in text
    assert "because `mma.sp` sustains" in text and "The ladder goes from" in text
    other = replace(code, past_l1=False)
    text = tuned_family.in_short(other, share, clocks, Ceilings({}, {}), mean, without_ladder(ladder), over)
    assert "copies past L1" not in text and "because" not in text and "The ladder" not in text


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
    assert "64, 32 with selector 0 and 32 with selector 1. All copies" in published_kernel.code(made)
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
    assert "**Spilling: wgmma_tall**" in hopper_ladder.compiled(report)
    clean = report.assign(spills=False)
    assert "**Nothing spills**" in hopper_ladder.compiled(clean)
    assert "instructions there are none." in hopper_ladder.compiled(clean)


def test_epilogue_is_not_tried_without_a_gpu(run):
    assert epilogue.tried(run) is None
    assert tuned_family.epilogue(None) == ""


@pytest.mark.gpu
def test_epilogue_is_right_on_a_gpu(tmp_path):
    run = harness.start("tensor_core_24", mode="measure", preset="kick", records=tmp_path)
    tried = epilogue.tried(run)
    assert tried.rel_err < 5e-3
    assert 0 < tried.plain_us and 0 < tried.all_us
    assert "1000 × 520 × 712 is" in tuned_family.epilogue(tried)
