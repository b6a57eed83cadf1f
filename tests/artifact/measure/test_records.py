"""Records: what is written can be read, what is wrong is named, and nothing is half there."""

import json
import math
import re
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import synthetic
from hypothesis import HealthCheck, given, settings, strategies as st
from refused import refused

from artifact import paths, registry
from artifact.measure import external, files, records
from artifact.measure.device import slug
from artifact.paths import HOME
from artifact.verdicts import load


def row(**changes) -> dict:
    """One row; its rates follow from its work and time, unless they are changed themselves."""
    base = {
        "room": "casper_sparse",
        "experiment": "wide",
        "variant": "warp_per_row",
        "label": "",
        "m": 4096,
        "n": 512,
        "k": 4096,
        "density": 0.01,
        "nnz": 125829,
        "seed": 0,
        "median_us": 50.0,
        "q25_us": 49.0,
        "q75_us": 51.0,
        "samples": 100,
        "flops_def": "2*nnz*n",
        "useful_flops": 2.0 * 125829 * 512,
        "least_bytes": 1.8e7,
        "requested_bytes": 2.6e8,
        "rel_err": 2e-7,
        "max_err": 1e-5,
        "prepare_ms": 0.5,
        "prepare_bytes": 0,
        "graph": False,
        "sm_mhz": 1980.0,
        "power_w": 350.0,
        "throttle": "",
        "gpu": "NVIDIA H200",
        "when": "2026-01-02T03:04:05+00:00",
    } | changes
    us = base["median_us"] or math.nan
    return {"tflops": base["useful_flops"] / us / 1e6, "gbps": base["least_bytes"] / us / 1e3} | base


def frame(*changes: dict) -> pd.DataFrame:
    return pd.DataFrame([row(**change) for change in changes])


@pytest.fixture
def wide(tmp_path):
    return records.write(
        tmp_path / "wide.csv",
        frame({}, {"n": 1024}, {"variant": "cusparse_alg2", "median_us": 40.0, "q25_us": 39.0}),
    )


def spoil(path, old: str, new: str, count=1):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


# ---------------------------------------------------------------- reading and writing


TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters='<>"'), max_size=12)
VALUES = st.fixed_dictionaries(
    {
        "n": st.integers(1, 2**31),
        "density": st.floats(0, 1),
        "median_us": st.floats(1e-3, 1e9),
        "label": TEXT,
        "sm_mhz": st.one_of(st.floats(1, 3000), st.just(math.nan)),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(st.lists(VALUES, min_size=1, max_size=6, unique_by=lambda v: (v["n"], v["density"], v["label"])))
def test_round_trip(tmp_path, values):
    df = frame(*(v | {"q25_us": v["median_us"], "q75_us": v["median_us"]} for v in values))
    back = records.read(records.write(tmp_path / "wide.csv", df))
    for column in values[0]:
        pd.testing.assert_series_equal(back[column], df[column].astype(back[column].dtype))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.data())
def test_a_record_cut_anywhere_is_refused_or_lacks_whole_rows(wide, tmp_path, data):
    text = wide.read_text()
    cut = data.draw(st.integers(0, len(text) - 1))
    path = records.write_text(tmp_path / "cut" / "wide.csv", text[:cut])
    try:
        df = records.read(path)
    except ValueError as error:
        assert str(path) in str(error) and "row" in str(error) and "column" in str(error)
    else:
        assert text[:cut].endswith("\n") and len(df) == text[:cut].count("\n") - 1


@pytest.mark.parametrize(
    "old,new,says",
    [
        ("median_us", "median", "row 1, column 'median_us'"),
        (",gpu,when", ",gpu,when,mood", "row 1, column 'mood'"),
        (",1024,", ",nan,", "row 3, column 'n'"),
        (",1024,", ",0.5,", "row 3, column 'n'"),
        (",1024,", ",-4,", "row 3, column 'n'"),
        (",1024,", ",,", "row 3, column 'n'"),
        (",0.01,", ",1.5,", "row 2, column 'density'"),
        (",0.01,", ",inf,", "row 2, column 'density'"),
        (
            ",1024,",
            ",512,",
            "row 3, column 'variant'",
        ),
        (",False,", ",maybe,", "row 2, column 'graph'"),
        ("05+00:00", "05", "row 2, column 'when'"),
        (
            ",2026-01",
            ",0001-01",
            "row 2, column 'when'",
        ),
        (",125829,0,", ",0,0,", "row 2, column 'nnz'"),
        (",125829,0,", ",125829,7,", "row 3, column 'seed'"),
        (",125829,0,", ",125828,0,", "row 4, column 'nnz'"),
        (",100,", ",1,", "row 2, column 'samples'"),
        (",1980.0,", ",1e99,", "row 2, column 'sm_mhz'"),
        (",4096,512,", f",{10**23},512,", "row 2, column 'm'"),
        (",260000000.0,", ",1.0,", "row 4, column 'requested_bytes'"),
        (",2e-07,", ",0.001,", "row 2, column 'rel_err'"),
        ("warp_per_row", "<b>", "row 2, column 'variant'"),
        ("2*nnz*n", "2·nnz·N", "row 4, column 'flops_def'"),
        ("2*nnz*n", "2·M·N·K", "row 2, column 'useful_flops'"),
        ("05+00:00", "05+02:00", "row 2, column 'when'"),
        (",49.0,", ",99.0,", "row 2, column 'median_us'"),
        (",51.0,", ",49.5,", "row 2, column 'median_us'"),
        (
            ",50.0,49.0,51.0,",
            ",500.0,490.0,510.0,",
            "row 2, column 'tflops'",
        ),
        (
            ",360.0,",
            ",3600.0,",
            "row 2, column 'gbps'",
        ),
        (",2e-07,", ",0.9,", "row 2, column 'rel_err'"),
        (",1e-05,", ",0.9,", "row 2, column 'max_err'"),
        (
            "casper_sparse,wide,cusparse",
            "casper_sparse,tall,cusparse",
            "row 4, column 'experiment'",
        ),
        ("2*nnz*n", "", "row 2, column 'flops_def'"),
        (
            "NVIDIA H200,2026",
            "RTX,2026",
            "row 3, column 'gpu'",
        ),
        (",2026-01-02T03:04:05+00:00", "", "row 2, column 'when'"),
        ("05+00:00", "05+00:00,7", "row 2, column 'when'"),
    ],
)
def test_a_foreign_record_is_one_sentence(wide, old, new, says):
    spoil(wide, old, new)
    refused(f"^{wide}: .*{re.escape(says)}", records.read, wide)


@pytest.mark.parametrize("place", ["", "repeat"])
@pytest.mark.parametrize(
    ("foreign", "says"),
    [
        ({"experiment": "tall"}, "'tall' is not 'wide', after which the file"),
        ({"room": "nm_spmm"}, "'nm_spmm' is not 'casper_sparse', in whose"),
        ({"gpu": "NVIDIA RTX"}, "'NVIDIA RTX' is not 'NVIDIA H200', the GPU of machine.json"),
    ],
)
def test_a_record_belongs_where_it_lies(tmp_path, place, foreign, says):
    """In a file of its experiment's name, beside the machine of its GPU, in its system's folder."""
    system = tmp_path / "nvidia-h200" / "casper_sparse"
    records.write_machine(system, synthetic.machine())
    path = records.write(system / place / "wide.csv", frame({}))
    text, ((column, value),) = path.read_text(), foreign.items()
    path.write_text(text.replace(str(row()[column]), value))
    refused(f"{path}: row 2, column '{column}': {says}", records.read, path)
    path.write_text(text)
    refused("row 2, column", records.append, path, [row(n=4096) | foreign])
    assert path.read_text() == text
    # The second measurement may have been made on another machine, and says so.
    records.write_machine(path.parent, synthetic.machine("NVIDIA RTX"))
    refused("'NVIDIA H200' is not 'NVIDIA RTX'", records.read, path)


@pytest.mark.parametrize(
    ("limits", "experiment", "most"),
    [({}, "wide", 4e-3), ({"usual": "tf32"}, "wide", 1e-4), ({"wide": "float16"}, "wide", 1e-3)],
)
def test_a_system_says_how_wrong_its_results_may_be(monkeypatch, limits, experiment, most):
    monkeypatch.setattr(records.registry, "find", lambda: {"a_room": SimpleNamespace(limits=limits)})
    df = frame(*({"room": "a_room", "experiment": experiment, "label": x} for x in ("", "e4m3 rows")))
    assert records._most(df.assign(bound=math.nan), "rel_err").tolist() == [most, 4e-2]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"max_err": 0.9, "bound": 0.3}, ""),  # beside the rms of all elements a long row may be far off, and right
        ({"max_err": 0.9}, "'max_err': 0.9 is over its limit"),
        ({"bound": 1.5}, "'bound': 1.5 is not in"),
        ({"bound": 0.3, "rel_err": 0.9}, "'rel_err': 0.9 is over its limit"),
    ],
)
def test_an_element_with_a_bound_is_held_to_that_alone(tmp_path, changes, says):
    with pytest.raises(ValueError, match=says) if says else nullcontext():
        records.write(tmp_path / "wide.csv", frame(changes))


