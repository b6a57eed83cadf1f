"""Tables and facts of the chapter: on the shipped records, and on made-up ones whose answers are known."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest

from artifact import paths
from artifact.drawing import cells
from artifact.measure import records, run
from artifact.rooms.nm_cuda_core import counters, facts, figures, gather, machine_code, tables
from artifact.rooms.nm_cuda_core.trial import (
    LETTER,
    PUBLISHED,
    VARIANTS,
    Trial,
    as_published,
    of,
    ratios,
    start,
)
from kernels import nm_cuda_core as room
from kernels.nm_cuda_core import launch

SHIPPED = paths.RECORDED / "nvidia-h200"


@pytest.fixture(scope="module")
def trial() -> Trial:
    return start(mode="recorded")


@pytest.fixture(scope="module")
def counted(trial) -> counters.Counters:
    return counters.read(trial.run)


@pytest.fixture(scope="module")
def report() -> pd.DataFrame:
    """A report as the compiler might give it: every variant's 2:4 entry, for two targets."""
    rows = [
        {"variant": v, "entry": room.entry(v), "target": target, "registers": 40 + 8 * place}
        | {
            "shared_bytes": 1024,
            "spills": (v, target) == ("zigzag", "sm_80"),
            "FFMA": 16,
            "LDG.32": 2,
        }
        for place, v in enumerate(VARIANTS)
        for target in ("sm_80", "sm_90a")
    ]
    return pd.DataFrame(rows)


def record(*points) -> pd.DataFrame:
    """points: (variant, size, µs)."""
    rows = [
        {"room": "nm_cuda_core", "experiment": "scaling", "variant": v, "label": "", "m": s, "n": s}
        | {"k": s, "density": 0.5, "seed": 0, "median_us": us, "useful_flops": float(s) ** 3}
        | {"tflops": s**3 / us / 1e6, "max_err": 2e-6, "rel_err": 1e-7, "requested_bytes": 504e6}
        for v, s, us in points
    ]
    return pd.DataFrame(rows).reindex(columns=list(records.COLUMNS))


def every(times: dict[int, float], **factors: float) -> pd.DataFrame:
    """Every variant and cuBLAS at each size: µs of the baseline, times a contender's factor."""
    return record(*((v, s, us * factors.get(v, 1.0)) for v in (*VARIANTS, "cublas") for s, us in times.items()))


# ---------------------------------------------------------------- the trial


def test_trial_reads_its_experiments(trial):
    assert trial.fma == records.ceilings(SHIPPED)["fma"]["tflops"]
    assert trial.sizes == sorted(trial.sizes) and trial.sizes[-1] == 8192
    assert set(trial.measure("scaling")["variant"]) == {*VARIANTS, "cublas"}
    assert {*LETTER, *PUBLISHED} <= set(trial.measure("published")["variant"])
    assert trial.measure("scaling") is trial.measure("scaling")
    assert trial.on_cpu()["m"].max() == records.read(SHIPPED / "nm_cuda_core" / "cpu.csv")["m"].max()
    assert (trial.measure("element_wise")["label"] != "").all()
    assert len(trial.measure("patterns").drop_duplicates(["label", "density"])) == 6
    second = trial.second()
    # The second run may be older than what is to the letter; all else is in both, at every size.
    both = trial.measure("scaling").query("variant in @second.variant")
    assert len(second) == len(both) and {*VARIANTS, "cublas"} - {*launch.VERBATIM} <= {*both["variant"]}
    assert not np.array_equal(second["median_us"], both["median_us"])


def test_what_is_missing_is_said(tmp_path):
    shutil.copytree(SHIPPED / "ceilings", tmp_path / "nvidia-h200" / "ceilings")
    folder = tmp_path / "nvidia-h200" / "nm_cuda_core"
    folder.mkdir()
    for name in ("machine.json", "scaling.csv"):
        shutil.copy(SHIPPED / "nm_cuda_core" / name, folder)
    found = start(mode="recorded", folder=tmp_path)
    assert found.on_cpu() is None and found.second() is None and counters.read(found.run) is None
    with pytest.raises(FileNotFoundError, match="no records of nm_cuda_core/patterns"):
        found.measure("patterns")


