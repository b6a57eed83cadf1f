"""Do points that were dealt out to several GPUs agree with those of one? What `make measure GPUS=all` made, beside the
shipped records and their second run.

    python -m artifact.distributed.agreement --fresh build/records/nvidia-h200 --out dealt.csv
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from artifact import paths
from artifact.measure import dealt, records, run

COLUMNS = ["room", "experiment", *records.POINT, "variant", "median_us", "gpu"]
RATIOS = "room experiment gpus points rows time low high again_low again_high".split()


def collected(fresh: Path) -> pd.DataFrame:
    """`COLUMNS` of all rows under a GPU's folder of records whose point a GPU of several measured; gpu: its name there,
    and of its host. Raises ValueError, one sentence, where there are none."""
    found = []
    for room in records.rooms(fresh):
        for experiment in records.experiments(fresh / room):
            known = dealt.marks(fresh / room, experiment)
            df = records.read(fresh / room / f"{experiment}.csv")
            df["gpu"] = [known.get(f"{experiment} {run.point_name(row)}") for row in df.itertuples()]
            found.append(df.loc[df["gpu"].notna(), COLUMNS])
    table = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=COLUMNS)
    if table.empty:
        raise ValueError(f"{fresh}: no point there was dealt out: `make measure GPUS=all` does so")
    return table


def read(path: Path) -> pd.DataFrame | None:
    """`COLUMNS`; None where there is no file."""
    return pd.read_csv(path, keep_default_na=False) if path.is_file() else None


def compared(df: pd.DataFrame, shipped: Path) -> pd.DataFrame:
    """For each experiment that both have: gpus, points, rows; time, the median of each row's time over the shipped one,
    with its 5th and 95th percentile (low, high); and the same of the shipped second run (again_low, again_high), NaN
    without one. shipped: a GPU's folder of records."""
    key = [*records.POINT, "variant"]
    made = []
    for (room, experiment), mine in df.groupby(["room", "experiment"], sort=False):
        path = shipped / room / f"{experiment}.csv"
        if not path.is_file():
            continue
        before = records.read(path)[[*key, "median_us"]]
        ratio = _ratio(mine, before, key)
        second = shipped / room / records.REPEAT / f"{experiment}.csv"
        again = pd.Series([float("nan")])
        if second.is_file():
            again = _ratio(records.read(second), before, key)
        low, high = ratio.quantile([0.05, 0.95])
        again_low, again_high = again.quantile([0.05, 0.95])
        points = mine[list(records.POINT)].drop_duplicates()
        made.append(
            {
                "room": room,
                "experiment": experiment,
                "gpus": mine["gpu"].nunique(),
                "points": len(points),
                "rows": len(ratio),
                "time": ratio.median(),
                "low": low,
                "high": high,
                "again_low": again_low,
                "again_high": again_high,
            }
        )
    return pd.DataFrame(made, columns=RATIOS)


def _ratio(mine: pd.DataFrame, before: pd.DataFrame, key: list[str]) -> pd.Series:
    both = mine.merge(before, on=key, suffixes=("", "_before"))
    return both["median_us"] / both["median_us_before"]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m artifact.distributed.agreement", description=__doc__)
    parser.add_argument("--fresh", type=Path, required=True, help="a GPU's folder of records")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shipped", type=Path, default=paths.RECORDED / "nvidia-h200")
    given = parser.parse_args(argv)
    try:
        table = collected(given.fresh)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    given.out.parent.mkdir(parents=True, exist_ok=True)
    table["median_us"] = table["median_us"].map(lambda us: float(f"{us:.6g}"))
    table.to_csv(given.out, index=False, lineterminator="\n")
    print(compared(table, given.shipped).round(3).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