def test_where_elements_have_a_bound_a_norm_may_be_off_by_the_root_of_how_long_sums_are():
    cells = ((64, 4096, 0.3), (256, 4096, 0.3), (4096, 64, 0.3), (64, 4096, math.nan))
    rows = frame(*(dict(zip(("k", "nnz", "bound"), given, strict=True)) for given in cells))
    short, long, sparse, none = records._most(rows, "rel_err")
    assert long - none == pytest.approx(2 * (short - none)) and short == sparse > none


def test_append_adds_and_replaces(wide):
    records.append(wide, [row(n=2048), row(median_us=45.0, q25_us=44.0)])
    df = records.read(wide)
    assert len(df) == 4
    assert df[(df.variant == "warp_per_row") & (df.n == 512)].median_us.tolist() == [45.0]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"nnz": 0}, "row 3, column 'nnz'"),
        ({"median_us": 0.0, "tflops": 0.0}, "row 3, column 'median_us'"),
        ({"when": "yesterday"}, "row 3, column 'when'"),
        ({"gpu": "another"}, "row 3, column 'gpu'"),
        ({"seed": 7}, "row 3, column 'seed'"),
    ],
)
def test_a_bad_row_leaves_everything_as_it_was(wide, bad, says):
    before = wide.read_text()
    refused(says, records.append, wide, [row(n=4096), row(n=8192) | bad])
    if "gpu" in bad or "seed" in bad:  # right alone, and of another run
        refused("row 5, column", records.append, wide, [row(n=4096) | bad])
    assert wide.read_text() == before and [p.name for p in wide.parent.iterdir()] == ["wide.csv"]


def test_rows_with_a_bound_are_added_to_those_without(wide):
    records.append(wide, [row(n=2048, bound=0.25)])
    records.append(wide, [row(n=4096)])
    assert records.read(wide)["bound"].fillna(-1).tolist() == [-1, -1, -1, 0.25, -1]


def test_an_interrupted_write_leaves_nothing_behind(wide, monkeypatch):
    before = wide.read_text()
    monkeypatch.setattr(files.jit.os, "replace", lambda *_: 1 / 0)
    refused("division by zero", records.append, wide, [row(n=4096)], kind=ZeroDivisionError)
    assert wide.read_text() == before and [p.name for p in wide.parent.iterdir()] == ["wide.csv"]


NAMES, SIZES = ("warp_per_row", "any_n", "cusparse_alg2"), (512, 1024, 2048)
POINTS = [{"n": n, "variant": v} for n in SIZES for v in NAMES]
KEYS = [(p["variant"], "", 4096, p["n"], 4096, 0.01) for p in POINTS]


