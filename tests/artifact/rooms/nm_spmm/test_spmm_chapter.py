"""Tables and sentences of the chapter: on the shipped records, and on made-up ones whose answers are known."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from artifact import paths
from artifact.drawing import cells
from artifact.drawing.words import change, listed
from artifact.measure import records, run
from artifact.profiling import ncu
from artifact.rooms.nm_spmm import counters, figures, machine_code, model, pictures, results, tables
from artifact.rooms.nm_spmm.contenders import LADDER, TRIALS, takes
from artifact.rooms.nm_spmm.points import by_density, mean, of, over
from artifact.rooms.nm_spmm.prose import beyond, closing, ladder, paper, theory
from artifact.rooms.nm_spmm.trial import SPARSITIES, Trial, start
from artifact.rooms.nm_spmm.words import at_each, from_sparsity, point_of, typeset
from artifact.verdicts.measures import NOT_REPRODUCED
from kernels import jit
from kernels import nm_spmm as room

SHIPPED = paths.RECORDED / "nvidia-h200"
CUBE = (4096, 4096, 4096)
LOOP = """
.L_x_1:
        /*0010*/                   FFMA R1, R2.reuse, R4, R1 ;
        /*0020*/                   FFMA R3, R2, R5, R4 ;
        /*0030*/                   LDS.128 R4, [R8] ;
        /*0040*/                   FFMA R6, R3, R5, R6 ;
        /*0050*/                   BRA `(.L_x_1) ;
"""


@pytest.fixture(scope="module")
def trial() -> Trial:
    return start(mode="recorded")


@pytest.fixture(scope="module")
def counted(trial) -> counters.Counters:
    return counters.read(trial.run)


@pytest.fixture(scope="module")
def bars(trial) -> results.Bars:
    return results.bars(trial, trial.measure("anchors"))


@pytest.fixture(scope="module")
def outcome(trial) -> pd.DataFrame:
    return results.outcome(trial.rungs, trial.measure("stepwise"), trial.measure("anchors"))


@pytest.fixture
def report() -> pd.DataFrame:
    """Two entries of one variant, one of a tensor-core variant, one of another target."""
    rows = [
        ("v3", "v3<1>", "sm_90a", 96, 100, False, 30, 100, 0),
        ("v3", "v3<2>", "sm_90a", 128, 200, True, 60, 100, 0),
        ("tf32", "tf32<1>", "sm_90a", 64, 0, False, 0, 100, 8),
        ("v1", "v1<1>", "sm_80", 64, 0, False, 40, 100, 0),
    ]
    columns = ["variant", "entry", "target", "registers", "shared_bytes", "spills", "FFMA"]
    return pd.DataFrame(rows, columns=[*columns, "instructions", "HGMMA"])


def record(*points) -> pd.DataFrame:
    """points: (variant, (m, n, k), density, TFLOP/s of useful work[, label])."""
    rows = []
    for variant, (m, n, k), density, tflops, *label in points:
        flops = 2.0 * m * n * k * density
        rows.append(
            {"variant": variant, "label": label[0] if label else "", "m": m, "n": n, "k": k}
            | {"density": density, "median_us": flops / tflops / 1e6, "tflops": tflops}
            | {"rel_err": 1e-7, "useful_flops": flops, "sm_mhz": 1980, "throttle": "none"}
        )
    return pd.DataFrame(rows).reindex(columns=list(records.COLUMNS))


def sound(text: str) -> bool:
    """A sentence without a hole in it."""
    return bool(text.strip()) and not re.search(r"\bnan\b|\binf\b|[{}]|None|  ", text)


# ---------------------------------------------------------------- words and series


def test_words():
    assert listed([]) == "" and listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
    assert change(1.25) == "25% faster" and change(0.9) == "10% slower"
    assert change(1.019) == "the same within 2%"
    assert point_of(("", *CUBE, 0.25)) == point_of((*CUBE, 0.25)) == "4096³ and 75%"
    assert point_of(("", 512, 4, 8, 0.375)) == "512 × 4 × 8 and 62.5%"
    assert at_each(pd.Series({0.5: 1.2, 0.125: 2})) == "1.20× at 50% and 2.00× at 87.5%"
    assert typeset("1.15x over v3: 8 x 8, 512 cubed") == "1.15× over v3: 8 x 8, 512³"
    assert [from_sparsity(v) for v in (0, 0.7, 1)] == ["always", "from 70% sparsity on", "never"]


def test_speedups_are_of_points_that_both_have():
    df = record(("a", CUBE, 0.5, 30), ("b", CUBE, 0.5, 10), ("a", CUBE, 0.25, 30))
    assert over(df, "a", "b").to_dict() == pytest.approx({("", *CUBE, 0.5): 3.0})
    assert np.isnan(mean(over(df, "a", "c")))
    assert list(by_density(of(df, "a")).index) == [0.5, 0.25]


# ---------------------------------------------------------------- the trial


def test_trial_reads_ceilings_and_experiments(trial):
    fma = records.ceilings(SHIPPED)["fma"]["tflops"]
    assert trial.fma == fma and trial.arch == trial.target == "sm_90a"
    stepwise = trial.measure("stepwise")
    assert {"v1", "v3", "auto", "cublas"} <= set(stepwise["variant"])
    assert trial.measure("stepwise") is stepwise
    assert trial.tensor()["label"].str.startswith(("tf32", "bfloat16")).all()
    assert set(trial.measure("tried")["variant"]) >= {"bulk", *TRIALS}


def test_a_missing_record_is_one_sentence(tmp_path):
    shutil.copytree(SHIPPED / "ceilings", tmp_path / "nvidia-h200" / "ceilings")
    room_folder = tmp_path / "nvidia-h200" / "nm_spmm"
    room_folder.mkdir()
    for name in ("machine.json", "stepwise.csv", "anchors.csv"):
        shutil.copy(SHIPPED / "nm_spmm" / name, room_folder)
    found = start(mode="recorded", folder=tmp_path)
    assert not found.has("tried") and found.has("stepwise")
    with pytest.raises(FileNotFoundError, match=r"no records of nm_spmm/llama .*measure it on a GPU"):
        found.measure("llama")
    counted = counters.read(found.run)
    assert counted.profiled == [] and len(tables.pipes(counted, 0.5)) == 0
    assert ladder.waits(counted) == ladder.fetches(counted) == ""


def test_a_gpu_takes_what_is_compiled_for_it():
    assert takes("v3", "sm_120") and takes("auto", "sm_80") and takes("cublas", "sm_80")
    assert takes("bulk", "sm_90a") and not takes("bulk", "sm_80")
    assert not takes(next(iter(TRIALS)), "sm_80")


# ---------------------------------------------------------------- tables


def test_tables_of_kernels_and_analysis(trial):
    assert list(tables.variants()["variant"]) == [f"<code>{v}</code>" for v in room.VARIANTS]
    assert list(tables.blockings()["threads"]) == [64, 64, 128]
    proposed = tables.proposed(trial.here)
    assert list(proposed[""]) == list("ABCDEF")
    assert proposed["k_s at 87.5%"].str.endswith(", packed").all()


def test_compiled(report):
    rows = tables.compiled(report, "sm_90a").set_index("variant")
    v3, tf32 = rows.loc["<code>v3</code>"], rows.loc["<code>tf32</code>"]
    assert (v3["kernels"], v3["registers"], v3["spilling"]) == (2, "96 to 128", 1)
    assert (v3["FFMA"], v3["of all instructions"]) == (60, "60%")
    assert (tf32["of all instructions"], tf32["tensor-core instructions"]) == ("–", 8)
    assert "<code>v1</code>" not in rows.index  # of another target
    said = theory.compiled(report, "sm_90a")
    assert "for sm_90a" in said and "1 of 4 spills" in said


def test_llama_means_are_those_of_the_record(trial):
    df = records.read(SHIPPED / "nm_spmm" / "llama.csv")
    us = df.pivot(index=["m", "n", "k", "density"], columns="variant", values="median_us")
    ratio = (us["cublas"] / us["auto"]).xs(0.25, level="density")
    shown = tables.llama(trial.measure("llama"), trial.stated["fig9"]).set_index("sparsity")
    assert shown.loc["75%", "auto"] == f"{np.exp(np.log(ratio).mean()):.2f}×"
    assert list(shown["ideal"]) == [f"{1 / d:.2f}×" for d in SPARSITIES]
    said = paper.llama(trial.measure("llama"), trial.stated)
    assert f"over {len(ratio)} points a sparsity" in said and sound(said)
    rebuilt = us["nmsparse_vw32"] / us["auto"]
    assert f"and {np.exp(np.log(rebuilt).mean()):.2f}× nmSPARSE's kernel, rebuilt" in said
    of_75 = np.exp(np.log(rebuilt.xs(0.25, level="density")).mean())
    assert shown.loc["75%", "auto over it"] == f"{of_75:.2f}×"


def test_llama_of_records_without_nmsparse_itself(trial):
    """Older records have our kernel in its style alone: it then stands in the table, under its own name."""
    df = trial.measure("llama")
    df = df[df["variant"] != "nmsparse_vw32"]
    shown, said = tables.llama(df, trial.stated["fig9"]), paper.llama(df, trial.stated)
    assert "nmSPARSE-style" in shown and "rebuilt" not in said and sound(said)


def test_best_of_three():
    shapes = {"A": (512, 512, 512), "F": CUBE}
    rate = {"small": (20, 10), "medium": (15, 30), "large": (10, 20), "auto": (22, 36)}
    df = record(*((v, s, 0.5, r[i]) for v, r in rate.items() for i, s in enumerate(shapes.values())))
    table = tables.best_of_three(df, shapes).set_index("")
    assert table["Table II"].to_dict() == {"A": "small", "F": "large"}
    assert table["50%"].to_dict() == {"A": "small", "F": "medium"}
    assert "at 1 of 2 points" in paper.classes_of_table_2(df)
    assert "1.15× of the best of the three, 1.10 to 1.20×; most at 4096³" in paper.auto_over_classes(df)


def test_figure_8_beside_ours():
    """The three kernels over the best of them; 40 and 60 at two sparsities are 0.71 of 40 and 60 on the mean."""
    rates = {"small": (20, 30), "medium": (40, 30), "large": (40, 60)}
    df = record(*((v, CUBE, d, r[i]) for v, r in rates.items() for i, d in enumerate((0.5, 0.25))))
    theirs = pd.DataFrame(
        {
            "gpu": "A100",
            "library": v,
            "density": d,
            "m": 4096,
            "n": 4096,
            "k": 4096,
            "split_k": 1 + i,
        }
        | {"tflops": 10.0 * (1 + i), "tflops_one_pass": 10.0 * (2 - i)}
        for i, v in enumerate(("small", "large"))
        for d in (0.5, 0.25, 0.125)
    )
    (row,) = tables.fig8(df, theirs).to_dict("records")
    assert row["matrix"] == "F: 4096³"
    shown = {name: row[f"{name}, here"] for name in rates}
    assert shown == {"small": "0.50×", "medium": "0.71×", "large": "1.00×"}
    assert (row["small, theirs"], row["large, theirs"]) == ("0.50× (1.00×)", "1.00× (0.50×)")
    said = paper.fig8(theirs)
    assert "on an A100" in said and "one pass is the best at 3 of 6 points" in said
    assert "brings 1.00× on the mean and 2.00× at most" in said
    assert tables.fig8(df, theirs[theirs["m"] == 1]).empty


def test_the_profiles_of_figure_10_exchange_two_shares_of_the_text(trial):
    said = paper.fig10(trial.stated)
    assert "49% for nmSPARSE at 62.5%, where the text has 63%" in said
    assert "62% for nmSPARSE at 75%, where the text has 49%" in said and "The other 3" in said
    right = trial.stated["fig10"].query("density != 0.375 and density != 0.25")
    assert "exchanged" not in paper.fig10(trial.stated | {"fig10": right})


def test_packing():
    df = record(
        *(("v3_packed", CUBE, d, 20) for d in (0.5, 0.25, 0.125)),
        *(("v3_unpacked", CUBE, d, r) for d, r in ((0.5, 25), (0.25, 10), (0.125, 40))),
    )
    assert list(tables.packing(df)["packed over whole"]) == ["0.80×", "2.00×", "0.50×"]
    said = paper.packing(df)
    assert said.endswith("the cost is left.") and (
        "hide that load, packing pays at 75%. The rule of 70% is right at 2 of 3 sparsities. " in said
    )
    assert "only the cost is left" in said
    never = df.assign(median_us=df["median_us"].where(df["variant"] == "v3_unpacked", 1e9))
    assert paper.packing(never).startswith("Packing pays at no sparsity here.")


def test_tables_of_what_goes_beyond(trial):
    few = tables.few_tiles(trial.measure("anchors"), trial.here.sm_count)
    assert (few["tiles of 64 × 128 per SM"].astype(float) < 1).all() and len(few)
    gain = tables.few_tiles_gain(trial.measure("anchors"), trial.here.sm_count)
    assert len(gain) == len(few) and list(gain)[-1] == "auto" and "v3" not in gain
    first = few.iloc[0]
    expected = float(first["v3 [µs]"]) / float(first["auto [µs]"])
    assert gain["auto"].iloc[0] == expected and first["sparsity"] in gain.index[0]
    assert tables.few_tiles(trial.measure("anchors"), 1).empty
    assert beyond.few_tiles(trial.measure("anchors"), 1) == ""
    assert len(tables.ragged(trial.measure("ragged"))) == 6
    loose = trial.measure("unstructured")
    first = tables.unstructured(loose).iloc[0]
    row = loose[(loose[["m", "n", "k"]] == 512).all(axis=1) & (loose["density"] == 0.5)]
    us = row.set_index("variant")["median_us"]
    least = us[us.index.str.startswith("cusparse")].min()
    assert first["auto over cuSPARSE"] == f"{least / us['auto']:.1f}×"


def test_failed_claims():
    row = {"says": "a `b` <c>", "published": 1, "measured": "2", "why": "no", "id": "x"}
    verdicts = pd.DataFrame([row | {"verdict": NOT_REPRODUCED}, row | {"verdict": "reproduced"}])
    failed = tables.failed(verdicts)
    assert failed.to_dict("records") == [
        {"claim": "a <code>b</code> &lt;c&gt;", "published": "1", "measured": "2", "why": "no"}
    ]
    assert closing.failed(failed) == "**What is not reproduced, and why**"
    none = tables.failed(verdicts[1:])
    assert len(none) == 0 and closing.failed(none).startswith("Every claim is reproduced")


# ---------------------------------------------------------------- sentences


def test_sentences_of_the_shipped_records(trial, counted, bars, outcome, report):
    m = trial.measure
    random = model.random_patterns(k=512, n=1024, seed=0)
    steps = {d: model.durations(trial, model.published_tile(trial, d), d) for d in (0.5, 0.125)}
    compared = figures.tensor(trial.tensor())[1]
    said = [
        theory.stored(room.problem(*CUBE, density=0.25)),
        theory.packable(pictures.footprint({f"{d} s": b for d, b in random.items()})[1]),
        theory.col_info(model.col_info_shares(random), trial.stated),
        theory.transitions(trial, model.shifts(trial), 0.7),
        theory.classes(trial.here, tables.proposed(trial.here)),
        theory.deepest_step(trial.here),
        theory.pipelines(steps),
        paper.stepwise(m("stepwise"), trial.fma),
        paper.packing(m("packing")),
        paper.first_bar(bars),
        paper.second_bar(trial, bars, m("stepwise")),
        paper.rebuilt(bars),
        ladder.predictions(outcome),
        ladder.waves(pictures.shares((32, 16), 64, 132)[1], 512, 132, m("stepwise")),
        ladder.trials(results.trials(m("tried"))),
        ladder.waits(counted),
        ladder.fetches(counted),
        beyond.few_tiles(m("anchors"), trial.here.sm_count),
        beyond.vectors(m("vectors")),
        beyond.ragged(m("ragged")),
        beyond.largest_error([m("stepwise"), m("ragged")]),
        beyond.unstructured(m("unstructured")),
        beyond.crossings(compared),
        beyond.tensor_rates(trial.tensor(), m("stepwise")),
        closing.falls_short(trial, bars, outcome, compared, counted),
    ]
    assert [text for text in said if not sound(text)] == []
    short = closing.in_short(trial, bars, counted)
    assert "nan" not in short and short.count("\n- ") == 4


def test_stepwise_at_two_sparsities():
    rates = {"v1": (20, 10), "v2": (20, 15), "v3": (40, 18), "cublas": (50, 50)}
    df = record(*((v, CUBE, d, r) for v, rs in rates.items() for d, r in zip((0.5, 0.125), rs, strict=True)))
    said = paper.stepwise(df, fma=80)
    assert "V3 holds 50% at 50% and 22% at 87.5% of the FMA ceiling of 80.0" in said
    assert "At 0% sparsity" not in said
    assert "At moderate sparsity V2 is at 1.00× at 50% of V1, V3 at 2.00× at 50% of V2." in said
    assert "is waited for, is 50% faster on average, the pipelines 20% faster" in said
    assert paper.steps_at_high(df[df["density"] == 0.5]) is None


def test_a_share_that_is_level_and_then_falls_is_said_in_one_clause():
    shares = pd.Series({1.0: 0.71, 0.5: 0.69, 0.375: 0.72, 0.25: 0.66, 0.125: 0.55})
    assert paper._held(shares) == "about 69% up to 75% sparsity, and falls to 55% at 87.5%"
    rising = pd.Series({0.5: 0.4, 0.25: 0.6, 0.125: 0.7})
    assert paper._held(rising).startswith("40% at 50%")


def made_up_bars(trial, gain, tflops=60.0, mhz=1980.0, **rebuilt) -> results.Bars:
    """`auto` is `gain` times as fast as the authors' kernels, which are 2× as fast as cuBLAS. rebuilt: kernels of ours
    -> how many times as fast as the authors'."""
    theirs = [
        {"library": library, "m": 4096, "n": 4096, "k": 4096, "density": d, "speedup": 2.0}
        for d in SPARSITIES
        for library in ("nm_spmm", "nmsparse")
    ]
    rates = {"auto": tflops, "v3": tflops / gain, "nm_baseline": tflops / 2 / gain}
    rates |= {v: tflops / gain * x for v, x in rebuilt.items()}
    df = record(*((v, CUBE, d, r) for d in SPARSITIES for v, r in rates.items()))
    dense = record(*(("cublas", CUBE, d, tflops / gain / 2) for d in SPARSITIES))
    df = pd.concat([df, dense]).assign(sm_mhz=mhz, throttle="power cap")
    stated = trial.stated | {"anchors": pd.DataFrame(theirs)}
    return results.bars(Trial(trial.run, stated, trial.here, trial.gbps), df)


def test_bars_that_are_met(trial):
    bars = made_up_bars(trial, 1.21, tflops=0.9 * trial.fma)
    assert bars.ours.tolist() == pytest.approx([1.21] * 4) and bars.missed.empty
    assert (
        "at **1.21 to 1.21×** at 4096³ and at **1.21 to 1.21×** in the geometric mean over all 1 shapes"
        in paper.first_bar(bars)
    )
    assert "None of the 4 points gains less than 10%." in paper.first_bar(bars)
    said = paper.second_bar(trial, bars, trial.measure("stepwise"))
    assert "**90.0% to 90.0%**, so at least 80% at all 3 points" in said and "clock" not in said
    assert mean(bars.ported) == pytest.approx(1.0) and mean(bars.nm_baseline) == pytest.approx(0.5)
    table = tables.against_authors(bars)
    assert list(table["auto"]) == ["2.42×"] * 4


def test_what_was_rebuilt_is_held_against_the_authors_code(trial):
    """Without and with the kernels as they were run: V3's search at 0.5× of its rate, nmSPARSE's at 0.98×."""
    bars = made_up_bars(trial, 1.0)
    assert not bars.searched and bars.nmsparse.empty
    said = paper.rebuilt(bars)
    assert "with split-K where that is better, is at 1.00×" in said and "Table I does not have" in said
    assert "0.50× of nmSPARSE's: ratios over it have to be read with that in mind." in said
    bars = made_up_bars(trial, 1.0, v3_searched=1.02, nmsparse_vw32=0.98)
    assert bars.searched and mean(bars.ported) == pytest.approx(1.02)
    said = paper.rebuilt(bars)
    assert "with the best of their tiles and numbers of shares of k" in said and "Table I" not in said
    assert "nmSPARSE's, and what we rebuilt of nmSPARSE's own at 0.98×, 0.98 to 0.98×." in said
    assert "V3 so searched is within 5% at all 4 points." in said
    said = paper.rebuilt(made_up_bars(trial, 1.0, v3_searched=1.02, nmsparse_vw32=0.9))
    assert "nmSPARSE is off by more than 5% at 4 of 4 points: 4 where it takes longer" in said
    assert "takes longer, 0.90 to 0.90×, for which" in said


def test_bars_that_are_missed(trial):
    bars = made_up_bars(trial, 1.0, tflops=0.7 * trial.fma, mhz=990.0)
    assert "below the 1.10× that were the aim at 4096³, " in paper.first_bar(bars)
    assert "4 of 4 points gain less than 10%, with m of at most 4,096." in paper.first_bar(bars)
    said = paper.second_bar(trial, bars, trial.measure("stepwise"))
    assert "3 of 3 points stay below 80%." in said
    assert bars.capped and "lowered its clock to 990 to 990 MHz" in said and "power cap" in said
    short = closing.falls_short(
        trial,
        bars,
        pd.DataFrame({"rung": ["wide"], "predicted": [1.2], "came": [1.0]}),
        None,
        counters.Counters(pd.DataFrame(), {}),
    )
    assert "- `auto` is below 1.10× of the authors' speedups at " in short
    assert "all while the power limit held the clock down" in short
    assert "- Our predictions for `wide` were off by more than 5%." in short
    assert "On tensor cores" not in short and short.endswith("Hardware counters were not recorded.")


def test_predictions_name_what_they_are_over(outcome):
    assert results.before("stream") == "bulk" and results.before(LADDER[0]) == "v3"
    assert set(outcome["rung"]) <= {*LADDER, "auto"}
    two = pd.DataFrame({"predicted": [1.0, 1.2, np.nan], "came": [1.04, 1.0, 1.0]})
    assert ladder.predictions(two).startswith("Of 2 predictions with a number, 1 is within 5%")
    assert ladder.predictions(two[2:]).startswith("All rungs")
    assert tables.predictions(outcome)["came of it"].str.contains("× over <code>").all()


def test_trials_over_what_they_name():
    df = record(("bulk", CUBE, 0.5, 50), ("shallow", CUBE, 0.5, 40), ("body_4", CUBE, 0.5, 40))
    found = results.trials(df)  # body_4 is over rolled, which the record lacks
    assert list(found["trial"]) == ["shallow"] and found["came"][0][0.5] == pytest.approx(0.8)
    assert tables.trials(found)["50%"].tolist() == ["0.80×"]
    assert ladder.trials(found).startswith("1 of 1 lose at every sparsity. 1 of the expectations")


def test_absent_rungs():
    assert ladder.absent(LADDER) == ""
    assert ladder.absent(LADDER[1:]).startswith(f"Not for this GPU: `{LADDER[0]}`")


def test_crossings():
    line = {"variant": "tf32", "vector": 32, "m": 4096, "n": 4096, "k": 4096}
    rows = [(0.5, 0.8, 0.6), (0.125, 1.5, 0.6)]
    compared = pd.DataFrame([line | dict(zip(("density", "speedup", "crossing"), r, strict=True)) for r in rows])
    assert beyond.crossings(compared) == ("- `tf32`, vectors of 32, 4096³: wins from 60% sparsity on; 1.50× at 87.5%.")
    never = compared.assign(crossing=np.nan)
    assert "never wins" in beyond.crossings(never)
    assert "wins at every sparsity" in beyond.crossings(compared.assign(crossing=0.0))


def test_roofline_without_v3_says_nothing(trial):
    rows = pd.DataFrame(columns=["source", "variant", "density", "tflops", "dram"])
    assert beyond.roofline(trial, rows, {}) == ""


def test_roofline(trial, counted):
    eq3 = model.by_eq3(trial)
    assert ("auto", 0.5) in eq3 and eq3["v3", 0.125] < eq3["v3", 0.5]
    ceilings = {"FMA": trial.fma, **trial.gbps}
    rows = figures.roofline(counted.rows, eq3, ceilings, trial.stated["text"])[1]
    table = tables.roofline(rows, trial.fma, trial.stated["text"]).set_index("contender")
    assert "(paper: " in table.loc["v3", "50%"] and sound(beyond.roofline(trial, rows, eq3))


# ---------------------------------------------------------------- counters, machine code


def test_counters_are_those_of_the_record(counted):
    rows = counted.rows[(counted.rows["variant"] == "v3") & (counted.rows["density"] == 0.5)]
    us = rows.set_index("metric")["value"][ncu.TIME] / 1e3
    table = tables.pipes(counted, 0.5).set_index("contender")
    assert table.loc["v3", "µs"] == f"{us:.0f}"
    assert np.isnan(counted.get("v3", 0.5, "no such metric"))
    assert len(tables.stalls(counted, 0.5)) == len(counted.profiled) > 5


def test_clashes(report, monkeypatch):
    monkeypatch.setattr(machine_code, "sass", lambda variant, entry, target: LOOP)
    found = machine_code.clashes(report, "sm_90a", ["v3", "tf32", "v1"])
    assert list(found.index) == ["v3"]  # tf32 has no FFMA, v1 is of another target
    v3 = found.loc["v3"]
    assert v3["useful"] == pytest.approx(3 / 5) and v3["clash"] == pytest.approx(2 / 3)
    assert v3["left"] == pytest.approx(0.6 / 1.4)
    assert machine_code.loop_bytes(report, "sm_90a", ["v3", "v1"]) == {"v3": 5 * 16}
    assert list(tables.clashes(found, {"v3": 0.5})["reached, best sparsity"]) == ["50%"]
    above = ladder.clashes(found, {"v3": 0.5}, record(("v3", CUBE, 0.5, 1)))
    assert "`v3` is above it" in above
    assert "above it" not in ladder.clashes(found, {"v3": 0.4}, record(("v3", CUBE, 0.5, 1)))


def test_compiler_is_named_where_it_differs():
    assert ladder.compiler(f"{jit.nvrtc_version()}.12") == ""
    assert "that of NVRTC 12.0.1" in ladder.compiler("12.0.1")


def test_own_problem_is_compiled(trial):
    own = room.problem(m=100, n=64, k=128, density=0.25, vector=64, seed=1)
    table = machine_code.own(trial.here, own, "sm_90a")
    assert list(table["variant"]) == [f"<code>v{i}</code>" for i in (1, 2, 3)]
    assert (table["FFMA"] > 0).all() and (table["registers"].between(32, 255)).all()
    with pytest.raises(ValueError, match="reads 4 neighbouring columns"):
        machine_code.own(trial.here, room.problem(m=64, n=64, k=64, vector=6), "sm_90a")


def test_own_problem_is_not_run_without_a_gpu(trial, monkeypatch):
    said = []
    monkeypatch.setattr(cells, "display", said.append)
    cells.run_own(trial.run, room.problem(m=100, n=64, k=128), ["v3", "cublas"])
    assert [shown.data for shown in said] == ["There is no GPU here, so it was compiled and not run."]


@pytest.mark.gpu
def test_own_problem_runs(device, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(cells, "display", said.append)
    found = run.start("nm_spmm", mode="measure", preset="kick", records=tmp_path)
    own = room.problem(m=1000, n=1024, k=768, density=0.25, group=32, vector=64, seed=7)
    cells.run_own(found, own, ["v1", "v3", "cublas"])
    shown = np.reshape(re.findall(r"<td>(.*?)</td>", said[0].data), (3, 4))
    assert shown[:2, 0].tolist() == ["v1", "v3"]
    assert (shown[:, 1].astype(float) > 0).all() and shown[2, 2] == "1.00×"
    assert (shown[:, 3].astype(float) < 1e-5).all()


def test_the_roofline_shows_nmsparse_to_the_letter_where_it_was_profiled():
    values = {(v, 0.5, ncu.TIME): 1.0 for v in ("v1", "v3", "nm_baseline", "auto", "cublas")}
    older = counters.Counters(pd.DataFrame(), values)
    assert older.in_roofline == ["auto", "v3", "nm_baseline", "cublas"]
    newer = counters.Counters(pd.DataFrame(), values | {("nmsparse_vw32", 0.5, ncu.TIME): 1.0})
    assert newer.in_roofline == ["auto", "v3", "nmsparse_vw32", "cublas"]
    rows = pd.DataFrame({"source": "measured", "variant": newer.in_roofline, "tflops": 30.0, "density": 0.5})
    stated = pd.DataFrame([("peak_share", "nmsparse", 0.5, 0.64)], columns=["quantity", "variant", "density", "low"])
    shown = tables.roofline(rows, 60.0, stated)
    assert list(shown.iloc[2]) == ["nmsparse_vw32", "50% (paper: 64%)"]


def test_rebuildings_beside_what_they_rebuild_in_one_run(trial):
    beside = trial.stated["rebuilt"]
    table, text = tables.side_by_side(beside), paper.side_by_side(beside)
    assert list(table["sparsity"]) == ["50%", "62.5%", "75%", "87.5%"] and table.shape[1] == 3
    for variant, speeds in results.rebuilt(beside).items():
        assert f"`{variant}` is {speeds.prod() ** (1 / len(speeds)):.2f}× as fast" in text
        assert f"{speeds.min():.2f}× at " in text and f"of {len(speeds)} points within 5%" in text
    assert " On an " not in text
    (gpu,) = trial.rebuilt_elsewhere
    text = paper.side_by_side(beside, trial.rebuilt_elsewhere)
    for speeds in results.rebuilt(trial.rebuilt_elsewhere[gpu]).values():
        assert f"is at {speeds.prod() ** (1 / len(speeds)):.2f}×, {speeds.min():.2f} to " in text
    assert gpu == "H100" and text.count(" On an H100 ") == 1


def test_whose_gpu_the_authors_kernels_ran_on(trial):
    assert paper.authors_elsewhere(trial) == ""
    away = replace(trial, run=replace(trial.run, gpu="nvidia-a100"))
    assert "ran on an NVIDIA H200; against this GPU" in paper.authors_elsewhere(away)
