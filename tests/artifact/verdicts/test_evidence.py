"""The records as evidence: what is read, what is refused, what is not there."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import synthetic
from judging import ALL, evidence, frames
from refused import refused

from artifact import registry
from artifact.measure import records
from artifact.verdicts import evidence as evidence_, judge, load
from artifact.verdicts.measures import NOT_MEASURED

CASPER = [claim for claim in load.claims() if claim.room == "casper_sparse"]
FEW = [claim for claim in CASPER if "wide" in claim.experiment][:3]

# ---------------------------------------------------------------- contenders of their own kind


@pytest.mark.parametrize("library", ["cublas_handle", "cublas", "cpu_blas", "cusparselt"])
def test_a_library_is_never_the_best_of_the_system(library):
    """And a system whose baseline is another library than cuSPARSE is read all the same."""
    df = evidence(
        {
            name: df[~df["variant"].str.startswith("cusparse")].replace("rows_per_warp", library)
            for name, df in frames().items()
        }
    ).frame(ALL)  # the library is the fastest of all
    best = df[df["variant"] == "room_best"]
    assert set(best["best_of"]) == {"l2_panels"} and len(best) == len(df.drop_duplicates(evidence_.INDEX))
    assert "cusparse_best" not in set(df["variant"])
    assert set(evidence().frame(ALL).query("variant == 'room_best'")["best_of"]) == {"rows_per_warp"}


# ---------------------------------------------------------------- published series

FIG1 = """# Somebody, Fig. 1.
gpu,library,density,point,m,n,k,tflops
X,cublas,1,0,2,3,4,10
X,sparse,0.5,0,2,3,4,15
X,sparse,0.25,0,2,3,4,30
Y,sparse,0.5,0,2,3,4,5
"""


@pytest.fixture
def series(tmp_path, monkeypatch) -> evidence_.Evidence:
    (tmp_path / "fig1.csv").write_text(FIG1)
    monkeypatch.setattr(registry, "published", lambda system, figure: tmp_path / f"{figure}.csv")
    return evidence_.Evidence(tmp_path / "gpu", "casper_sparse")


def test_a_published_series_is_evidence(series):
    """Rates are those of the dense product, and the dense library stands at every density."""
    df = series.frame(["fig1@X"]).set_index(["variant", "density"])
    assert len(df) == 4 and set(df["experiment"]) == {"fig1@X"}
    assert df["median_us"]["cublas", 0.5] == df["median_us"]["cublas", 0.25]
    assert df["median_us"]["cublas", 0.5] == pytest.approx(48 / 10 / 1e6)
    assert df["tflops"]["sparse", 0.25] == pytest.approx(30 * 0.25) and df["useful_flops"]["sparse", 0.25] == 12


@pytest.mark.parametrize(
    "experiment,error,says",
    [
        ("fig1@Z", ValueError, "no series of the GPU 'Z'"),
        ("fig2@X", FileNotFoundError, "fig2.csv: there are no such published"),
    ],
)
def test_a_series_that_is_not_there_is_an_error(series, experiment, error, says):
    refused(says, series.frame, [experiment], kind=error)


# ---------------------------------------------------------------- some points, several runs


def test_some_points_for_times_and_for_counters():
    table = synthetic.counters({"warp_per_row": {"c": 1}})
    table.loc[table["n"] == 1024, "value"] = 7
    one = evidence(frames(lambda m, n, k, d: 2.0 if n == 1024 else 0.5), table).only(
        {"n": 1024, "density": [0.01, 0.05]}
    )
    df = one.frame(["wide"])
    assert set(df["n"]) == {1024} and set(df["density"]) == {0.01, 0.05}
    assert set(one.counter("warp_per_row", "c", ["wide"])) == {7}
    assert np.allclose(one.ratio(["wide"], "warp_per_row", "cusparse_best"), 2)
    refused("n = 3 or 5", one.only({"n": [3, 5]}).frame, ["wide"], kind=evidence_.NotMeasured)


def test_runs_of_one_measurement_are_one_experiment_of_means():
    made = {name: frames()["wide"].assign(experiment=name) for name in ("wide", "square")}
    made["square"]["median_us"] *= 4
    e = evidence(made)
    runs, apart = e.only({}, repeats=True), e.frame(["wide", "square"])
    df = runs.frame(["wide", "square", "counters"])
    assert set(apart["experiment"]) == {"wide", "square"}, "what is kept of them is kept apart"
    assert e.frame(["wide", "square"]) is apart and runs.frame(["wide", "square"]) is df
    assert set(df["experiment"]) == {"wide and square"} and "room_best" in set(df["variant"])
    assert not df.duplicated(list(records.KEY)).any()
    one = runs.frame(["wide"])
    assert set(one["experiment"]) == {"wide"}
    key = list(records.KEY)
    assert np.allclose(df.set_index(key)["median_us"] / one.set_index(key)["median_us"], 2)


def test_rows_of_some_variants_are_in_the_order_of_the_records():
    e, names = evidence(), ["cusparse_default", "warp_per_row"]
    frame = e.frame(ALL)
    rows = evidence_.rows(e, (*ALL, "counters"), *names)
    assert rows.equals(frame[frame["variant"].isin(names)]) and 0 < len(rows) < len(frame)
    refused(
        "'nobody' was not measured in wide, square",
        e.frame,
        ["wide", "square"],
        "warp_per_row",
        "nobody",
        kind=evidence_.NotMeasured,
    )


def test_a_ratio_is_of_the_points_that_both_have():
    made = frames(2.0)
    wide = made["wide"]
    made["wide"] = wide[~((wide["variant"] == "cusparse_alg2") & (wide["n"] == 1024))].sample(frac=1, random_state=1)
    ratio = evidence(made).ratio(["wide"], "warp_per_row", "cusparse_alg2")
    of = made["wide"].set_index([*evidence_.INDEX, "variant"])["median_us"].unstack()
    expected = (of["cusparse_alg2"] / of["warp_per_row"]).dropna()
    assert 1024 not in ratio.index.get_level_values("n") and len(ratio) == len(expected) > 0
    assert np.allclose(ratio.reindex(expected.index), expected, rtol=1e-12)


# ---------------------------------------------------------------- not there, or not whole


def test_missing_records_are_not_measured_and_say_which(tmp_path):
    """But for the series that a source published, which need no GPU."""
    folder = synthetic.folder(tmp_path / "some", with_ceilings=False)
    (folder / "casper_sparse" / "tall.csv").unlink()
    why = judge.judge(CASPER, folder).query("verdict == @NOT_MEASURED")["why"]
    assert all(why.str.contains(said).any() for said in ("'tall'", "no hardware counters", "ceilings of this GPU"))
    of_records = [c for c in load.claims() if not all(evidence_.SERIES in e for e in c.experiment)][::7]
    assert set(judge.judge(of_records, tmp_path / "nothing")["verdict"]) == {NOT_MEASURED}


def cut(path, points):
    """As Ctrl-C leaves it: every row is whole, but of 21 points only so many are there, which would change verdicts."""
    df = records.read(path)
    records.plan(path, df[list(records.KEY)].itertuples(index=False, name=None))
    records.write(path, df.iloc[: points * len(df) // 21])


@pytest.mark.parametrize(
    "name,break_it,says",
    [
        ("wide.csv", lambda path: path.write_text(path.read_text()[:-40]), r"wide\.csv: row"),
        (
            "machine.json",
            lambda path: path.write_text(path.read_text().replace('"NVIDIA H200"', '""', 1)),
            "'gpu' is missing",
        ),
        ("machine.json", Path.unlink, "machine.json: the record of the machine is missing"),
        *(
            ("wide.csv", partial(cut, points=n), rf"wide\.csv: wide was interrupted after {n} of 21 points")
            for n in (20, 7, 1)
        ),
        ("wide.csv", partial(cut, points=21), None),
    ],
)
def test_a_record_that_is_broken_or_not_whole_is_an_error_and_no_verdict(tmp_path, name, break_it, says):
    folder = synthetic.folder(tmp_path)
    break_it(folder / "casper_sparse" / name)
    with pytest.raises((ValueError, FileNotFoundError), match=says) if says else nullcontext():
        assert len(judge.judge(FEW, folder)) == len(FEW)