def complete(path, rows=POINTS):
    """Write these rows, and hold them against what there must be."""
    records.write(path, frame(*rows))
    return len(records.complete(records.read(path), path))


@pytest.mark.parametrize("lost", [8, 7, 3, 0])
def test_a_record_is_complete_if_every_point_has_every_variant(tmp_path, lost):
    path = tmp_path / "wide.csv"
    assert complete(path) == 9 and complete(path, POINTS[:6]) == 6, "whole points, and no plan that knows of more"
    says = f"{path}: row {2 + lost - lost % 3}, column 'variant': .*lacks '{NAMES[lost % 3]}'"
    refused(says, complete, path, POINTS[:lost] + POINTS[lost + 1 :])
    # What was left out on purpose is not missed; a later reason replaces an earlier one.
    for why in ("it refuses the size", "it refuses this size"):
        records.leave_out(path, KEYS[lost], why)
    assert complete(path, POINTS[:lost] + POINTS[lost + 1 :]) == 8
    assert [*records.read_absent(tmp_path)["wide"].values()] == ["it refuses this size"]
    other = (lost + 4) % 9  # another size, and another variant
    refused(f"lacks '{NAMES[other % 3]}'", complete, path, [p for i, p in enumerate(POINTS) if i not in (lost, other)])


def test_a_record_is_held_against_its_plan(tmp_path):
    """Cut between two points, as Ctrl-C leaves it, and without a variant: each point alone is complete."""
    path = tmp_path / "wide.csv"
    records.plan(path, KEYS)
    refused(f"{path}: wide was interrupted after 2 of 3 points: make measure goes on", complete, path, POINTS[:6])
    # Going on plans what is there and what is still to come; nearly equal densities are one.
    records.plan(path, [(*key[:-1], 0.01 + 1e-12) for key in KEYS[5:]])
    assert records.read_plan(tmp_path) == {"wide": {"points": 3, "rows": 9}} and complete(path) == 9
    for rows, many in ((POINTS[::3], 3), ([*POINTS, *({"n": n, "variant": "more"} for n in SIZES)], 12)):
        refused(f"wide has {many} rows, but 9 were planned: rows were lost or added", complete, path, rows)
    records.plan(tmp_path / "tall.csv", KEYS[:1])
    assert set(records.read_plan(tmp_path)) == {"wide", "tall"}


def planned(root):
    """A system's folder with one record, as it was planned."""
    folder = root / "nvidia-h200" / "casper_sparse"
    records.plan(folder / "wide.csv", KEYS[:1])
    records.write(folder / "wide.csv", frame(POINTS[0]))
    records.write_machine(folder, synthetic.machine())
    records.check_system(folder)
    return folder


@pytest.mark.parametrize("dangling", [False, True])
def test_a_record_that_was_planned_is_missed(tmp_path, dangling):
    folder = planned(tmp_path)
    (folder / "wide.csv").unlink()
    if dangling:
        (folder / "wide.csv").symlink_to("nowhere")
    refused(r"wide\.csv: there is no such record, but plan\.json has 1 rows", records.check_system, folder)
    records.leave_out(folder / "wide.csv", KEYS[0], "everybody refuses it")  # which is said
    records.check_system(folder)


@pytest.mark.parametrize("place", ["", "repeat", "libraries/0.10.0"])
def test_a_folder_is_named_after_the_gpu_of_its_records(tmp_path, place):
    """Second measurements have machines too, and lie as deep as GPUs do in the folder above."""
    folder = planned(tmp_path)
    records.write_machine(folder / place, synthetic.machine())
    assert records.resolve("nvidia-h200", tmp_path) == folder.parent
    assert records.list_gpus(tmp_path) == ["nvidia-h200"] and records.systems(folder.parent) == ["casper_sparse"]
    refused(
        "the folder of one GPU, with records of casper_sparse: name the folder above", records.list_gpus, folder.parent
    )
    assert records.list_gpus(folder) == []
    records.write_machine(folder / place, synthetic.machine("NVIDIA H100", "nvidia-h200"))
    for look in (partial(records.check_system, folder), partial(records.resolve, "nvidia-h200", tmp_path)):
        refused("these records are of an NVIDIA H100 .* named after their GPU", look)


