"""Hold what the page reads of a prefill's records, shows of them, and its facts.

The facts are by the part of the page that they stand in; None for what was not recorded.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

import pandas as pd

from artifact.book.facts import Fact, part
from artifact.book.study import Study, given, where
from artifact.book.text import listed
from artifact.drawing import plot
from artifact.drawing.provenance import folders
from artifact.measure import records
from artifact.measure.run import Run
from artifact.systems.async_sparse.experiments import SYSTEM, means, speedups
from artifact.systems.async_sparse.prefill.model import (
    BOTH,
    BOTH_OURS,
    CHECK_LENGTH,
    CONFIGURATIONS,
    DENSE,
    DENSITIES,
    FFN_OURS,
    FOLDER,
    LAYERS,
    PARTS,
    WHOLE,
    label,
)

SPARSE = [name for name in CONFIGURATIONS if name != DENSE]
CALLED = {name: c.called for name, c in (CONFIGURATIONS | LAYERS).items()}


def read(study: Study, record: str) -> pd.DataFrame | None:
    """Return a record of this run's model, else of the first that it holds."""
    df, own = study.read(record), label(study.run)
    return None if df is None else where(df, label=own if own in set(df["label"]) else df["label"].iloc[0])


def elsewhere(run: Run) -> dict[str, pd.DataFrame]:
    """Return name of a GPU → its record of the whole model: this page's first, then the others that have one."""
    read = {
        gpu: where(records.read(path), label="")
        for gpu, folder in folders(run.folder.parent).items()
        if (path := folder / SYSTEM / f"{WHOLE}.csv").is_file()
    }
    return {gpu: df for gpu, df in read.items() if len(df)}


def stated(text: pd.DataFrame) -> pd.DataFrame:
    """Return what the source states of Fig. 8: variant (ours of that name), n, low, high."""
    rows, ours = where(text, quantity="end_to_end"), {c.stated: name for name, c in CONFIGURATIONS.items() if c.stated}
    return rows.assign(variant=rows["variant"].map(ours), n=rows["size"])[["variant", "n", "low", "high"]].astype(
        {"n": int, "low": float, "high": float}
    )


# ---------------------------------------------------------------- tables and figures


@given
def over_dense(df: pd.DataFrame, dense: str = DENSE) -> pd.DataFrame:
    """Return the dense contender's milliseconds for each length, and how much faster the others are.

    The others have the first share of blocks.
    """
    us = where(df, density=DENSITIES[0]).pivot_table(index="n", columns="variant", values="median_us", aggfunc="last")
    return (
        (1 / us[[name for name in CALLED if name in us and name != dense]])
        .mul(us[dense], axis=0)
        .rename(columns=CALLED)
        .assign(ms=us[dense] / 1e3)
        .reset_index()
    )


