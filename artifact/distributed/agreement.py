"""Do points that were dealt out to several GPUs agree with those of one?

What `make measure GPUS=all` made, beside the shipped records and their second run.

    python -m artifact.distributed.agreement --fresh build/records/nvidia-h200 --out dealt.csv
"""

from pathlib import Path

import pandas as pd

from artifact import command, paths
from artifact.measure import records, run
from kernels.contract import require

COLUMNS = ["room", "experiment", *records.POINT, "variant", "median_us", "gpu"]
RATIOS = "room experiment gpus points rows time low high again_low again_high".split()


def collected(fresh: Path) -> pd.DataFrame:
    """`COLUMNS` of all rows under a GPU's folder of records whose point a GPU of several measured.

    gpu: its name there, and of its host. Raises ValueError, one sentence, where there are none.
    """
    found = []
    for system in records.systems(fresh):
        for experiment in records.experiments(fresh / system):
            known = run.marks(fresh / system, experiment)
            df = records.read(fresh / system / f"{experiment}.csv")
            df["gpu"] = [known.get(f"{experiment} {run.point_name(row)}") for row in df.itertuples()]
            found.append(df.loc[df["gpu"].notna(), COLUMNS])
    require(any(map(len, found)), f"{fresh}: no point there was dealt out: `make measure GPUS=all` does so")
    return pd.concat(found, ignore_index=True)


def compared(df: pd.DataFrame, shipped: Path) -> pd.DataFrame:
    """For each experiment that both have: gpus, points, rows.

    Time, the median of each row's time over the shipped one, with its 5th and 95th percentile (low, high); and the
    same of the shipped second run (again_low, again_high), NaN without one. shipped: a GPU's folder of records.
    """
    made = []
    for (system, experiment), mine in df.groupby(["room", "experiment"], sort=False):
        paths_ = (shipped / system / folder / f"{experiment}.csv" for folder in ("", records.REPEAT))
        before, second = (records.read(path) if path.is_file() else None for path in paths_)
        if before is not None:
            ratio = _ratio(mine, before)
            again = pd.Series(dtype=float) if second is None else _ratio(second, before)
            points = len(mine[list(records.POINT)].drop_duplicates())
            ends = [*ratio.quantile([0.05, 0.95]), *again.quantile([0.05, 0.95])]
            made.append((system, experiment, mine["gpu"].nunique(), points, len(ratio), ratio.median(), *ends))
    return pd.DataFrame(made, columns=RATIOS)


def _ratio(mine: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    both = mine.merge(before, on=list(records.KEY), suffixes=("", "_before"))
    return both["median_us"] / both["median_us_before"]


@command.program(
    "artifact.distributed.agreement",
    __doc__,
    command.option("--fresh", type=Path, required=True, help="a GPU's folder of records"),
    command.option("--out", type=Path, required=True),
    command.option("--shipped", type=Path, default=paths.RECORDED / "nvidia-h200"),
)
def main(given: command.Options) -> None:
    """Collect points that were dealt out, and compare them with those of one GPU."""
    table = collected(given.fresh)
    table["median_us"] = table["median_us"].map(lambda us: float(f"{us:.6g}"))
    records.write_text(given.out, table.to_csv(index=False, lineterminator="\n"))
    print(compared(table, given.shipped).round(3).to_string(index=False))


if __name__ == "__main__":
    raise SystemExit(main())
