"""Hardware counters through Nsight Compute: one launch of each contender under `ncu`, as a tidy table.

    df = profile("casper_sparse", [{"m": 4096, "n": 512, "k": 4096, "density": 0.01}],
                 ["warp_per_row", "cusparse_alg2"])
    write(per_contender(df), folder / "counters.csv")

`ncu` runs this module as its target (see the end of the file). The target prepares every contender
outside the profiled range, and inside it launches an empty marker kernel before each contender, so
that all kernels up to the next marker are that contender's. ncu replays each kernel from a flushed
cache until every counter was read, and leaves the clocks alone (`--clock-control none`).
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from artifact import paths, records

#: Why a warp did not issue, in cycles per issued instruction; `gmma` exists on Hopper alone.
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
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sectors_op_read.sum",
    "lts__t_sector_hit_rate.pct",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l1tex__t_sector_hit_rate.pct",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "launch__registers_per_thread",
    *(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in STALLS),
)
TIME = "gpu__time_duration.sum"
MARKER = "contender_marker"
COLUMNS = ("variant", "m", "n", "k", "density", "launch", "kernel", "metric", "value", "unit")


def profile(
    room: str,
    shapes: Sequence[Mapping[str, Any]],
    contenders: Sequence[str],
    metrics: Iterable[str] = METRICS,
    *,
    seed: int = 0,
    report: Path | None = None,
) -> pd.DataFrame:
    """Counters of one launch of every contender at every shape: one row per (launch, metric).

    shapes: keyword arguments of the room's `problem` (m, n, k, density). contenders: names of the
    room's variants and of cuSPARSE's algorithms ("cusparse_alg2"). report: where to keep the
    .ncu-rep; by default nowhere. Columns: COLUMNS; launch counts from 0 within a contender; a
    metric that this GPU does not have has no rows.
    Raises FileNotFoundError, PermissionError or RuntimeError, one sentence, where ncu is missing,
    may not read the counters, or fails.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise FileNotFoundError(
            "Nsight Compute's ncu is not on the PATH: install it (a CUDA toolkit has it), or read "
            "the shipped counters"
        )
    order = [(dict(shape), name) for shape in shapes for name in contenders]
    task = {"room": room, "shapes": [dict(s) for s in shapes], "seed": seed}
    task["contenders"] = list(contenders)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counters.ncu-rep"
        wanted = list(dict.fromkeys(metrics))
        failure = _run(command(ncu, wanted, path, task))
        unknown = [m for m in wanted if any(m in line for line in _errors(failure))]
        if unknown:  # ncu stops at a metric that the GPU does not have
            wanted = [m for m in wanted if m not in unknown]
            failure = _run(command(ncu, wanted, path, task))
        if failure is not None:
            raise explain(failure)
        if not path.is_file():
            raise RuntimeError("ncu profiled no kernel: its target launched none between its marks")
        df = read(path, order, wanted)
        if report is not None:
            report.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, report)
    return df


def command(ncu: str, metrics: Sequence[str], report: Path, task: Mapping[str, Any]) -> list[str]:
    """The command line that profiles `task`, an argument of this module's own main."""
    return [
        *(ncu, "--clock-control", "none", "--profile-from-start", "off"),
        *("--target-processes", "all", "--force-overwrite", "--export", str(report)),
        *("--metrics", ",".join(metrics)),
        *(sys.executable, "-m", "artifact.ncu", json.dumps(task)),
    ]


def read(
    report: Path, order: Sequence[tuple[Mapping[str, Any], str]], metrics: Sequence[str]
) -> pd.DataFrame:
    """The table of a report whose k-th marker announces the k-th (shape, contender) of `order`."""
    try:
        import ncu_report
    except ImportError:
        raise FileNotFoundError(
            "reading Nsight Compute's report needs the package ncu-report: install the `profile` extra"
        ) from None
    context = ncu_report.load_report(str(report))
    actions = (action for r in context for action in r)
    return tidy(actions, order, metrics)