def abreast(of: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """Return the same of several GPUs, "a / b", of the lengths that all of them measured; None for fewer than two."""
    if len(of) < 2:
        return None
    return (
        pd.concat({gpu: over_dense(df).set_index("n") for gpu, df in of.items()}, axis=1, join="inner")
        .apply(lambda values: values.map(("{:,.1f}" if values.name[1] == "ms" else "{:.2f}").format))
        .T.groupby(level=1, sort=False)
        .agg(" / ".join)
        .T.reset_index()
    )


@given
def chosen(attention: pd.DataFrame) -> pd.DataFrame:
    """Return what attention was at each length: SDPA's backend, how much of the causal blocks the patterns kept."""
    return (
        attention.assign(backend=attention["backend"].str.removesuffix("_ATTENTION").str.lower())
        .drop_duplicates("n", keep="last")
        .sort_values("n")
    )


@given
def along(df: pd.DataFrame, dense: str, text: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over the dense contender at each length, and of the whole model what the source states."""
    found = speedups(df, [name for name in CALLED if name != dense], dense)[["variant", "n", "density", "speedup"]]
    said = stated(text).assign(
        speedup=lambda df: df["low"], to=lambda df: df["high"], density=DENSITIES[0], source="stated", gpu="H100"
    )
    return pd.concat([found.assign(source="measured"), said[said["variant"].isin(found["variant"])]], ignore_index=True)


@given
def in_parts(parts: pd.DataFrame) -> pd.DataFrame:
    """Return where the time goes, over the dense model's time at the same length.

    N, configuration, part, share, and the total of all parts.
    """
    df = parts.drop_duplicates(["n", "configuration", "part"], keep="last")
    dense = where(df, configuration=DENSE).groupby("n")["us"].sum()
    return (
        df.assign(share=df["us"] / df["n"].map(dense), configuration=df["configuration"].map(CALLED))
        .dropna(subset=["share"])
        .assign(total=lambda df: df.groupby(["n", "configuration"])["share"].transform("sum"))
        .sort_values("n", kind="stable")[["n", "configuration", "part", "share", "total"]]
    )


# ---------------------------------------------------------------- facts


def of(run: Run, text: pd.DataFrame) -> Iterator[Fact]:
    """Return every fact that records hold."""
    study = Study(run)
    attention, parts, checks = (study.table(f"{FOLDER}/{name}") for name in ("attention", "parts", "checks"))
    return chain(
        claimed(text),
        whole(read(study, WHOLE), text),
        beside(elsewhere(run)),
        patterns(attention),
        shares(parts),
        checked(checks),
    )


@part
def claimed(text: pd.DataFrame):
    """How a sentence calls configurations and parts of the model.

    What the source states of Fig. 8, by configuration and tokens.
    """
    return {
        "called": {name: c.called for name, c in CONFIGURATIONS.items()},
        "part": PARTS,
        "prefill.stated": _by_point(stated(text))[["low", "high"]],
    }


@part
def whole(df: pd.DataFrame, text: pd.DataFrame):
    """Speedups of the whole model over the dense one with the first share of blocks, by configuration and tokens."""
    over, longest = _by_point(speedups(where(df, density=DENSITIES[0]), SPARSE, DENSE))["speedup"], df["n"].max()
    return {
        "prefill.over": over,
        "prefill.found": _by_point(stated(text)).assign(here=over).dropna(subset=["here"])[["here", "low", "high"]],
        "prefill.longest": longest,
        "prefill.at_longest": {v: over.get(f"{v}.{longest}") for v in (BOTH, FFN_OURS, BOTH_OURS)},
        "prefill.slower": (over < 1).sum(),
        "prefill.slow": over[over < 1],
    }


def _by_point(df: pd.DataFrame) -> pd.DataFrame:
    return df.set_index(df["variant"] + "." + df["n"].astype(str))


@part
def beside(of: Mapping[str, pd.DataFrame]):
    """How the gain of each configuration differs between GPUs, geometric means over the lengths that all measured.

    of: name of a GPU → record of the whole model, this page's first.
    """
    own = {gpu: where(df, density=DENSITIES[0]) for gpu, df in of.items()}
    lengths = set.intersection(*(set(df["n"]) for df in own.values()))
    gains = {gpu: means(where(df, n=lengths), SPARSE, DENSE) for gpu, df in own.items()}
    home, *others = gains
    return {
        "prefill.home": home,
        "prefill.beside": {
            gpu: pd.DataFrame({"mean": gains[gpu], "change": gains[gpu] / gains[home] - 1}) for gpu in others
        },
    }


@part
def patterns(attention: pd.DataFrame):
    """How many heads take vertical-slash, at most."""
    return {"prefill.vertical_share": attention["vertical_share"].max()}


@part
def shares(parts: pd.DataFrame):
    """Return the three parts that take most of the time, dense and of ours.

    At the shortest and the longest sequence: TOKENS.CONFIGURATION.PART; and what was not profiled.
    """
    lengths, there = parts["n"].unique(), {*zip(parts["n"], parts["configuration"], strict=True)}
    us = {(n, name): _us(parts, n, name) for n in (min(lengths), max(lengths)) for name in (DENSE, BOTH_OURS)}
    missing = [(n, name) for n in lengths for name in CONFIGURATIONS if (n, name) not in there]
    return {
        "prefill.share": {f"{n}.{name}": (of / of.sum()).nlargest(3) for (n, name), of in us.items()},
        "prefill.unprofiled": len(missing),
        "prefill.unprofiled_at": {f"{n}.{name}": CALLED[name] for n, name in missing},
    }


def _us(parts: pd.DataFrame, n: int, configuration: str) -> pd.Series:
    """Part → µs, as last measured."""
    return where(parts, n=n, configuration=configuration).drop_duplicates("part", keep="last").set_index("part")["us"]


@part
def faster(parts: pd.DataFrame, tokens: int, times: Mapping[str, float]):
    """How much faster the dense model would be if parts, as figures call them, were so many times as fast.

    By the profiled times of its parts. Raises ValueError, one sentence, for an unknown part or length.
    """
    here = _us(parts, tokens, DENSE)
    if here.empty:
        known = map(plot.number, sorted(set(parts["n"])))
        raise ValueError(f"Parts were not profiled at {tokens} tokens; at {listed(known)} they were.")
    share = (here / here.sum()).rename(PARTS)
    if unknown := [name for name in times if name not in share]:
        raise ValueError(f"{unknown[0]!r} is no part of the model, which has {', '.join(share.index)}.")
    after = share / pd.Series(times).reindex(share.index, fill_value=1.0)
    return {
        "faster.part": {name: {"share": share[name], "times": factor} for name, factor in times.items()},
        "faster": {"tokens": tokens, "gain": 1 / after.sum()},
        "faster.left": {"part": after.idxmax(), "share": after.max() / after.sum()},
    }


@part
def checked(df: pd.DataFrame):
    """How far the last hidden state is from that of the masked dense model in float32, relative to its norm."""
    df = df.drop_duplicates("configuration", keep="last").set_index("configuration")
    return {"check": df["rel_diff"], "checked": {"tokens": CHECK_LENGTH, "noise": df["noise"].iloc[-1]}}
