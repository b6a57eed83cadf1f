"""Hardware counters through Nsight Compute, as a tidy table.

    df = profile(system, [{"m": 4096, "n": 512, "k": 4096, "density": 0.01}],
                 ["warp_per_row", "cusparse_alg2"], folder=records / system)

`profile` has `ncu` run this module, one launch of each contender at each shape. ncu replays
each kernel from a flushed cache until every counter was read, and leaves the clocks alone
(`--clock-control none`).
"""

import importlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from artifact import paths, registry
from artifact.measure import device, records
from kernels import jit
from kernels.contract import require

#: An empty kernel, launched before each contender.
MARKER = "contender_marker"
#: Why a warp did not issue, in warps per issued instruction; `gmma` exists on Hopper alone.
STALLS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
#: Its counter, of a reason.
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
#: What every system is profiled for; a system adds its own in profiles.toml.
METRICS = (
    # time and memory
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sector_hit_rate.pct",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_bytes.sum",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l1tex__t_sector_hit_rate.pct",
    # global loads
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    # shared memory
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    # instructions and pipes
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__inst_executed.avg.per_cycle_active",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    # occupancy, and the blocks of an SM that each resource leaves room for
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "smsp__warps_launched.sum",
    "launch__waves_per_multiprocessor",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    *(STALLED.format(reason) for reason in STALLS),
)
#: Rows of Fig. 3 of Zeng's report -> counter, and what makes the row's unit of the counter's. Its
#: stalls are the `.pct` of what is collected as `.ratio` here.
REPORT_METRICS = {
    "SM throughput (%)": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    "DRAM throughput (%)": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    "Active warps (%)": ("sm__warps_active.avg.pct_of_peak_sustained_active", 1),
    "Warps launched": ("smsp__warps_launched.sum", 1),
    "Inst / cycle": ("smsp__inst_executed.avg.per_cycle_active", 1),
    "Drain stalls (%)": (STALLED.format("drain"), 100),
    "Long scoreboard (%)": (STALLED.format("long_scoreboard"), 100),
    "L1 traffic (MB)": ("l1tex__t_bytes.sum", 1e-6),
    "Store bank conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", 1),
}
TIME = "gpu__time_duration.sum"
#: What some GPUs call a metric that they do not have under the first name (GeForce Blackwell).
OTHER_NAMES = {
    "dram__bytes_read.sum": "dram__bytes_op_read.sum",
    "dram__bytes_write.sum": "dram__bytes_op_write.sum",
}
#: Behind the columns grid and block: collected with any metrics, and not counted among them.
DIMENSIONS = tuple(f"launch__{what}_dim_{axis}" for what in ("grid", "block") for axis in "xyz")
#: Options that keep a report small; an ncu that is too old for one does without it.
LEAN = (("--import-sass", "no"), ("--disable-extra-suffixes",))
#: Runs of ncu, each without the metrics and options that the one before refused.
ATTEMPTS = 8

READ = ("launch", "kernel", "grid", "block", "metric", "value", "unit")
POINT = ("variant", "m", "n", "k", "density")
COLUMNS = (*POINT, *READ)
#: Beside a system's records: one row per launch that was profiled. The report, for Nsight Compute's own viewer,
#: lies with it where it was made; it names the machine and its folders, so what is shipped is this table and
#: counters.csv.
LAUNCHES = Path("profiles", "launches.csv")
LAUNCH_COLUMNS = (*POINT, "launch", "kernel", "grid", "block", "time_ns")


# ---------------------------------------------------------------- a report