def tidy(
    actions: Iterable[Any], order: Sequence[tuple[Mapping[str, Any], str]], metrics: Sequence[str]
) -> pd.DataFrame:
    """`read` on the actions (`ncu_report.IAction`) themselves, in the order of their launches."""
    rows, position, launch = [], -1, 0
    for action in actions:
        if action.name() == MARKER:
            position, launch = position + 1, 0
            continue
        if not 0 <= position < len(order):
            raise RuntimeError(f"the report holds {action.name()}, which no contender launched")
        shape, name = order[position]
        for metric, value, unit in _values(action, metrics):
            rows.append(
                {
                    "variant": name,
                    **{key: shape[key] for key in ("m", "n", "k", "density")},
                    "launch": launch,
                    "kernel": action.name(),
                    "metric": metric,
                    "value": value,
                    "unit": unit,
                }
            )
        launch += 1
    if position + 1 != len(order):
        raise RuntimeError(f"the report ends after {position + 1} of {len(order)} contenders")
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _values(action, metrics: Sequence[str]) -> Iterator[tuple[str, float, str]]:
    for name in metrics:
        metric = action.metric_by_name(name)
        value = None if metric is None else metric.value()
        if isinstance(value, int | float):
            yield name, float(value), metric.unit()


def per_contender(df: pd.DataFrame) -> pd.DataFrame:
    """One value per (contender, shape, metric), as `records.read_counters` expects it.

    Contenders may launch several kernels: sums add up, any other metric is that of the longest one.
    """
    point = ["variant", "m", "n", "k", "density"]
    rows = []
    for key, launches in df.groupby(point, sort=False):
        durations = launches[launches["metric"] == TIME].set_index("launch")["value"]
        longest = durations.idxmax() if len(durations) else launches["launch"].iloc[0]
        for metric, values in launches.groupby("metric", sort=False):
            if str(metric).endswith(".sum"):
                value = values["value"].sum()
            else:
                of_longest = values.loc[values["launch"] == longest, "value"]
                if of_longest.empty:
                    continue
                value = of_longest.iloc[0]
            rows.append((*key, metric, float(value), values["unit"].iloc[0]))
    return pd.DataFrame(rows, columns=list(records.COUNTER_COLUMNS))


def write(df: pd.DataFrame, path: Path) -> Path:
    """Write the table of `per_contender` as a counters.csv, whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(records.COUNTER_COLUMNS)
    writer.writerows(df[list(records.COUNTER_COLUMNS)].itertuples(index=False))
    return records.write_text(path, text.getvalue())


def explain(output: str) -> Exception:
    """What went wrong, from what ncu printed, as an exception of one sentence."""
    if "ERR_NVGPUCTRPERM" in output:
        return PermissionError(
            "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): run as root, or let the "
            "administrator set NVreg_RestrictProfilingToAdminUsers=0"
        )
    # Where the target itself failed, its last words say more than ncu's "returned an error code".
    errors = [line for line in _errors(output) if "returned an error code" not in line]
    lines = [line.strip() for line in output.splitlines() if line.strip()[:2] not in ("", "==")]
    said = errors or lines[-1:] or _errors(output) or ["it printed nothing"]
    return RuntimeError(f"ncu could not profile: {said[-1].removeprefix('==ERROR==').strip()}")


def _errors(output: str | None) -> list[str]:
    return [line.strip() for line in (output or "").splitlines() if "==ERROR==" in line]


def _run(arguments: list[str]) -> str | None:
    """Run ncu; None if that went well, else everything it printed."""
    python_path = os.pathsep.join(filter(None, (str(paths.ROOT), os.environ.get("PYTHONPATH", ""))))
    result = subprocess.run(
        arguments,
        cwd=paths.ROOT,
        env=os.environ | {"PYTHONPATH": python_path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return None if result.returncode == 0 else result.stdout


# ---------------------------------------------------------------- the target of ncu


def _target(task: Mapping[str, Any]) -> None:
    """Launch every contender of `task` once at every shape, each after a marker."""
    from cuda.bindings import driver
    from cuda.core import LaunchConfig, Program, ProgramOptions, launch

    from artifact import device
    from artifact.baselines import cusparse

    opened = device.require().open()
    room = importlib.import_module(f"kernels.{task['room']}")
    baselines = cusparse.contenders(opened)
    arch = "sm_{}{}".format(*opened.compute_capability)
    source = f'extern "C" __global__ void {MARKER}() {{}}'
    code = Program(source, "c++", ProgramOptions(arch=arch)).compile("cubin")
    marker, config = code.get_kernel(MARKER), LaunchConfig(grid=1, block=1)

    stream = opened.create_stream()
    for shape in task["shapes"]:
        problem = room.problem(**shape, seed=task["seed"])
        bounds = [
            baselines[name](problem) if name in baselines else room.bind(name, problem, opened)
            for name in task["contenders"]
        ]
        opened.sync()
        driver.cuProfilerStart()
        for bound in bounds:
            launch(stream, config, marker)
            bound.launch(stream)
            stream.sync()
        driver.cuProfilerStop()
        bounds = None
        problem.release()


if __name__ == "__main__":
    _target(json.loads(sys.argv[1]))
