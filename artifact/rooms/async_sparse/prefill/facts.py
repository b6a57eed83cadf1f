"""The facts of the prefill's page, by the part of it that they stand in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from artifact.book.facts import Fact, each, under
from artifact.drawing import plot
from artifact.drawing.words import listed
from artifact.measure.run import Run
from artifact.rooms.async_sparse.arithmetic import means, present, speedups
from artifact.rooms.async_sparse.prefill import experiments
from artifact.rooms.async_sparse.prefill.configurations import (
    BOTH,
    BOTH_OURS,
    CONFIGURATIONS,
    DENSE,
    DENSITIES,
    FFN_OURS,
    PARTS,
)
from artifact.rooms.async_sparse.prefill.figures import stated

SPARSE = [v for v in CONFIGURATIONS if v != DENSE]


def of(run: Run, text: pd.DataFrame) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    yield from names()
    yield from claimed(text)
    yield from whole(experiments.whole(run), text)
    yield from beside(experiments.elsewhere(run))
    yield from patterns(experiments.table(run, "attention"))
    yield from shares(experiments.table(run, "parts"))
    yield from checked(experiments.table(run, "checks"))


def names() -> Iterator[Fact]:
    """How a sentence calls configurations and parts of the model."""
    yield from each("called", {name: c.called for name, c in CONFIGURATIONS.items()})
    yield from each("part", {name: called for name, (called, _) in PARTS.items()})


def claimed(text: pd.DataFrame) -> Iterator[Fact]:
    """What the source states of Fig. 8: prefill.stated.CONFIGURATION.TOKENS."""
    for row in stated(text).itertuples():
        yield from under(f"prefill.stated.{row.variant}.{row.n}", low=row.low, high=row.high)


def whole(df: pd.DataFrame | None, text: pd.DataFrame) -> Iterator[Fact]:
    """Speedups of the whole model over the dense one, by configuration and tokens: at the first density."""
    if df is None:
        return
    own = df[df["density"] == DENSITIES[0]]
    found = [speedups(own, [v], DENSE) for v in present(own, SPARSE)]
    over = {(r.variant, int(r.n)): r.speedup for rows in found for r in rows.itertuples()}
    yield from each("prefill.over", {f"{v}.{n}": ratio for (v, n), ratio in over.items()})
    for row in stated(text).itertuples():
        if (row.variant, row.n) in over:
            name = f"prefill.found.{row.variant}.{row.n}"
            yield from under(name, here=over[row.variant, row.n], low=row.low, high=row.high)
    longest = int(own["n"].max())
    yield "prefill.longest", longest
    last = {v: over[v, longest] for v in (BOTH, FFN_OURS, BOTH_OURS) if (v, longest) in over}
    yield from each("prefill.at_longest", last)
    slow = {f"{v}.{n}": ratio for (v, n), ratio in over.items() if ratio < 1}
    yield "prefill.slower", len(slow)
    yield from each("prefill.slow", slow)


def beside(of_gpus: Mapping[str, pd.DataFrame]) -> Iterator[Fact]:
    """How the gain of each configuration differs between GPUs, geometric means over the lengths that all measured;
    of_gpus: name of a GPU -> record of the whole model, this page's first. Nothing for fewer than two."""
    own = {gpu: df[df["density"] == DENSITIES[0]] for gpu, df in of_gpus.items()}
    lengths = set.intersection(*(set(df["n"]) for df in own.values())) if len(own) > 1 else set()
    if not lengths:
        return
    gains = {gpu: means(df[df["n"].isin(lengths)], SPARSE, DENSE) for gpu, df in own.items()}
    first, *others = gains
    yield "prefill.home", first
    for gpu in others:
        for v, mean in gains[gpu].items():
            if v in gains[first]:
                yield from under(f"prefill.beside.{gpu}.{v}", mean=mean, change=mean / gains[first][v] - 1)


def patterns(attention: pd.DataFrame | None) -> Iterator[Fact]:
    """How many heads take vertical-slash, at most."""
    if attention is not None:
        yield "prefill.vertical_share", attention["vertical_share"].max()


def shares(parts: pd.DataFrame | None) -> Iterator[Fact]:
    """The three parts that take most of the time, dense and of ours, at the shortest and the longest sequence:
    prefill.share.TOKENS.CONFIGURATION.PART; and what was not profiled."""
    if parts is None:
        return
    for n in dict.fromkeys((int(parts["n"].min()), int(parts["n"].max()))):
        for name in (DENSE, BOTH_OURS):
            us = _times(parts, n, name)
            yield from each(f"prefill.share.{n}.{name}", (us / us.sum()).nlargest(3))
    there = {*zip(parts["n"], parts["configuration"], strict=True)}
    missing = [(n, name) for n in dict.fromkeys(parts["n"]) for name in CONFIGURATIONS if (n, name) not in there]
    yield "prefill.unprofiled", len(missing)
    yield from each("prefill.unprofiled_at", {f"{n}.{name}": CONFIGURATIONS[name].called for n, name in missing})


def _times(parts: pd.DataFrame, n: int, configuration: str) -> pd.Series:
    """Part -> µs, as last measured."""
    own = parts[(parts["n"] == n) & (parts["configuration"] == configuration)]
    return own.drop_duplicates("part", keep="last").set_index("part")["us"]


def faster(parts: pd.DataFrame | None, tokens: int, times: Mapping[str, float]) -> Iterator[Fact]:
    """How much faster the dense model would be if parts, as figures call them, were so many times as fast: by the
    profiled times of its parts. Raises ValueError, one sentence, for an unknown part or length."""
    if parts is None:
        return
    here = _times(parts, tokens, DENSE)
    if here.empty:
        known = listed(plot.number(n) for n in sorted(set(parts["n"])))
        raise ValueError(f"Parts were not profiled at {tokens} tokens; at {known} they were.")
    called = {PARTS[part][0]: part for part in here.index}
    if unknown := [name for name in times if name not in called]:
        raise ValueError(f"{unknown[0]!r} is no part of the model, which has {', '.join(called)}.")
    after = here.copy()
    for name, factor in times.items():
        after[called[name]] /= factor
        yield from under(f"faster.part.{name}", share=here[called[name]] / here.sum(), times=factor)
    yield from under("faster", tokens=tokens, gain=here.sum() / after.sum())
    yield from under("faster.left", part=PARTS[after.idxmax()][0], share=after.max() / after.sum())


def checked(df: pd.DataFrame | None) -> Iterator[Fact]:
    """How far the last hidden state is from that of the masked dense model in float32, relative to its norm."""
    if df is None:
        return
    df = df.drop_duplicates("configuration", keep="last")
    yield from each("check", df.set_index("configuration")["rel_diff"])
    yield from under("checked", tokens=experiments.CHECK_LENGTH, noise=df["noise"].iloc[-1])