def read(report: Path, metrics: Iterable[str]) -> pd.DataFrame:
    """Return a report that ncu wrote as a table, one row per (launch, metric), in the report's order.

    Columns: READ. launch is an index in the report, kernel is the name without template arguments and parameters, grid
    and block are text ("64x64x1", empty where the report has none), value is float in `unit`. A metric that a launch
    lacks has a row with NaN; of a metric with instances (per instruction, per rule) the value is the aggregate.
    Raises, one sentence, FileNotFoundError where there is no ncu-report to read it with, and ValueError where the
    package finds no launch or one that it cannot decode.
    """
    try:
        import ncu_report
    except ImportError:
        raise FileNotFoundError(
            f"{report}: reading it needs the package ncu-report, which is not installed here."
        ) from None
    again, wanted = "profile it again or update the package.", list(dict.fromkeys(metrics))
    try:
        rows = list(_rows(ncu_report.load_report(str(report)), wanted))
    except TypeError:
        raise ValueError(
            f"{report}: a launch in it cannot be decoded, so the report is damaged, or newer than the package "
            f"ncu-report; {again}"
        ) from None
    require(bool(rows), f"{report}: the package ncu-report finds no metric of a launch in the report; {again}")
    return pd.DataFrame(rows, columns=list(READ)).astype({"launch": int, "value": float})


def _rows(context, wanted: Sequence[str]) -> Iterator[tuple]:
    """Values of READ, from an `ncu_report.IContext`. TypeError where it cannot name something."""
    for launch, action in enumerate(action for part in context or () for action in part):
        if not action.name() or None in action.metric_names():
            raise TypeError("a name is missing")
        sizes = [value for _, value, _ in _values(action, DIMENSIONS)]
        grid, block = ("x".join(f"{size:.0f}" for size in part) for part in (sizes[:3], sizes[3:]))
        shape = ("", "") if any(map(math.isnan, sizes)) else (grid, block)
        yield from ((launch, action.name(), *shape, *row) for row in _values(action, wanted))


def _values(action, names: Iterable[str]) -> list[tuple[str, float, str]]:
    """Name, value and unit of metrics; NaN of those that are no number."""
    metrics = {name: action.metric_by_name(name) for name in names}
    # Of a metric that has instances only, value() is 0.
    values = {name: x.value() for name, x in metrics.items() if x is not None and x.has_value()}
    numbers = {k: (float(x), metrics[k].unit() or "") for k, x in values.items() if isinstance(x, int | float)}
    return [(name, *numbers.get(name, (math.nan, ""))) for name in metrics]


def launches(folder: Path) -> pd.DataFrame:
    """Return the launches that were profiled for a system, from its folder of records.

    Columns LAUNCH_COLUMNS, one row each; empty where none were.
    """
    path = folder / LAUNCHES
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=list(LAUNCH_COLUMNS))


# ---------------------------------------------------------------- the contenders of a system


def profile(
    system: str,
    shapes: Sequence[Mapping[str, Any]],
    contenders: Sequence[str],
    metrics: Iterable[str] = METRICS,
    *,
    seed: int = 0,
    folder: Path | None = None,
    gpu: str = "",
) -> pd.DataFrame:
    """Counters of one launch of every contender at every shape: one row per (launch, metric).

    shapes: keyword arguments of the system's `problem`, m, n, k and density among them. contenders:
    names of the system's variants and of its BASELINES' contenders. folder: where to keep counters.csv,
    LAUNCHES and profiles/<folder's name>.ncu-rep, all or none; by default nowhere. gpu: the name of the GPU, for
    what tells of the counters in that folder. Columns: COLUMNS;
    launch counts from 0 within a contender, and a metric that this GPU lacks has NaN.
    Raises FileNotFoundError, PermissionError, ValueError or RuntimeError, one sentence, where ncu
    is missing, may not read the counters, or fails.
    """
    if (ncu := shutil.which("ncu")) is None:
        raise FileNotFoundError(
            "Nsight Compute's ncu is not on the PATH: install it (a CUDA toolkit has it); without "
            "it the book uses the shipped profiles"
        )
    task, metrics = dict(room=system, shapes=[*shapes], seed=seed, contenders=[*contenders]), [*dict.fromkeys(metrics)]
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "whole.ncu-rep"
        collected = _collect(ncu, [*metrics, *DIMENSIONS], path, task)
        table = read(path, [*metrics, *(m for m in collected if m not in DIMENSIONS)])
        df = attribute(table, [(shape, name) for shape in shapes for name in contenders])
        if folder is not None:
            kept = folder / "profiles" / f"{folder.name}.ncu-rep"
            kept.parent.mkdir(parents=True, exist_ok=True)
            times = df[df["metric"] == TIME].rename(columns={"value": "time_ns"})
            with jit.aside(kept) as file:
                file.write(path.read_bytes())
                records.write_counters(folder / f"{records.COUNTERS}.csv", per_contender(df), gpu)
                records.write_text(folder / LAUNCHES, times[list(LAUNCH_COLUMNS)].to_csv(index=False))
    return df