FOLDERS = sorted({path.parent for path in paths.RECORDED.glob(f"*/*/**/{records.PLAN}")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda x: str(x.relative_to(paths.RECORDED)))
def test_every_shipped_record_is_whole(folder):
    """None was cut, and for every one it is known how many rows it must have."""
    names, plans = records.experiments(folder), records.read_plan(folder)
    counters = folder / f"{records.COUNTERS}.csv"
    assert not counters.exists() or len(records.read_counters(counters)) > 100
    assert sorted(plans) == names
    for path in (folder / f"{name}.csv" for name in names):
        df = records.whole(records.read(path), path)
        assert plans[path.stem] == {"points": len(df.drop_duplicates(list(records.POINT))), "rows": len(df)}


# ---------------------------------------------------------------- counters and published numbers


@pytest.fixture
def counters(tmp_path):
    path = tmp_path / "nvidia-h200" / "room" / "counters.csv"
    rows = [("x", "dram", 90, "%"), ("x", "time", 1.5, ""), ("y", "dram", 80, "%")]
    table = [(variant, 1, 2, 3, 0.5, *rest) for variant, *rest in rows]
    records.write_counters(path, pd.DataFrame(table, columns=records.COUNTER_COLUMNS), "NVIDIA H200")
    return path


def test_counters(counters):
    df = records.read_counters(counters)
    assert tuple(df.columns) == records.COUNTER_COLUMNS
    assert df["value"].tolist() == [90, 1.5, 80] and df["unit"].tolist() == ["%", "", "%"]
    assert df["m"].dtype == np.int64 and df["value"].dtype == np.float64
    refused("make profile", records.read_counters, counters.with_name("other.csv"), kind=FileNotFoundError)


@pytest.mark.parametrize(
    "old,new,says",
    [
        ("90.0", "many", "row 2, column 'value'"),
        ("90.0", "inf", "row 2, column 'value'"),
        ("90.0", "", "row 2, column 'value'"),
        (",1,2,3,", ",1.5,2,3,", "row 2, column 'm'"),
        ("metric", "name", "row 1, column 'metric'"),
        ("unit", "unit,mood", "row 1, column 'mood'"),
        ("y,1", "x,1", "row 4, column 'metric'"),
        ("80.0,%\n", "8", "row 4, column 'unit'"),
        ("80.0,%\n", "80.0,%", "row 4, column 'unit'"),
        ("80.0,%", "80.0,%,1", "row 4, column 'unit'"),
    ],
)
def test_wrong_counters_are_one_sentence(counters, old, new, says):
    spoil(counters, old, new)
    refused(f"^{counters}: .*{re.escape(says)}", records.read_counters, counters)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda path: spoil(path, "y,1,2,3,0.5,dram,80.0,%\n", ""), "csv: these 2 rows are not those that counters"),
        (lambda path: spoil(path, "90.0", "900.0"), "csv: these 3 rows are not those that .* cut or changed"),
        (
            lambda path: spoil(path.with_suffix(".json"), "H200", "H100"),
            "json: counters of an NVIDIA H100 do not belong in this folder",
        ),
        (lambda path: path.with_suffix(".json").unlink(), "csv: these 3 rows are not those"),
        (lambda path: spoil(path, "90.0", "-90.0"), "row 2, column 'value': -90.0 is not in"),
    ],
)
def test_counters_that_are_others_or_a_part_are_refused(counters, harm, says):
    harm(counters)
    refused(says, records.read_counters, counters)


def test_published_numbers_name_their_source(tmp_path):
    path = tmp_path / "fig1.csv"
    path.write_text("quantity,low,high\nspeedup,1,2\n")
    refused("source is missing", records.published, path)
    path.write_text("# A paper, Fig. 1\nquantity,low,high\nspeedup,1,2\n")
    assert records.published(path).attrs["source"] == "A paper, Fig. 1"
    refused(r"known: fig1\.csv", records.published, tmp_path / "fig2.csv", kind=FileNotFoundError)


