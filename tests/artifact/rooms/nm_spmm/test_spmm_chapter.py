"""Tables and analysis of the chapter: on the shipped records, and on made-up ones whose answers are known."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest

from artifact import paths
from artifact.drawing import cells
from artifact.measure import records, run
from artifact.profiling import ncu
from artifact.rooms.nm_spmm import counters, facts, figures, machine_code, model, pictures, results, tables
from artifact.rooms.nm_spmm.contenders import LADDER, TRIALS, takes
from artifact.rooms.nm_spmm.points import by_density, mean, of, over
from artifact.rooms.nm_spmm.trial import SPARSITIES, Trial, start
from artifact.rooms.nm_spmm.words import point_of, typeset
from artifact.verdicts.measures import NOT_REPRODUCED
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


# ---------------------------------------------------------------- words and series


def test_words():
    assert point_of(("", *CUBE, 0.25)) == point_of((*CUBE, 0.25)) == "4096³ and 75%"
    assert point_of(("", 512, 4, 8, 0.375)) == "512 × 4 × 8 and 62.5%"
    assert typeset("1.15x over v3: 8 x 8, 512 cubed") == "1.15× over v3: 8 x 8, 512³"


def test_the_last_steps_are_those_that_the_picture_draws():
    tiles, deep = model.schedule("rolled")
    last = pictures.shares(tiles, deep, 132)[1].groupby("schedule")["end"].max()
    assert model.last_steps("rolled", 132) == last.to_dict()


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
    assert list(facts.waits(counted)) == []


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


def test_llama_means_are_those_of_the_record(trial):
    df = records.read(SHIPPED / "nm_spmm" / "llama.csv")
    us = df.pivot(index=["m", "n", "k", "density"], columns="variant", values="median_us")
    ratio = (us["cublas"] / us["auto"]).xs(0.25, level="density")
    shown = tables.llama(trial.measure("llama"), trial.stated["fig9"]).set_index("sparsity")
    assert shown.loc["75%", "auto"] == f"{np.exp(np.log(ratio).mean()):.2f}×"
    assert list(shown["ideal"]) == [f"{1 / d:.2f}×" for d in SPARSITIES]
    rebuilt = us["nmsparse_vw32"] / us["auto"]
    of_75 = np.exp(np.log(rebuilt.xs(0.25, level="density")).mean())
    assert shown.loc["75%", "auto over it"] == f"{of_75:.2f}×"


def test_best_of_three():
    shapes = {"A": (512, 512, 512), "F": CUBE}
    rate = {"small": (20, 10), "medium": (15, 30), "large": (10, 20), "auto": (22, 36)}
    df = record(*((v, s, 0.5, r[i]) for v, r in rate.items() for i, s in enumerate(shapes.values())))
    table = tables.best_of_three(df, shapes).set_index("")
    assert table["Table II"].to_dict() == {"A": "small", "F": "large"}
    assert table["50%"].to_dict() == {"A": "small", "F": "medium"}


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
    assert tables.fig8(df, theirs[theirs["m"] == 1]).empty


def test_packing():
    df = record(
        *(("v3_packed", CUBE, d, 20) for d in (0.5, 0.25, 0.125)),
        *(("v3_unpacked", CUBE, d, r) for d, r in ((0.5, 25), (0.25, 10), (0.125, 40))),
    )
    assert list(tables.packing(df)["packed over whole"]) == ["0.80×", "2.00×", "0.50×"]
    assert results.rule_is_right(results.won_by_packing(df)) == [0.5, 0.25]


def test_tables_of_what_goes_beyond(trial):
    few = tables.few_tiles(trial.measure("anchors"), trial.here.sm_count)
    assert (few["tiles of 64 × 128 per SM"].astype(float) < 1).all() and len(few)
    gain = tables.few_tiles_gain(trial.measure("anchors"), trial.here.sm_count)
    assert len(gain) == len(few) and list(gain)[-1] == "auto" and "v3" not in gain
    first = few.iloc[0]
    expected = float(first["v3 [µs]"]) / float(first["auto [µs]"])
    assert gain["auto"].iloc[0] == expected and first["sparsity"] in gain.index[0]
    assert tables.few_tiles(trial.measure("anchors"), 1).empty
    assert list(facts.few_tiles(trial.measure("anchors"), 1)) == []
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
    assert len(tables.failed(verdicts[1:])) == 0


# ---------------------------------------------------------------- sentences


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
    assert bars.below.empty and bars.short.empty and bars.reached.tolist() == pytest.approx([0.9] * 3)
    assert mean(bars.ported) == pytest.approx(1.0) and mean(bars.nm_baseline) == pytest.approx(0.5)
    table = tables.against_authors(bars)
    assert list(table["auto"]) == ["2.42×"] * 4


def test_what_was_rebuilt_is_held_against_the_authors_code(trial):
    """Without and with the kernels as they were run: V3's search at 0.5× of its rate, nmSPARSE's at 0.98×."""
    bars = made_up_bars(trial, 1.0)
    assert not bars.searched and bars.nmsparse.empty
    bars = made_up_bars(trial, 1.0, v3_searched=1.02, nmsparse_vw32=0.9)
    assert bars.searched and mean(bars.ported) == pytest.approx(1.02)
    found = dict(facts.rebuilt(bars))
    assert found["apart.v3_searched.off"] == 0 and found["nmsparse.mean"] == pytest.approx(0.9)
    assert found["apart.nmsparse_vw32.off"] == found["apart.nmsparse_vw32.longer"] == 4
    assert found["apart.nmsparse_vw32.low"] == pytest.approx(0.9)


def test_bars_that_are_missed(trial):
    bars = made_up_bars(trial, 1.0, tflops=0.7 * trial.fma, mhz=990.0)
    assert len(bars.missed) == 8 and len(bars.below) == 4 and len(bars.short) == 3
    assert bars.capped and (bars.clock == 990).all() and (bars.throttle == "power cap").all()


def test_predictions_name_what_they_are_over(outcome):
    assert results.before("stream") == "bulk" and results.before(LADDER[0]) == "v3"
    assert set(outcome["rung"]) <= {*LADDER, "auto"}
    two = pd.DataFrame({"rung": ["bulk", "wide", "turned"], "predicted": [1.0, 1.2, np.nan], "came": [1.04, 1.0, 1.0]})
    found = dict(facts.ladder(LADDER, two))
    assert (found["predictions.count"], found["predictions.near"], found["predictions.wrong"]) == (2, 1, "`wide`")
    assert tables.predictions(outcome)["came of it"].str.contains("× over <code>").all()


def test_trials_over_what_they_name():
    df = record(("bulk", CUBE, 0.5, 50), ("shallow", CUBE, 0.5, 40), ("body_4", CUBE, 0.5, 40))
    found = results.trials(df)  # body_4 is over rolled, which the record lacks
    assert list(found["trial"]) == ["shallow"] and found["came"][0][0.5] == pytest.approx(0.8)
    assert tables.trials(found)["50%"].tolist() == ["0.80×"]


def test_roofline(trial, counted):
    eq3 = model.by_eq3(trial)
    assert ("auto", 0.5) in eq3 and eq3["v3", 0.125] < eq3["v3", 0.5]
    ceilings = {"FMA": trial.fma, **trial.gbps}
    rows = figures.roofline(counted.rows, eq3, ceilings, trial.stated["text"])[1]
    table = tables.roofline(rows, trial.fma, trial.stated["text"]).set_index("contender")
    assert "(paper: " in table.loc["v3", "50%"]


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
    measured = record(("v3", CUBE, 0.5, 1))
    assert dict(facts.clashes(found, {"v3": 0.5}, measured))["clash.above"] == 1
    assert dict(facts.clashes(found, {"v3": 0.4}, measured))["clash.above"] == 0


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
    table = tables.side_by_side(beside)
    assert list(table["sparsity"]) == ["50%", "62.5%", "75%", "87.5%"] and table.shape[1] == 3
    assert list(trial.rebuilt_elsewhere) == ["H100"]
