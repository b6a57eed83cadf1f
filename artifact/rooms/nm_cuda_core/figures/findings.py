"""What the chapter's figures show, as alternative texts: found in the data behind each."""

from __future__ import annotations

import pandas as pd

from artifact.drawing import style
from artifact.drawing.findings import ladder, short, spread
from artifact.drawing.words import cube, listed

__all__ = [
    "element_wise",
    "ladder",
    "readings",
    "scaling",
    "speedups",
    "spread",
    "stalls",
    "variants",
]


def _measured(data: pd.DataFrame) -> pd.DataFrame:
    return data[data["source"] == "measured"]


def _stated(data: pd.DataFrame, quantity: str, unit: str) -> str:
    """The published values at their sizes; nothing where there are none."""
    if "quantity" not in data:
        return ""
    rows = data[(data["source"] == "stated") & (data["quantity"] == quantity)].sort_values("size")
    told = [f"{_range(r)} at {cube(int(r.size))} ({r.variant})" for r in rows.itertuples(index=False)]
    return f" Stated, in {unit}: {', '.join(told)}." if told else ""


def _range(row) -> str:
    if row.low != row.low or row.high != row.high:
        return f"at most {row.high:g}" if row.low != row.low else f"at least {row.low:g}"
    return f"{row.low:g}" if row.low == row.high else f"{row.low:g} to {row.high:g}"


def scaling(data: pd.DataFrame) -> str:
    """The fastest of each contender, and what is stated."""
    here = _measured(data)
    told = []
    for variant, rows in here.groupby("variant", sort=False):
        most = rows.loc[rows["tflops"].idxmax()]
        told.append(f"{style.name(variant)} {most['tflops']:.3g} TFLOP/s at {cube(most['size'])}")
    return (
        f"Throughput and run time over the size, logarithmic. At most: {listed(told)}."
        f"{_stated(data, 'tflops', 'TFLOP/s')}"
    )


def speedups(data: pd.DataFrame) -> str:
    """How each kernel's lead over the CPU and over cuBLAS changes between the ends of the sweep."""
    here, told = _measured(data), []
    for over, rows in here.groupby("over", sort=False):
        ends = []
        for variant, line in rows.sort_values("size").groupby("variant", sort=False):
            first, last = line["speedup"].iloc[[0, -1]]
            ends.append(f"{style.name(variant)} from {short(first)} to {short(last)} times")
        sizes = f"{cube(rows['size'].min())} to {cube(rows['size'].max())}"
        told.append(f"Over {style.name(over)}, {sizes}: {listed(ends)}.")
    return f"{' '.join(told)}{_stated(data, 'speedup_cublas', 'times cuBLAS')}"


def readings(data: pd.DataFrame) -> str:
    """What the largest part of a call is, here and in the fit of the published times, at each size."""
    stated = data[data["source"] == "stated"].set_index("size")
    terms = {
        "constant_ms": "the constant",
        "square_ms": "what grows as n²",
        "cube_ms": "what grows as n³",
    }
    told = []
    for size, row in stated.iterrows():
        parts = row[list(terms)].astype(float)
        here = _measured(data)[lambda df, size=size: df["size"] == size].set_index("variant")
        if here.empty:
            continue
        adds = here["over_kernel_ms"].dropna()
        adds["cublas"] = here.loc["cublas", "time_ms"]
        largest = "the kernel" if adds.idxmax() == "cublas" else f"what “{style.name(adds.idxmax())}” adds"
        told.append(
            f"{cube(size)}: here {largest}, {adds.max() / adds.sum():.0%}; in the fit {terms[parts.idxmax()]}, "
            f"{parts.max() / parts.sum():.0%} of it"
        )
    return f"Stacked bars of a cuBLAS call at each size, the largest part. {'; '.join(told)}."


def variants(data: pd.DataFrame) -> str:
    """What is fastest at each size."""
    fastest = _measured(data)[lambda df: df["fastest"].astype(bool)]
    told = [f"{cube(size)} {listed(map(style.name, rows['variant']))}" for size, rows in fastest.groupby("size")]
    return f"A table of relative performance by variant and size. Fastest, or within 2% of it: {'; '.join(told)}."


def stalls(data: pd.DataFrame) -> str:
    """For which reason most warps wait at each size, and whose warps wait for another."""
    told = []
    for size, rows in data.groupby("size", sort=False):
        wide = rows.pivot(index="variant", columns="reason", values="warps_stalled_per_issue")
        first = wide.idxmax(axis=1)
        usual = first.mode()[0]
        others = [f"{style.name(v)} for {r.replace('_', ' ')}" for v, r in first[first != usual].items()]
        text = f"at {cube(size)} those of {(first == usual).sum()} of {len(first)} for {usual.replace('_', ' ')}"
        told.append(f"{text}, of {listed(others)}" if others else text)
    return f"Stalled warps per issued instruction. Most wait {'; '.join(told)}."


def element_wise(data: pd.DataFrame) -> str:
    """Where each line ends."""
    told = []
    for line, rows in data.sort_values("size").groupby("line", sort=False):
        first, last = rows["time_over_baseline"].iloc[[0, -1]]
        told.append(f"{line} goes from {first:.2f} to {last:.2f} times")
    sizes = f"{cube(data['size'].min())} to {cube(data['size'].max())}"
    return f"Time over the baseline's from {sizes}: {listed(told)}."
