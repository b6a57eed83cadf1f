"""Tables and sentences of the chapter: on the shipped records, and on made-up ones whose answers are known."""

import re
import shutil

import numpy as np
import pandas as pd
import pytest

from artifact import paths
from artifact.drawing import cells
from artifact.measure import records, run
from artifact.rooms.nm_cuda_core import counters, figures, gather, machine_code, tables
from artifact.rooms.nm_cuda_core.prose import cublas, kernels, reasons, speeds
from artifact.rooms.nm_cuda_core.trial import (
    LETTER,
    PUBLISHED,
    VARIANTS,
    Trial,
    as_published,
    at,
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


def sound(text: str) -> bool:
    """A sentence without a hole in it."""
    return bool(text.strip()) and not re.search(r"\bnan\b|\binf\b|[{}]|None", text)


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
    assert at(ratios(df, "baseline", "cublas"), 512) == "2.50×"
    assert at(ratios(df, "baseline", "cublas"), 64) == "–"
    assert of(df, "cublas").to_dict() == {512: 25, 64: 1}


# ---------------------------------------------------------------- which index, machine code


def test_which_index():
    case = gather.smallest(seed=0)
    assert case.same_if_shared and 0.1 < case.error < 1.5 and 0 in case.right_columns
    off = [c for c in range(32) if not np.allclose(case.right[:, c], case.gathered[:, c])]
    assert sorted([*off, *case.right_columns]) == list(range(32))
    said = kernels.which_index(case)
    assert f"of 32 columns {len(case.right_columns)} " in said and said.endswith("the same matrix.")
    assert kernels.run_here(None) == ""
    assert "run here on that case: 50% from A · B, and 1e-07 from" in kernels.run_here((0.5, 1e-7))


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
    distinct = len(report.drop_duplicates(["entry", "target"]))
    assert f"1 of {distinct} compilations spill" in kernels.compiled(report)


def test_prefetch(monkeypatch):
    code = {"baseline": ["LDG R1, [R2] ;", "FFMA ;"], "prefetch_kept": ["LDG ;", "LDG ;", "FFMA ;"]}
    code["prefetch"] = code["baseline"]
    found = lambda variant, target, anew=False: code[variant]  # noqa: E731
    for module in (machine_code, tables):
        monkeypatch.setattr(module, "instructions", found)
    (row,) = tables.prefetch(["sm_80"]).data.to_dict("records")
    assert row["the same, one by one"] == "yes" and row["instructions, prefetch"] == 2
    assert (row["global loads, baseline"], row["prefetch_kept"]) == (1, 2)
    assert kernels.prefetch_is_removed(["sm_80"])
    code["prefetch"] = code["prefetch_kept"]
    assert not kernels.prefetch_is_removed(["sm_80"])
    assert kernels.prefetch(True).startswith("**The prefetch kernel is the baseline**")
    assert kernels.prefetch(False) == "With this compiler the two differ on some target:"


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


# ---------------------------------------------------------------- tables and sentences of records


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


def test_sentences_of_the_shipped_records(trial, counted, report):
    scaling, published = trial.measure("scaling"), trial.measure("published")
    element, sequential = trial.measure("element_wise"), trial.on_cpu()
    fig2, handles = trial.stated["fig2"], speeds.with_handle(published, sequential)
    compared = figures.compare_readings(published, fig2).set_index("reading")
    said = [
        speeds.over_cublas(scaling, handles),
        speeds.variants(scaling, report),
        speeds.letter(scaling),
        kernels.letter(),
        speeds.reversal(scaling, trial.fma),
        speeds.right_gather(scaling, element),
        speeds.patterns(),
        speeds.on_cpu(sequential, trial.run.machine),
        speeds.accuracy(scaling),
        speeds.repeats(scaling, trial.second()),
        speeds.in_short(trial, handles, removed=True),
        cublas.contains(published, fig2, compared),
        reasons.reasons(counted, trial.run.machine, trial.stated["fig3"]),
    ]
    assert [text for text in said if not sound(text)] == []
    assert cublas.contains(published, fig2, compared).count("\n- ") == 2


def test_over_cublas():
    df = every({64: 2.0, 512: 10.0}, cublas=2.0, verbatim=4.0)
    said = speeds.over_cublas(df, [20.0, 30.0])
    assert "With a handle in every call it is 20.0× and 30.0× at 512³ in two records" in said
    assert "it is 0.50×, and that does; it is behind at every size." in said
    assert "`baseline`, with the loads of a step in order" in said
    assert said.endswith("is ahead of it at every size: 2.00 to 2.00×.")
    slow = speeds.over_cublas(every({64: 2.0}, baseline=4.0, cublas=2.0), [20.0])
    assert slow.endswith("is ahead of it at no size: 0.50 to 0.50×.")
    ahead = speeds.over_cublas(every({512: 10.0}, cublas=3.0), [20.0])
    assert "20.0× at 512³ in the record" in ahead and "does; it is ahead at every size." in ahead
    older = every({64: 2.0, 512: 10.0}, cublas=3.0).query("not variant.str.startswith('verbatim')")
    said = speeds.over_cublas(older, [20.0])
    assert "The speedup of `baseline`" in said and said.endswith("does; it is ahead at every size.")


def test_variants_below_and_from_1024(report):
    df = every({512: 10.0, 1024: 40.0, 2048: 99.0}, pipelined=0.5, zigzag=0.8, double_buffer=2.0)
    said = speeds.variants(df, report)
    assert "**`pipelined`**: 2.00× below and 2.00× from 1024³. Used instead of thrown away, the same" in said
    assert "0.50× below and 0.50× from 1024³, 0.50× at 2048³; without\n  split-K 1.00×" in said
    assert "**`zigzag`**: 1.25× over" in said and "Fastest: `pipelined` at 512³" in said
    assert speeds.parted(pd.Series({64: 2.0})) == (2.0, 2.0)  # of all, where a side has none


def test_the_letter_is_compared_with_ours_where_it_was_measured():
    df = every({512: 10.0, 1024: 40.0}, verbatim=2.0, verbatim_double_buffer=4.0, cublas=3.0)
    said = speeds.letter(df)
    assert "`verbatim` is at 0.50× of `baseline` below 1024³ and at 0.50× from there" in said
    assert "`verbatim_prefetch` is at 1.00× of `prefetch`" in said
    assert "`verbatim_double_buffer` is at 0.25× of `double_buffer`" in said
    assert "Over cuBLAS `verbatim` is at 1.50 to 1.50×." in said
    without = df[~df["variant"].str.startswith("verbatim")]
    assert speeds.letter(without).startswith("The records of this page are older")


def test_the_letter_in_machine_code():
    said = kernels.letter()
    assert "writes C in 16 stores of 4 bytes, one of `baseline` in 4 of 16" in said
    assert "16 bytes of stack" in said and "by 128 generic loads" in said
    assert "where `double_buffer` has none" in said
    # To the letter, too, nothing is left of the prefetch but the loads that there were.
    for target in ("sm_80", "sm_90a"):
        there = machine_code.loads("verbatim", target)
        assert machine_code.loads("verbatim_prefetch", target) == there
    assert f"`verbatim_prefetch` has {there} global loads, `verbatim` {there}." in said


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
    assert "`verbatim` is at 1.00× of `baseline`" in speeds.letter(scaling)
    fig, data = figures.variants(scaling, VARIANTS, None)
    assert set(launch.VERBATIM) <= set(data["variant"])


def test_reversal_needs_4096():
    assert speeds.reversal(every({2048: 10.0}), 60) == ""
    said = speeds.reversal(every({4096: 4096**3 / 30e6}, cublas=1.5), 60)
    assert "would take 1 ms at the card's 504" in said
    assert "`verbatim` is ahead of the kernel of cuBLAS at these sizes (1.50× at 4096³" in said
    assert "does not fall: it has 50% and 50% of the FMA ceiling" in said
    times = {1024: 1024**3 / 30e6, 4096: 4096**3 / 15e6}
    behind = speeds.reversal(every(times, cublas=0.5), 60)
    assert "is behind the kernel of cuBLAS" in behind and "Its own throughput falls, too" in behind


def test_right_gather():
    scaling, element = every({512: 10.0}, element_wise=2.0), every({512: 10.0}, element_wise=4.0)
    said = speeds.right_gather(scaling, element)
    assert "it takes 2.00 times" in said and "and 4.00 times on the element-wise one" in said
    assert "0.25× the speed of the dense" in said and "ahead of cuBLAS nowhere." in said
    fast = every({512: 10.0}, element_wise=0.5)
    assert "It is ahead of cuBLAS at 512³." in speeds.right_gather(scaling, fast)


def test_repeats():
    first, second = every({512: 10.0}), every({512: 10.2})
    assert f"Over all {len(VARIANTS) + 1} measurements the second run differs from the first by 2.0%" in (
        speeds.repeats(first, second)
    )


def test_reasons_follow_the_counters(counted, trial):
    """The conclusions turn with the counters that they rest on."""
    pipe = counters.PIPES["shared"]
    values = counted.values | {("baseline", 4096, pipe): 50.0}
    values |= {("zigzag", 4096, figures.STALL.format("long_scoreboard")): 0.0}
    other = counters.Counters(counted.rows, values)
    told = [reasons.reasons(c, trial.run.machine, trial.stated["fig3"]) for c in (counted, other)]
    assert "shared memory is full" in told[0] and "the largest stall is the long" in told[0]
    assert "shared memory is the busiest pipe" in told[1] and "largest stall" not in told[1]


def test_profile():
    launches = pd.DataFrame({"kernel": ["a", "a", "b"], "launch": [0, 0, 0]})
    said = reasons.profile(launches, {"x", "y"})
    assert said == "The profile has 3 launches of 2 kernels, and 2 metrics of them."
    assert reasons.profile(launches[:0], set()).startswith("There is no profile of this GPU")
