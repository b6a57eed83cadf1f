"""Rules judged on synthetic records, in the words of claims.toml."""

import shutil
from functools import cache
from pathlib import Path

import pandas as pd
import synthetic

from artifact import registry
from artifact.measure import records
from artifact.verdicts import evidence as evidence_, judge, load as load_, measures

ALL = ("wide", "square", "tall")
#: A claims.toml of one claim.
GOOD = """
[minutes]
wide = 2
counters = 3
[[claim]]
id = "a"
where = "V.A"
says = "It is slower."
experiment = ["wide", "counters"]
quantity = { speedup = "warp_per_row", over = "cusparse_best", also_over = "cusparse_default" }
reduce = "each point"
expect = { within = "published", tolerance = 0.05 }
published = { figure = "fig4_wide", quantity = "speedup" }
"""
SPEEDUP = {"speedup": "warp_per_row", "over": "cusparse_best"}


def evidence(frames=None, counters=None) -> evidence_.Evidence:
    """What `synthetic.folder` would hold, without files."""
    read = {name: evidence_.with_best(df) for name, df in (frames or _usual()).items()}
    read["counters"] = pd.DataFrame(columns=records.COUNTER_COLUMNS) if counters is None else counters
    read["ceilings"] = synthetic.ceilings().groupby("variant")[["gbps", "tflops"]].max().T
    return evidence_.Evidence(Path("nowhere"), "casper_sparse", read=read)


@cache
def _usual() -> dict[str, pd.DataFrame]:
    return frames()


def frames(speedup=None, **more) -> dict[str, pd.DataFrame]:
    """The three sweeps; `speedup` a number, a function of the point, or one of these per sweep."""
    per = speedup if isinstance(speedup, dict) else dict.fromkeys(ALL, speedup)
    return {name: synthetic.experiment(name, per.get(name), **more) for name in ALL}


def rule(quantity, reduce, expect, room="casper_sparse", **more) -> measures.Rule:
    """A rule as a claim of the system writes it."""
    words = {"quantity": quantity, "reduce": reduce, "expect": expect}
    parts = {k: measures.part(k, w if isinstance(w, dict) else {w: None}, room, "the test") for k, w in words.items()}
    return measures.Rule(**parts, written=words, **more)


def outcome(e, quantity, reduce, expect, experiments=ALL, room="casper_sparse") -> measures.Outcome:
    found = measures.outcome(rule(quantity, reduce, expect, room), e, experiments)
    assert found.measured and found.why.endswith(".") and found.verdict in measures.VERDICTS
    return found


def verdict(speedup, reduce, expect, experiments=ALL) -> str:
    """On the speedup of the published kernel over cuSPARSE."""
    return outcome(evidence(frames(speedup)), SPEEDUP, reduce, expect, experiments).verdict


def verdicts(claims: list[load_.Claim], folder, *ids: str) -> pd.Series:
    """By records of a GPU, on all of the claims or on some: each costs a few hundredths of a second."""
    chosen = [claim for claim in claims if not ids or claim.id in ids]
    assert not ids or len(chosen) == len(set(ids)), f"unknown among {ids}"
    return judge.judge(chosen, folder).set_index("id")["verdict"]


def load(folder, text: str, scale: float = 1.0) -> list[load_.Claim]:
    """The claims of a system that has this claims.toml, and else what casperSPARSE has."""
    room = folder / "casper_sparse"
    if not room.exists():
        shutil.copytree(registry.FOLDER / "casper_sparse", room)
    (room / registry.CLAIMS).write_text(text)
    return load_.read(folder, scale)
