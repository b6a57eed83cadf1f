"""The chapter's tables: DataFrames, and Stylers where numbers are rounded for the page."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from artifact.drawing import prose
from artifact.drawing.compiled import on_targets, registers
from artifact.drawing.prose import captioned
from artifact.measure import records
from artifact.rooms.casper_sparse import experiments
from artifact.rooms.casper_sparse.experiments import BEST, POINT, Ceilings, Counters
from kernels import casper_sparse as room

COUNTED = ("LDG.128", "LDG.32", "LDS.128", "LDGSTS.128", "SHFL", "FFMA")
N = 4096  #: columns of B whose instantiations the table of machine code shows


def rounded(df: pd.DataFrame, digits: int = 2) -> Styler:
    return df.style.hide(axis="index").format(precision=digits)


# ---------------------------------------------------------------- machine code


def used() -> dict[str, str]:
    """Variant -> the instantiation that N takes; `auto` has none."""
    return {name: room.entry(name, N) for name, kernel in room.VARIANTS.items() if kernel.entries}


def distinct(report: pd.DataFrame) -> pd.DataFrame:
    """A compile report without what two variants share."""
    return report.drop_duplicates(["entry", "target"])


def on_hopper(report: pd.DataFrame) -> pd.DataFrame:
    """The instantiations that N takes, for sm_90a, by entry."""
    df = distinct(report)
    return df[df["entry"].isin(used().values()) & (df["target"] == "sm_90a")].set_index("entry")


@captioned(on_targets)
def compiled(report: pd.DataFrame) -> Styler:
    """Registers on each target, shared memory and instructions of what N takes."""
    entries = list(dict.fromkeys(used().values()))
    here = distinct(report)[lambda df: df["entry"].isin(entries)]
    targets = list(dict.fromkeys(report["target"]))
    table = here.pivot(index="entry", columns="target", values="registers")[targets]
    hopper = on_hopper(report)
    counted = [column for column in COUNTED if column in hopper and hopper[column].any()]
    table = registers(table).to_frame().join(hopper[["shared_bytes", *counted]])
    table = table.rename(columns={"shared_bytes": "shared [B]"})
    return rounded(table.loc[entries].reset_index(), 0)


def all_compilations(report: pd.DataFrame) -> str:
    """Every compilation, as HTML that unfolds."""
    df = distinct(report)
    whole = df.drop(columns="variant").rename(columns={"shared_bytes": "shared [B]"})
    return (
        f"<details><summary>All {len(df)} compilations, with their instruction mix</summary>"
        "<div style='overflow-x:auto' tabindex='0' role='region' aria-label='All compilations'>"
        f"{prose.table(whole, called='All compilations, with their instruction mix.')}</div></details>"
    )


# ---------------------------------------------------------------- the sweeps


@captioned("What the profiler counted at the largest density.")
def counters(counters: Counters | None) -> Styler | None:
    """Of the largest density; None without counters."""
    if counters is None:
        return None
    looked_at = ["warp_per_row", "in_flight", "shared_tiles", "cusparse_alg2", "cusparse_alg3"]
    shown = counters.most_dense[lambda df: df["variant"].isin(looked_at)]
    shape = shown.apply(lambda r: f"{r['m']} × {r['n']} × {r['k']}", axis=1)
    shown = shown.drop(columns=["m", "n", "k", "density"])
    shown.insert(0, "M × N × K", shape.where(~shape.duplicated(), ""))
    return shown.style.hide(axis="index").format(precision=0, subset=list(shown.columns[2:]))


@captioned("`auto` over cuSPARSE's fastest algorithm, and its share of the roofline, by sweep.")
def last_rung(everything: pd.DataFrame, ceilings: Ceilings) -> pd.DataFrame:
    """`auto` against the library, and how near it comes to the roofline, by sweep."""
    last = experiments.by_sweep(everything, "auto")
    ours = everything[everything["variant"] == "auto"]
    moved_us = ours["least_bytes"] / ceilings.copy_gbps / 1e3
    multiplied_us = ours["useful_flops"] / ceilings.fma_tflops / 1e6
    share = np.maximum(moved_us, multiplied_us) / ours["median_us"]
    return pd.DataFrame(
        {
            "sweep": list(last),
            "geometric mean": [records.geomean(r) for r in last.values()],
            "least": [r.min() for r in last.values()],
            "most": [r.max() for r in last.values()],
            "points": [len(r) for r in last.values()],
            "share of roofline, median": [share[ours["experiment"] == e].median() for e in last],
        }
    )


@captioned("What preparing a matrix costs, and after how many multiplications it is worth it.")
def preprocessing(everything: pd.DataFrame) -> pd.DataFrame:
    """What preparing costs, and after how many multiplications it is worth it against the library."""
    looked_at = ["split_rows", "shared_tiles", "auto", "in_flight"]
    rows = everything[everything["variant"].isin(looked_at)]
    library = everything[everything["variant"] == BEST].set_index(POINT)
    joined = rows.join(library[["median_us", "prepare_ms"]].add_suffix("_library"), on=POINT)
    gain_us = joined["median_us_library"] - joined["median_us"]
    extra_us = 1e3 * (joined["prepare_ms"] - joined["prepare_ms_library"])
    never = np.where(gain_us > 0, np.ceil(extra_us / gain_us), np.inf)
    joined["even"] = np.where(extra_us <= 0, 0, never)
    columns = {
        "median [ms]": ("prepare_ms", "median"),
        "largest [ms]": ("prepare_ms", "max"),
        "memory, largest [MiB]": ("prepare_bytes", lambda b: b.max() / 2**20),
        "multiplications until even, median": ("even", "median"),
    }
    return joined.groupby("variant", sort=False).agg(**columns).reset_index()


@captioned("Speedups over cuSPARSE where N is no multiple of anything.")
def ragged(odd: pd.DataFrame) -> pd.DataFrame:
    """Speedups at odd N; `odd` has the rows of cusparse_best."""
    dropped = ["experiment", "label", "m", "k", "density"]
    shown = ("any_n", "in_flight", "split_rows", "auto")
    table = pd.DataFrame({v: records.speedup(odd, v, BEST).droplevel(dropped) for v in shown})
    library = odd[odd["variant"] == BEST].set_index("n")
    table.insert(0, "cuSPARSE [µs]", library["median_us"])
    return table.reset_index().rename(columns={"n": "N"})


@captioned("Speedups over cuSPARSE's fastest algorithm on each real matrix, with its size.")
def real(real: pd.DataFrame | None, preset: str = "full") -> pd.DataFrame | None:
    """Speedups on real matrices; None where they were not measured."""
    if real is None:
        return None
    shown = ("warp_per_row", "in_flight", "split_rows", "auto")
    ratio = {v: records.speedup(real, v, BEST).groupby("label", sort=False).first() for v in shown}
    table = pd.DataFrame(ratio)
    facts = real.drop_duplicates("label").set_index("label")
    domain = experiments.list_of_matrices(preset).set_index("name")["domain"]
    for place, column in enumerate((domain, facts["m"].rename("rows"), facts["nnz"])):
        table.insert(place, column.name, column)
    return table.reset_index(names="matrix")


def errors(everything: pd.DataFrame) -> pd.DataFrame:
    """The largest errors of each contender over all points, by its name."""
    df = everything[everything["variant"] != BEST]
    table = df.groupby("variant", sort=False)[["rel_err", "max_err"]].max()
    return table.set_axis(["relative error", "element-wise error"], axis=1)


@captioned("The largest errors of each contender over all points.")
def errors_rounded(everything: pd.DataFrame) -> Styler:
    table = errors(everything)
    styled = table.reset_index().style.hide(axis="index")
    return styled.format("{:.1e}", subset=list(table.columns))
