"""The headline: a published system, our best rung and the vendor's library; also the README's figure."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt

from artifact import paths, rooms
from artifact.drawing import plot, style
from artifact.measure import records
from artifact.verdicts import evidence


@dataclass(frozen=True)
class Contest:
    """The published kernel and our last rung against the library, over a room's sweeps."""

    room: str
    name: str  #: of the system
    published: str
    last: str
    speedups: pd.DataFrame  #: experiment, POINT, variant, speedup over cusparse_best, size
    prepare_ms: float  #: median preprocessing of `last`

    def geomean(self, variant: str, experiment: str) -> float:
        df = self.speedups
        here = df[(df["variant"] == variant) & (df["experiment"] == experiment)]
        return records.geomean(here["speedup"])

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(self.speedups["experiment"]))


def contest(folder: Path) -> Contest | None:
    """The contest of the generated sweeps of the room that is the headline; None where there is no such room, or
    where its records hold no two contenders."""
    chosen = rooms.headline()
    if chosen is None:
        return None
    room, found = chosen.room, []
    offered = importlib.import_module(f"kernels.{room}")
    known = {kernel.name: kernel.published for kernel in offered.VARIANTS.values()}
    for experiment in records.experiments(folder / room):
        df = records.read(folder / room / f"{experiment}.csv")
        df = df[df["label"] == ""]
        if not df["variant"].map(known).eq(True).any():  # sizes that the published kernel refuses
            continue
        sizes = [c for c in ("n", "m") if df[c].nunique() > 1]
        if len(df) and sizes and df["variant"].str.startswith("cusparse_").any():
            df = records.best_of(df, "cusparse_")
            df["size"] = df["m"] if sizes == ["n", "m"] else df[sizes[0]]
            found.append(df)
    if not found:
        return None
    df = pd.concat(found, ignore_index=True)
    measured = [v for v in known if (df["variant"] == v).any()]
    if len(measured) < 2:
        return None
    published, last = next((v for v in measured if known[v]), measured[0]), measured[-1]
    at = ["experiment", *records.POINT]
    rows = [
        records.speedup(df, v, evidence.BEST).reset_index().assign(variant=v)
        for v in (published, last)
    ]
    speedups = pd.concat(rows).merge(df[[*at, "size"]].drop_duplicates(), on=at)
    swept = list(dict.fromkeys([*offered.sweeps("full"), *speedups["experiment"]]))
    speedups["experiment"] = pd.Categorical(speedups["experiment"], swept)
    speedups = speedups.sort_values(["experiment", "variant", "size"], ignore_index=True)
    prepare_ms = float(df.loc[df["variant"] == last, "prepare_ms"].median())
    return Contest(
        room, chosen.name, published, last, speedups.astype({"experiment": str}), prepare_ms
    )


def contest_figure(c: Contest):
    """Speedup over the library's best algorithm: one panel per sweep, geometric mean over the
    densities as a line, their range as a band. (fig, data)"""
    names = c.experiments
    fig, axes = plt.subplots(1, len(names), figsize=(style.WIDTH, 3.3), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    for ax, experiment in zip(axes[0], names, strict=True):
        here = c.speedups[c.speedups["experiment"] == experiment]
        for variant, role in ((c.published, "as published"), (c.last, "our last rung")):
            groups = here[here["variant"] == variant].groupby("size")["speedup"]
            mean = groups.apply(records.geomean)
            colour = style.look(variant, [c.published, c.last])["color"]
            marker = style.look(variant, [c.published, c.last])["marker"]
            ax.fill_between(
                mean.index, groups.min(), groups.max(), color=colour, alpha=0.2, linewidth=0
            )
            (line,) = ax.plot(mean.index, mean, color=colour, marker=marker, markeredgewidth=0)
            handles[f"{variant} ({role})"] = line
        line = ax.axhline(1, color=style.BASELINE, linewidth=1.3)
        handles["cuSPARSE, best algorithm"] = line
        ax.set_title(experiment)
        swept = "N" if here["n"].nunique() > 1 and here["m"].nunique() == 1 else "M"
        swept = "M = N = K" if (here["m"] == here["n"]).all() else swept
        ax.set_xlabel(swept)
        plot.sizes(ax, here["size"].tolist())
    plot.ratio(axes[0, 0], c.speedups["speedup"].tolist())
    axes[0, 0].set_ylabel("speedup over cuSPARSE")
    plot.legend(fig, handles, columns=3)
    return fig, c.speedups[["experiment", "variant", *records.POINT, "speedup"]]


# ---------------------------------------------------------------- the README's figure

README_FIGURE = paths.ROOT / "book" / "_static" / "readme.svg"
#: A picture in a README follows the reader's colour scheme by itself.
_SCHEME = "<style>svg{color:#24292f}@media (prefers-color-scheme:dark){svg{color:#d5dae0}}</style>"


def readme(folder: Path, target: Path = README_FIGURE) -> Path:
    """Write the README's figure, an SVG that stands alone. Raises FileNotFoundError without records."""
    c = contest(folder)
    if c is None:
        chosen = rooms.headline()
        raise FileNotFoundError(
            f"{folder.name} has no records of {chosen.room if chosen else 'a room that is the headline'} "
            "with cuSPARSE beside it: make measure"
        )
    style.apply()
    fig, _ = contest_figure(c)
    machine = records.read_machine(folder / c.room)
    alt = (
        f"Speedup of {c.published} and {c.last} over cuSPARSE's best algorithm on {machine['gpu']}: "
        + ", ".join(
            f"{e} {c.geomean(c.published, e):.2f} and {c.geomean(c.last, e):.2f}"
            for e in c.experiments
        )
    )
    text = style.svg(fig, "readme", alt)
    plt.close(fig)
    text = (
        text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        if "xmlns=" not in text
        else text
    )
    text = re.sub(r"(<svg [^>]*>)", rf"\1{_SCHEME}", text, count=1)
    return records.write_text(target, text + "\n")


def main(arguments: Iterable[str] | None = None) -> int:
    """Draw the README's figure; errors are one sentence on stderr and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m artifact.drawing.headline", description=__doc__
    )
    parser.add_argument("what", choices=["readme"], help="the figure of the README")
    parser.add_argument("--gpu", default="nvidia-h200", help="whose records (default: %(default)s)")
    parser.add_argument(
        "--records", type=Path, default=paths.RECORDED, help="default: the shipped ones"
    )
    parser.add_argument("--output", type=Path, default=README_FIGURE)
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        print(readme(records.resolve(options.gpu, options.records), options.output))
    except (ValueError, FileNotFoundError) as error:
        print(f"artifact.drawing.headline: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
