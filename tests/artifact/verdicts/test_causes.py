"""Why a verdict changes from one GPU to another: causes that were put into the records are found, none is made up."""

from dataclasses import replace

import judging
import pandas as pd
import pytest
import synthetic

from artifact.measure import records
from artifact.verdicts import compare, evidence, judge, load, measures

ROOM = "casper_sparse"
CLAIM = next(claim for claim in load.claims() if claim.id == "wide-speedup")
OURS = "warp_per_row"


def claim(*words, experiment=("wide",), room=ROOM):
    typed = dict.fromkeys((*experiment, "ceilings", "counters"), 1.0)
    own = judging.rule(*words, room=room)
    return replace(CLAIM, room=room, experiment=experiment, rule=own, typed=typed, reason="")


def faster(least, partly):
    return claim(judging.SPEEDUP, "geometric mean", {"at_least": least, "partly": partly})


def made(root, gpu="NVIDIA H200", slower=1.0, contender=OURS, machine=None, **columns):
    """A GPU's folder, where one contender takes so many times as long."""
    df = synthetic.experiment("wide", gpu=gpu, **columns)
    rows = df["variant"] == contender
    df.loc[rows, ["median_us", "q25_us", "q75_us"]] *= slower
    df.loc[rows, ["tflops", "gbps"]] /= slower
    slug = gpu.lower().replace(" ", "-")
    folder = synthetic.folder(root, {"wide": df}, gpu, slug)
    if machine:
        records.write_machine(folder / ROOM, synthetic.machine(gpu, slug) | machine)
    return folder


def ceilings(folder, gpu, **slower):
    """The folder's ceilings, some of them so many times as slow."""
    df = synthetic.ceilings(gpu)
    for name, by in slower.items():
        rows = df["variant"] == name
        df.loc[rows, ["median_us", "q25_us", "q75_us"]] *= by
        df.loc[rows, ["gbps", "tflops"]] /= by
    records.write(folder / "ceilings" / "ceilings.csv", df)


def found(asked, first, second) -> tuple[str, str]:
    sides = [
        compare.Side(name, evidence.Evidence(folder, asked.room)) for name, folder in (("A", first), ("B", second))
    ]
    judged = [judge.judge([asked], side.evidence.folder).iloc[0] for side in sides]
    assert judged[0]["verdict"] != judged[1]["verdict"]
    return compare.cause(asked, sides, [row["rests"] for row in judged])


@pytest.fixture
def home(tmp_path):
    return made(tmp_path)


def test_times_that_moved_are_told_with_the_ceiling_that_is_near(home, tmp_path):
    """At 0.7 of cuSPARSE's speed, which reads L2 at its rate, the published kernel comes nearest to L2."""
    other = made(tmp_path, "NVIDIA X1", 1.4, sm_mhz=1500.0)
    ceilings(other, "NVIDIA X1", copy=1.6, l2_read=1.5)
    cause, told = found(faster(0.6, 0.1), home, other)
    assert cause == compare.MOVED
    assert "warp_per_row takes 1.40× on the B (cusparse_best 1.00×). Its times, exchanged alone" in told
    assert "reading the L2 cache" in told and "ratio is 1.50×" in told and "1980 and 1500 MHz" in told


def test_far_from_every_ceiling_how_memories_differ_is_told(tmp_path):
    sides = []
    for gpu, slower in (("NVIDIA H200", 1.0), ("NVIDIA X1", 1.2)):
        df = synthetic.experiment("wide", gpu=gpu, scale=100.0)
        rows = df["variant"] == OURS
        df.loc[rows, ["median_us", "q25_us", "q75_us"]] *= slower
        df.loc[rows, ["tflops", "gbps"]] /= slower
        sides.append(synthetic.folder(tmp_path, {"wide": df}, gpu, gpu.lower().replace(" ", "-")))
    ceilings(sides[1], "NVIDIA X1", copy=1.4, l2_read=1.3)
    _, told = found(faster(0.65, 0.1), *sides)
    assert "comes near to no ceiling" in told and "memory differs by 1.40×" in told and "cache differs by 1.30×" in told


# ---------------------------------------------------------------- close calls