def test_speedups_by_size():
    df = record(("baseline", 512, 10), ("cublas", 512, 25), ("cublas", 64, 1))
    assert ratios(df, "baseline", "cublas").to_dict() == {512: 2.5}
    assert of(df, "cublas").to_dict() == {512: 25, 64: 1}


# ---------------------------------------------------------------- which index, machine code


def test_which_index():
    case = gather.smallest(seed=0)
    assert case.same_if_shared and 0.1 < case.error < 1.5 and 0 in case.right_columns
    off = [c for c in range(32) if not np.allclose(case.right[:, c], case.gathered[:, c])]
    assert sorted([*off, *case.right_columns]) == list(range(32))
    found = dict(facts.which_index(case))
    assert (found["gather.right"], found["gather.error"]) == (len(case.right_columns), case.error)
    assert list(facts.run_here(None)) == []


@pytest.mark.gpu
def test_the_kernel_gathers_one_index(device, tmp_path):
    found = run.start("nm_cuda_core", mode="measure", preset="kick", records=tmp_path)
    from_right, from_gathered = gather.run_it(found, gather.smallest(seed=0))
    assert from_right > 0.1 and from_gathered < 1e-5


def test_compiled(report):
    table = tables.compiled(report).data.set_index("variant")
    assert list(table.index) == VARIANTS and table.loc["baseline", "registers"] == "40"
    assert {"shared [B]", "LDG.32", "FFMA"} <= set(table) and "REDG" not in table
    assert machine_code.registers(report, VARIANTS[1]) == 48
    found = dict(facts.compiled(report))
    assert found["compiled.count"] == len(report.drop_duplicates(["entry", "target"]))
    assert found["compiled.spilling"] == 1 and found[f"registers.{VARIANTS[1]}"] == 48


def test_prefetch(monkeypatch):
    code = {"baseline": ["LDG R1, [R2] ;", "FFMA ;"], "prefetch_kept": ["LDG ;", "LDG ;", "FFMA ;"]}
    code["prefetch"] = code["baseline"]
    found = lambda variant, target, anew=False: code[variant]  # noqa: E731
    for module in (machine_code, tables):
        monkeypatch.setattr(module, "instructions", found)
    (row,) = tables.prefetch(["sm_80"]).data.to_dict("records")
    assert row["the same, one by one"] == "yes" and row["instructions, prefetch"] == 2
    assert (row["global loads, baseline"], row["prefetch_kept"]) == (1, 2)
    assert dict(facts.prefetch(["sm_80"])) == {"code.prefetch.targets_that_differ": 0}
    code["prefetch"] = code["prefetch_kept"]
    assert dict(facts.prefetch(["sm_80"])) == {"code.prefetch.targets_that_differ": 1}


def test_machine_code_that_came_out_otherwise_once_is_compiled_anew(monkeypatch):
    """As NVRTC does it: the one that the cache holds has two instructions in another order."""
    kept = {"baseline": ["LDG ;", "MOV ;"], "prefetch": ["MOV ;", "LDG ;"], "other": ["LDG ;"]}
    fresh, made = kept | {"prefetch": kept["baseline"]}, []

    def instructions(variant, target, anew=False):
        made.append(anew)
        return (fresh if anew else kept)[variant]

    monkeypatch.setattr(machine_code, "instructions", instructions)
    assert machine_code.the_same("baseline", "prefetch", "sm_80")
    assert made == [False] * 2 + [True] * 2
    assert machine_code.the_same("baseline", "baseline", "sm_80") and made[4:] == [False] * 2
    assert not machine_code.the_same("baseline", "other", "sm_80")
    assert made[6:] == [False] * 2 + [True] * 2 * machine_code.AGAIN


def test_own_problem_is_compiled():
    own = room.problem(m=64, n=64, k=100, density=0.25, group=8, seed=7)
    table = machine_code.own(own, "sm_90a").data
    assert list(table["variant"]) == VARIANTS and (table["FFMA"] > 0).all()
    assert table["kernel"].iloc[-1] != "" and "2, 8" in " ".join(table["kernel"])