def _collect(ncu: str, metrics: Sequence[str], report: Path, task: Mapping[str, Any]) -> list[str]:
    """Have ncu write the report; returns the metrics that this GPU has, under its own names."""
    wanted, lean = list(metrics), list(LEAN)
    python_path = os.pathsep.join(filter(None, (str(paths.ROOT), os.environ.get("PYTHONPATH", ""))))
    for _ in range(ATTEMPTS):
        result = subprocess.run(
            command(ncu, wanted, report, task, lean),
            cwd=paths.ROOT,
            env=os.environ | {"PYTHONPATH": python_path},
            encoding="utf-8",
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        unknown = _named(result, wanted)
        refused = [option for option in lean if _named(result, option[:1])]
        if not unknown and not refused:
            break
        wanted = list(filter(None, dict.fromkeys(OTHER_NAMES.get(m, "") if m in unknown else m for m in wanted)))
        lean = [option for option in lean if option not in refused]
    if result.returncode or not report.is_file():
        raise explain(result.stdout)
    return wanted


def command(
    ncu: str,
    metrics: Sequence[str],
    report: Path,
    task: Mapping[str, Any],
    lean: Iterable[Sequence[str]] = LEAN,
) -> list[str]:
    """Return the command line that profiles `task`, an argument of `main`."""
    return [
        *(ncu, "--clock-control", "none", "--profile-from-start", "off"),
        *("--target-processes", "all", "--force-overwrite", "--export", str(report)),
        *(word for option in lean for word in option),
        *("--metrics", ",".join(metrics)),
        *(sys.executable, "-m", "artifact.profiling.ncu", json.dumps(task)),
    ]


def _named(result: subprocess.CompletedProcess, names: Iterable[str]) -> list[str]:
    """Which of the names a failed run complains of, each as a whole word.

    ncu stops at metrics that the GPU does not have: at all of them or at the first, by name or as a
    regular expression, with suffix or without.
    """
    text = "\n".join(_errors(result.stdout)).replace("\\", "") if result.returncode else ""
    words = {name: "|".join(map(re.escape, {name, name.partition(".")[0]})) for name in names}
    return [n for n, word in words.items() if re.search(rf"(?<![\w.])({word})(?!\w|\.\w)", text)]


def explain(output: str) -> Exception:
    """Return what went wrong, from what ncu printed, as an exception of one sentence."""
    if "ERR_NVGPUCTRPERM" in output:
        return PermissionError(
            "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): run as root, or let the "
            "administrator set NVreg_RestrictProfilingToAdminUsers=0; until then the book uses the "
            "shipped profiles"
        )
    if "No kernels were profiled" in output and not _errors(output):
        return RuntimeError("ncu profiled no kernel: its target launched none between its marks")
    # Where the target itself failed, its last words say more than ncu's "returned an error code".
    errors = [line for line in _errors(output) if "returned an error code" not in line]
    lines = [line.strip() for line in output.splitlines() if line.strip()[:2] not in ("", "==")]
    said = errors or lines[-1:] or _errors(output) or ["it printed nothing"]
    return RuntimeError(f"ncu could not profile: {said[-1].removeprefix('==ERROR==').strip()}")


def _errors(output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if "==ERROR==" in line]


def attribute(df: pd.DataFrame, order: Sequence[tuple[Mapping[str, Any], str]]) -> pd.DataFrame:
    """Return the table of `read` by contender: the k-th marker announces the k-th (shape, contender).

    Columns: COLUMNS; launch counts from 0 within a contender, and markers are left out. Raises
    RuntimeError for a report whose markers are not those of `order`.
    """
    launches = df[["launch", "kernel"]].drop_duplicates("launch")
    position = (launches["kernel"] == MARKER).cumsum() - 1
    if (position < 0).any():
        raise RuntimeError(f"the report holds {launches['kernel'].iloc[0]}, which no contender launched")
    marked = int((launches["kernel"] == MARKER).sum())
    if marked != len(order):
        raise RuntimeError(f"the report marks {marked} contenders, but {len(order)} were profiled")
    points = pd.DataFrame([dict(shape) | {"variant": name} for shape, name in order])[list(POINT)]
    within = launches.assign(position=position, within=launches.groupby(position).cumcount() - 1)
    out = df.merge(within.drop(columns="kernel"), on="launch").merge(points, left_on="position", right_index=True)
    return out[out["kernel"] != MARKER].assign(launch=out["within"])[list(COLUMNS)].reset_index(drop=True)


def per_contender(df: pd.DataFrame) -> pd.DataFrame:
    """One value per (contender, shape, metric), as `records.read_counters` expects it.

    Contenders may launch several kernels: sums add up, any other metric is that of the longest one.
    A value that is missing (NaN), or a sum of which a part is, has no row.
    """
    times = df[df["metric"] == TIME].dropna(subset=["value"]).sort_values("value", ascending=False, kind="stable")
    longest = df.drop_duplicates(list(POINT))[[*POINT, "launch"]]
    longest = pd.concat([times[[*POINT, "launch"]], longest]).drop_duplicates(list(POINT)).set_index(list(POINT))
    alone = df["launch"] == df.join(longest.rename(columns={"launch": "longest"}), on=list(POINT))["longest"]
    by = df[df["metric"].str.endswith(".sum") | alone].groupby([*POINT, "metric"], sort=False, as_index=False)
    table = by.agg(value=("value", lambda v: v.sum(skipna=False, min_count=1)), unit=("unit", "first"))
    return table.dropna(subset=["value"])[list(records.COUNTER_COLUMNS)].reset_index(drop=True)


# ---------------------------------------------------------------- what ncu runs


def main(task: Mapping[str, Any]) -> None:
    """Launch what a task names, as ncu runs it: every contender once at every shape, each after a marker kernel.

    task: {"room": …, "shapes": […], "contenders": […], "seed": 0}. A system is a module in `kernels`: its name, or
    "room.part" for a part of one. Contenders are prepared outside the profiled range. Inside it an empty kernel is
    launched before each of them, so that all kernels up to the next marker are that contender's.
    """
    from cuda.bindings import driver
    from cuda.core import LaunchConfig, Program, ProgramOptions, launch

    opened = device.require().open()
    system = importlib.import_module(f"kernels.{task['room']}")
    others = registry.contenders(system.BASELINES, opened)
    options = ProgramOptions(arch="sm_{}{}".format(*opened.compute_capability))
    code = Program(f'extern "C" __global__ void {MARKER}() {{}}', "c++", options).compile("cubin")
    marker, config = code.get_kernel(MARKER), LaunchConfig(grid=1, block=1)

    stream = opened.create_stream()
    for shape in task["shapes"]:
        problem = system.problem(**shape, seed=task["seed"])
        bounds: Any = [
            others[name](problem) if name in others else system.prepare(name, problem, opened)
            for name in task["contenders"]
        ]
        opened.sync()
        driver.cuProfilerStart()
        for bound in bounds:
            launch(stream, config, marker)
            bound.launch(stream)
            stream.sync()
        driver.cuProfilerStop()
        bounds = bound = None
        problem.release()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