@pytest.mark.parametrize("slower,close", [(1.02, True), (1.029, True), (1.045, False)])
def test_a_close_call_is_close_on_both(home, tmp_path, slower, close):
    """0.7 against 0.7 over `slower`, at a threshold a little under 0.7."""
    other = made(tmp_path, "NVIDIA X1", slower)
    cause, told = found(faster(0.699, 0.1), home, other)
    assert (cause == compare.CLOSE) == close
    if close:
        assert "0.25% on the A" in told and "up to 3.0% counts as close" in told


def test_what_a_second_run_moves_counts_as_close(home, tmp_path):
    other = made(tmp_path, "NVIDIA X1", 1.045)
    again = synthetic.experiment("wide", jitter=0.08)
    records.write(home / ROOM / records.REPEAT / "wide.csv", synthetic.consistent(again))
    cause, told = found(faster(0.699, 0.1), home, other)
    assert cause == compare.CLOSE and "up to 3.0%" not in told


def test_a_share_of_points_is_close_where_the_points_are(tmp_path):
    """Half of the points against all is no small change of a share, but may be one of times; and the reverse."""
    words = (judging.SPEEDUP, {"share_of_points_below": 1.0}, {"at_least": 1.0, "partly": 0.1})
    first = made(tmp_path)
    for gpu, ratio, close in (("NVIDIA X1", 1.2, False), ("NVIDIA Y2", 1.01, True)):
        made_of = synthetic.experiment("wide", lambda m, n, k, d, r=ratio: r if n > 4096 else 0.99, gpu=gpu)
        df = {"wide": made_of}
        folder = synthetic.folder(tmp_path, df, gpu, gpu.lower().replace(" ", "-"))
        near = {"wide": synthetic.experiment("wide", 0.99)}
        first = synthetic.folder(tmp_path / gpu, near)
        assert (found(claim(*words), first, folder)[0] == compare.CLOSE) == close


def test_a_trend_moves_without_what_all_its_points_have_in_common(tmp_path):
    """Twice as slow at every size, and at the largest by 2% more: that alone decides, and it is little."""
    words = ({"tflops": OURS}, {"trend": "n"}, {"rises": -0.5, "each_step": True})
    rate = {2**i: i for i in range(9, 16)}
    folders = []
    for gpu, scale, last in (("NVIDIA H200", 1.0, 1.01), ("NVIDIA X1", 2.0, 0.99)):
        df = synthetic.experiment("wide", gpu=gpu)
        rows = df["variant"] == OURS
        steps = df["n"].map(lambda n, last=last: 1.2 ** min(rate[n], 14) * (last if n == 2**15 else 1))
        us = df["useful_flops"] / steps / 1e9 * scale
        for column in ("median_us", "q25_us", "q75_us"):
            df.loc[rows, column] = us[rows]
        df["tflops"] = df["useful_flops"] / df["median_us"] / 1e6
        df["gbps"] = df["least_bytes"] / df["median_us"] / 1e3
        folders.append(synthetic.folder(tmp_path, {"wide": df}, gpu, gpu.lower().replace(" ", "-")))
    assert found(claim(*words), *folders)[0] == compare.CLOSE


# ---------------------------------------------------------------- other evidence


def test_counters_on_one_gpu_and_bytes_on_the_other(home, tmp_path):
    other = made(tmp_path, "NVIDIA X1", 1.4)
    sides = [compare.Side(name, evidence.Evidence(folder, ROOM)) for name, folder in (("A", home), ("B", other))]
    cause, told = compare.cause(faster(0.6, 0.1), sides, [("counters", "wide"), ("ceilings", "wide")])
    assert cause == compare.KIND
    assert "by hardware counters on the A, by bytes over the ceiling of copying on the B" in told


def test_what_a_verdict_rests_on_is_what_was_read(home):
    use = {"dram_use": OURS, "metric": "dram"}
    asked = claim(use, "median", {"at_most": 5, "partly": 6}, experiment=("wide", "ceilings", "counters"))
    (row,) = judge.judge([asked], home).itertuples()
    assert row.rests == ("ceilings", "wide")
    synthetic.write_counters(home / ROOM, {OURS: {"dram": 20.0}})
    (row,) = judge.judge([asked], home).itertuples()
    assert row.rests == ("counters", "wide")
    assert compare._basis(("counters", "wide"), ("ceilings", "wide")) == compare.TWO_KINDS
    assert compare._basis((f"fig9{evidence.SERIES}A100",), (f"fig9{evidence.SERIES}A100",)) == compare.NO_GPU
    assert compare._basis((), ()) == compare.NO_GPU and compare._basis(("wide",), ("wide",)) == compare.OWN