@pytest.mark.gpu
def test_own_problem_runs(device, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(cells, "display", said.append)
    found = run.start("nm_cuda_core", mode="measure", preset="kick", records=tmp_path)
    own = room.problem(m=512, n=1024, k=1000, density=0.25, group=8, vector=32, seed=7)
    cells.run_own(found, own, [*VARIANTS, "cublas"])
    shown = np.reshape(re.findall(r"<td>(.*?)</td>", said[0].data), (len(VARIANTS) + 1, 4))
    assert (shown[:, 1].astype(float) > 0).all() and shown[-1, 2] == "1.00×"
    assert (shown[:, 3].astype(float) < 1e-5).all()


# ---------------------------------------------------------------- tables and facts of records


def test_tables_of_the_shipped_records(trial, counted):
    scaling, published = trial.measure("scaling"), trial.measure("published")
    table = tables.over_cublas(published, scaling, trial.fma).data.set_index("M = N = K")
    us = records.read(SHIPPED / "nm_cuda_core" / "scaling.csv")
    us = us[us["m"] == 512].set_index("variant")["median_us"]
    assert table.loc[512, "over the kernel alone, cold L2"] == us["cublas"] / us["verbatim"]
    ours = "baseline (ours), over the kernel alone"
    assert table.loc[512, ours] == us["cublas"] / us["baseline"]
    compared = figures.compare_readings(published, trial.stated["fig2"]).set_index("reading")
    assert tables.readings(compared).data["worst factor"].min() >= 1
    patterns = tables.patterns(trial.measure("patterns")).data
    assert list(patterns["ideal"]) == list(1 / patterns["density"]) and len(patterns) == 6
    cpu = tables.on_cpu(trial.on_cpu())
    named = as_published(trial.on_cpu(), "baseline")
    assert (cpu.data[f"{named} over one thread"] > cpu.data[f"{named} over all cores"]).all()
    known = set(scaling["variant"])
    assert list(tables.errors(scaling).data["variant"]) == [v for v in (*VARIANTS, "cublas") if v in known]
    parts, data = tables.fig3(counted, trial.stated["fig3"])
    assert len(parts) == 2 and len(data)
    pipes = tables.pipes(counted).data.set_index(["variant", "size"])
    assert pipes.loc[("zigzag", 2048), "waves"] < pipes.loc[("baseline", 2048), "waves"]
    for styled in (
        cpu,
        *parts.values(),
        tables.pipes(counted),
        tables.patterns(trial.measure("patterns")),
    ):
        assert "<table" in styled.to_html()
    assert tables.variants().count("\n") == len(VARIANTS) + 1


def test_metrics_that_a_profile_holds():
    asked = ["smsp__a.sum", "smps__b.sum", "smsp__c_per_issue_active.pct", "dram__d.sum"]
    table1 = pd.DataFrame({"aspect": "x", "purpose": "y", "metric": asked, "low": 1})
    held = {"smsp__a.sum", "smsp__b.sum", "smsp__c_per_issue_active.ratio"}
    shown = tables.metrics(table1, held).data
    assert list(shown["here"]) == ["yes", "ratio", "ratio", "–"] and "purpose" not in shown
    assert set(tables.metrics(table1, set()).data["here"]) == {"–"}


def test_the_letter_in_machine_code():
    found = dict(facts.code())
    assert (found["code.verbatim.stores"], found["code.baseline.stores"]) == (16, 4)
    assert found["code.verbatim_double_buffer.stack_bytes"] == 16
    assert found["code.verbatim_double_buffer.generic_loads"] == 128
    assert found["code.double_buffer.generic_loads"] == 0
    # To the letter, too, nothing is left of the prefetch but the loads that there were.
    for target in ("sm_80", "sm_90a"):
        there = machine_code.loads("verbatim", target)
        assert machine_code.loads("verbatim_prefetch", target) == there
    assert found["code.verbatim_prefetch.global_loads"] == found["code.verbatim.global_loads"] == there


def test_records_that_have_the_letter_are_read_with_it(tmp_path):
    """The same record with `baseline` again, under the name of what is to the letter."""
    for room_name in ("ceilings", "nm_cuda_core"):
        (tmp_path / "nvidia-h200" / room_name).mkdir(parents=True)
        for path in (SHIPPED / room_name).glob("*.*"):
            shutil.copy(path, tmp_path / "nvidia-h200" / room_name)
    path = tmp_path / "nvidia-h200" / "nm_cuda_core" / "scaling.csv"
    df = records.read(path)
    more = [df[df["variant"] == "baseline"].assign(variant=v) for v in launch.VERBATIM]
    pd.concat([df[~df["variant"].isin(launch.VERBATIM)], *more]).to_csv(path, index=False)
    (path.parent / records.PLAN).unlink(missing_ok=True)
    found = start(mode="recorded", folder=tmp_path)
    scaling = found.measure("scaling")
    assert set(scaling["variant"]) == {*VARIANTS, "cublas"}
    assert dict(facts.letter(scaling))["letter.verbatim.mean"] == 1
    fig, data = figures.variants(scaling, VARIANTS, None)
    assert set(launch.VERBATIM) <= set(data["variant"])


def test_speedups_on_both_sides_of_1024():
    df = every({512: 10.0, 1024: 40.0, 2048: 99.0}, pipelined=0.5, zigzag=0.8, verbatim=2.0)
    found = dict(facts.ladder(df)) | dict(facts.letter(df)) | dict(facts.over_cublas(df))
    assert found["over.pipelined.below_1024.mean"] == found["over.pipelined.from_1024.mean"] == 2
    assert found["over.pipelined.from_1024.count"] == 2 and found["fastest.512"] == "pipelined"
    assert found["lanes.from_1024.mean"] == found["over_cublas.zigzag.largest"] == pytest.approx(1.25)
    assert found["letter.verbatim.mean"] == 0.5 and found["letter.verbatim.ours"] == "baseline"
    assert (found["over_cublas.verbatim.behind"], found["over_cublas.zigzag.ahead"]) == (3, 3)
    assert "over.pipelined.below_1024.mean" not in dict(facts.ladder(every({1024: 1.0})))
    older = df[~df["variant"].str.startswith("verbatim")]
    assert list(facts.letter(older)) == [] and "over_cublas.verbatim.mean" not in dict(facts.over_cublas(older))


def test_the_reversal_is_of_4096():
    assert list(facts.reversal(every({2048: 10.0}), 60)) == []
    times = {1024: 1024**3 / 30e6, 4096: 4096**3 / 15e6}
    found = dict(facts.reversal(every(times), 60))
    assert (found["fma_share.at_4096"], found["kept_of_best"]) == pytest.approx((0.25, 0.5))
    assert found["from_dram_ms"] == pytest.approx(1)


def test_the_right_gather_is_held_against_the_baseline_on_vectors():
    found = dict(facts.right_gather(every({512: 10.0}, element_wise=2.0), every({512: 10.0}, element_wise=4.0)))
    assert (found["element_wise.vectors"], found["element_wise.elements"]) == (2, 4)
    assert found["element_wise.over_cublas.largest"] == 0.25 and found["element_wise.ahead_at"] == "no size"


def test_a_second_run_is_counted_by_measurement():
    found = dict(facts.repeats(every({512: 10.0}), every({512: 10.2})))
    assert found["again.count"] == len(VARIANTS) + 1 and found["again.most"] == pytest.approx(0.02)


def test_counters_that_a_gpu_does_not_have_are_no_facts(counted, trial):
    pipe = counters.PIPES["DRAM"]
    less = {key: value for key, value in counted.values.items() if key[2] != pipe}
    machine, fig3 = trial.run.machine, trial.stated["fig3"]
    everything, some = (
        dict(facts.reasons(counters.Counters(counted.rows, values), machine, fig3)) for values in (counted.values, less)
    )
    assert set(everything) - set(some) == {f"busy.{v}.dram" for v in ("baseline", "verbatim", "zigzag")}
    assert list(facts.reasons(None, machine, fig3)) == list(facts.profile(pd.DataFrame(), None)) == []