# ---------------------------------------------------------------- machines and folders


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"driver": ""}, "'driver' is missing"),
        ({"gpu": "NVIDIA <img src=x>"}, "which no name has"),
        ({"packages": {"numpy": 'a"b'}}, "which no name has"),
    ],
)
def test_a_machine_is_whole_and_its_texts_are_names(tmp_path, change, says):
    path, bad = tmp_path / "machine.json", synthetic.machine() | change
    refused(says, records.write_machine, tmp_path, bad)
    assert not path.exists()
    refused(r"machine\.json", records.read_machine, tmp_path, kind=FileNotFoundError)
    for text, said in ((json.dumps(bad), says), (json.dumps(bad)[:20], "not complete JSON"), ("[]", "is a table of")):
        path.write_text(text)
        refused(rf"machine\.json: .*{said}", records.read_machine, tmp_path)


def test_gpus_are_found_by_slug_and_by_name(tmp_path):
    for gpu in ("NVIDIA H200", "NVIDIA GeForce RTX 3050 Ti"):
        records.write_machine(tmp_path / slug(gpu) / "casper_sparse", synthetic.machine(gpu))
    (tmp_path / "empty").mkdir()
    assert records.list_gpus(tmp_path) == ["nvidia-geforce-rtx-3050-ti", "nvidia-h200"]
    assert {records.resolve(x, tmp_path) for x in ("NVIDIA H200", "nvidia-h200")} == {tmp_path / "nvidia-h200"}
    refused("'abacus'; known: nvidia-geforce-rtx-3050-ti, nvidia-h200", records.resolve, "abacus", tmp_path)
    refused("known: none", records.resolve, "../..", tmp_path / "empty")


# ---------------------------------------------------------------- arithmetic


def times(**by_variant) -> pd.DataFrame:
    return frame(
        *(
            {"variant": variant, "n": 512 * (i + 1), "median_us": t, "q25_us": t, "q75_us": t}
            for variant, values in by_variant.items()
            for i, t in enumerate(values)
            if t
        )
    )


def test_the_best_baseline_is_chosen_at_each_point():
    df = records.best_of(times(warp_per_row=[10, 10], cusparse_alg1=[5, 9], cusparse_alg2=[6, 3]))
    best = df[df.variant == "cusparse_best"]
    assert best.median_us.tolist() == [5, 3] and best.best_of.tolist() == ["cusparse_alg1", "cusparse_alg2"]
    assert len(records.best_of(df)) == len(df)  # a second call changes nothing
    # Begins with, not contains: ours is no library's, however it is called.
    ours = records.best_of(times(beats_cusparse=[1, 1], cusparse_alg1=[5, 9]))
    assert ours[ours.variant == "cusparse_best"].median_us.tolist() == [5, 9]
    refused("'cublas'; the records have warp_per_row", records.best_of, times(warp_per_row=[10]), "cublas")


def test_speedup_is_baseline_over_variant_at_common_points():
    df = times(warp_per_row=[10, 10, 10], cusparse_alg1=[5, None, 20])
    s = records.speedup(df, "warp_per_row", "cusparse_alg1")
    assert s.tolist() == [0.5, 2.0] and s.index.get_level_values("n").tolist() == [512, 1536]
    refused("no variant 'fast'", records.speedup, df, "fast", "cusparse_alg1")
    refused("any common point", records.speedup, times(a=[1, None], b=[None, 1]), "a", "b")


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20))
def test_geomean_lies_between_the_extremes(values):
    assert min(values) * (1 - 1e-9) <= records.geomean(values) <= max(values) * (1 + 1e-9)


@pytest.mark.parametrize("values", [[], [1, 0], [1, -1], [1, math.nan]])
def test_geomean_of_nonsense(values):
    refused("positive", records.geomean, values)