def test_a_claim_about_ceilings_names_the_one_that_decides(tmp_path):
    """NM-SpMM's transition: from arithmetic over bandwidth alone."""
    words = ({"roofline_transition": [64, 128]}, "each point", {"at_least": 0.3, "partly": -1.0})
    asked = claim(*words, experiment=("ceilings",), room="nm_spmm")
    first = synthetic.folder(tmp_path, {})
    other = synthetic.folder(tmp_path, {}, "NVIDIA X1", "nvidia-x1")
    ceilings(other, "NVIDIA X1", copy=1.6, l2_read=1.6)
    cause, told = found(asked, first, other)
    assert cause == compare.MOVED and told.startswith("copy 4,000 and 2,500 GB/s (1.60×). Exchanged alone, it gives")
    ceilings(other, "NVIDIA X1", fma=1 / 1.6)
    assert found(asked, first, other)[1].startswith("fma ")


def test_a_counter_is_told_with_how_memories_differ(home, tmp_path):
    words = ({"counter": "dram__x", "of": OURS}, "median", {"at_most": 25, "partly": 26})
    other = made(tmp_path, "NVIDIA X1")
    for folder, gpu, value in ((home, "NVIDIA H200", 20.0), (other, "NVIDIA X1", 32.0)):
        synthetic.write_counters(folder / ROOM, {OURS: {"dram__x": value}}, gpu)
    asked = claim(*words, experiment=("wide", "counters"))
    ceilings(other, "NVIDIA X1", copy=1.6)
    cause, told = found(asked, home, other)
    assert cause == compare.MOVED and "1.60× on the B" in told and "memory differs by 1.60×" in told


def test_the_gpu_that_a_source_speaks_of(tmp_path):
    """The rule says "not reproduced" of both; on another GPU than the source's that is no contradiction."""
    asked = replace(faster(2.0, 1.9), depends_on=load.GPU, gpu=("H200",))
    cause, told = found(asked, made(tmp_path), made(tmp_path, "NVIDIA X1"))
    assert cause == compare.SOURCE and "H200" in told


# ---------------------------------------------------------------- the shipped records


@pytest.fixture(scope="module")
def shipped():
    from artifact import paths

    first, *others = records.list_gpus(paths.RECORDED)
    if not others:
        pytest.skip("One GPU has records.")
    home = paths.RECORDED / "nvidia-h200"
    other = next(g for g in (first, *others) if g != home.name)
    return compare.compare(home, paths.RECORDED / other)


def test_every_change_of_the_shipped_records_has_a_cause_and_its_numbers(shipped):
    changed = shipped.verdicts[~shipped.verdicts["agrees"]]
    assert len(changed) and set(changed["cause"]) <= set(compare.CAUSES)
    assert changed["told"].str.contains(r"\d").all()
    assert (shipped.verdicts.loc[shipped.verdicts["agrees"], ["cause", "told"]] == "").all(axis=None)
    text = compare.report(shipped)
    for row in changed.itertuples():
        assert f"{row.cause}: {row.told}" in text


def test_series_of_sources_are_counted_apart(shipped):
    n = compare.counted(shipped.verdicts)
    given = (shipped.verdicts[["fresh", "shipped"]] != measures.NOT_MEASURED).all(axis=1)
    theirs = {c.id for c in load.claims() if c.experiment and all("@" in e for e in c.experiment)}
    apart = given & shipped.verdicts["id"].isin(theirs)
    assert n["no_gpu"] >= apart.sum() > 0 and n["own"] + n["no_gpu"] == given.sum()
    assert shipped.verdicts.loc[apart, "basis"].eq(compare.NO_GPU).all()
    assert n["kept"] == n["own"] - (~shipped.verdicts["agrees"]).sum()


def test_what_one_gpu_lacks_is_named(shipped):
    df = shipped.verdicts
    one = (df[["fresh", "shipped"]] == measures.NOT_MEASURED).sum(axis=1) == 1
    assert (df.loc[one, "lacks"] != "").all() and (df.loc[~one, "lacks"] == "").all()


def test_every_cause_has_a_name_of_its_own():
    assert pd.Series(compare.CAUSES).is_unique