def test_whoever_changes_what_was_read_changes_it_for_nobody_else(wide):
    """Records are kept between calls."""
    first = records.read(wide)
    first.loc[0, "median_us"] = 1.0
    assert records.read(wide)["median_us"].tolist() == [50.0, 50.0, 40.0]
    wide.write_text(wide.read_text().replace(",4096,512,", ",4096,256,", 1))
    assert records.read(wide)["n"].tolist() == [256, 1024, 512]


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        (["H200", "H100 80GB HBM3"], ["H200", "H100"]),
        (["H100 80GB HBM3", "H100 PCIe"], ["H100 80GB HBM3", "H100 PCIe"]),
        (["H200, first", "H200, second"], ["H200, first", "H200, second"]),
        ([], []),
    ],
)
def test_gpus_lose_what_does_not_tell_them_apart(whole, short):
    names = [f"NVIDIA {name}" for name in whole]
    assert records.short_gpus(names) == dict(zip(names, short, strict=True))


# ---------------------------------------------------------------- what the code of others gave here


FOUND = [measured for system in registry.find() for measured in external.find(system)]


def made(
    tmp_path,
    toml: str,
    csv: str = "# s\nm,n,k,density,library,tflops\n1,1,1,0.5,a,2\n",
    gpu: str = HOME,
):
    folder = tmp_path / "nm_spmm" / registry.OTHERS / gpu
    records.write_text(folder / "x.toml", toml)
    records.write_text(folder / "x.csv", csv)
    return tmp_path


def whole() -> str:
    return registry.others("nm_spmm", "anchors", HOME).with_suffix(".toml").read_text()


@pytest.mark.parametrize("measured", FOUND, ids=lambda m: f"{m.room}-{m.name}-{slug(m.gpu)}")
def test_each_says_how_it_was_made(measured):
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", measured.date)
    for text in (measured.code, measured.commit, measured.options, measured.driver):
        assert len(text) > 2, measured
    assert len(measured.table()) > 0
    decides = f"others/{measured.name}"
    if any(decides in c.experiment and c.room == measured.room for c in load.claims()):
        df = measured.numbers()
        assert not df.duplicated([*external.POINT]).any() and (df["density"] <= 1).all()


@pytest.mark.parametrize(
    "old,new,says",
    [
        ('commit = "143', 'commits = "143', "the key 'commit' is missing"),
        ("what =", 'colour = "red"\nwhat =', "the key 'colour' is none of such a file's"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, old, new, says):
    assert old in whole()
    refused(f"x.toml: {says}", external.find, "nm_spmm", made(tmp_path, whole().replace(old, new, 1)))


def test_numbers_need_a_rate_or_a_speedup(tmp_path):
    folder = made(tmp_path, whole(), "# s\nm,n,k,density,library,time\n1,1,1,0.5,a,2\n")
    refused(
        "needs the columns m, n, k, density, library, and speedup",
        external.nearest("nm_spmm", "x", HOME, folder).numbers,
        folder,
    )


def test_the_first_that_has_it_stands_in_where_the_home_gpu_has_none(tmp_path):
    toml = whole().replace("NVIDIA H200", "NVIDIA B")
    folder = made(tmp_path, toml, gpu="nvidia-b")
    made(tmp_path, toml.replace("NVIDIA B", "NVIDIA A"), gpu="nvidia-a")
    assert [m.gpu for m in external.find("nm_spmm", folder, "x")] == ["NVIDIA A", "NVIDIA B"]
    nearest = [external.nearest("nm_spmm", "x", f"nvidia-{here}", folder).gpu for here in "cb"]
    assert nearest == ["NVIDIA A", "NVIDIA B"]
    made(tmp_path, whole())
    assert [m.gpu for m in external.find("nm_spmm", folder, "x")] == ["NVIDIA H200", "NVIDIA A", "NVIDIA B"]
    assert external.nearest("nm_spmm", "x", "nvidia-c", folder).gpu == "NVIDIA H200"
