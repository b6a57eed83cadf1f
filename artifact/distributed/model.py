"""What more GPUs than were measured would do: bytes from the pattern, and rates fitted to what was measured.

    multiplication   non-zeros of the part that has most · N / (rate · GPUs)      rate: of one GPU; a factor for several
    communication    latency + bytes of a GPU over its link                       NVLink: fitted; InfiniBand: assumed
    a call           what is not hidden of communication, and the multiplication

Bytes are not fitted: how many rows of B a part needs follows from how the matrix is made (`needed`). Beyond an NVLink
domain rows cross InfiniBand, one by one ("flat"), or once for a whole domain and then from GPU to GPU within it
("hierarchical"). Whatever is beyond the machine that was measured is a prediction, with an uncertainty that grows with
every doubling, and is drawn as one.
"""

from __future__ import annotations

from itertools import accumulate, product
from math import comb, exp, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from artifact.book.study import where
from artifact.distributed.scaling import OURS
from kernels.distributed.generate import Rmat

CASES = {"graph": "power-law graph", "mesh": "mesh", "block": "block-sparse weight"}
#: GPUs that predictions are made for.
GPUS = (8, 16, 32, 64, 128, 256, 512, 1024)
#: GPUs that NVLink joins: a host of eight, and a rack.
DOMAINS = (8, 64)
#: GB/s of a GPU's own InfiniBand port of 400 Gb/s in one direction that an exchange may get. Assumed, not measured.
INFINIBAND = (25.0, 40.0, 48.0)
#: Share by which a prediction may be off for each doubling beyond what was measured, besides the model's own error.
PER_DOUBLING = 0.05
WAYS = ("flat", "hierarchical")
_ELEMENT = {"float32": 4, "bfloat16": 2}


# ---------------------------------------------------------------- bytes, from how a matrix is made


def needed(case: str, size: int, parts: int, domain: int = 1) -> float:
    """Rows of B that cross between domains, of all: each domain of so many parts gets each row that it names once.

    case, size: as `scaling`'s. Of the graph and the weight the expectation, of the mesh what slabs share.
    """
    groups = parts / domain
    if groups <= 1:
        return 0.0
    away = 1 - 1 / groups  # of the rows that a domain names, what it does not have itself
    if case == "mesh":
        edges = np.arange(round(groups) + 1) * size**3 / groups
        return sum(_beside(a, b, size) for a, b in zip(edges, edges[1:], strict=False))
    if case == "block":
        return groups * 16384 * (1 - (1 - 0.1) ** (size / 64 / groups)) * away  # k, blocks' share, unit of `scaling`'s
    of = Rmat(size, 64)
    # Vertices by the 1 bits of their number; entries of a column fall on rows at random, as rows are scrambled.
    left, ones = of.a + of.c, np.arange(of.scale + 1)
    named = 1 - np.exp(-64 * of.m * left ** (of.scale - ones) * (1 - left) ** ones / groups)
    return groups * away * float(sum(comb(of.scale, i) * x for i, x in enumerate(named)))


def _beside(begin: float, end: float, side: int) -> float:
    """Rows of B that the points begin … end - 1 of a mesh need of others: in their own plane, and the next two."""
    planes = (-(side**2), 0, side**2)
    runs = [(max(0, begin - side - 1 + at), min(side**3, end + side + 1 + at)) for at in planes]
    ends = accumulate((last for _, last in runs), max, initial=0.0)
    return sum(max(0.0, last - max(first, end)) for (first, last), end in zip(runs, ends, strict=False)) - (end - begin)


# ---------------------------------------------------------------- fit


class Fitted(NamedTuple):
    """Rates of a case: milliseconds, bytes and non-zeros in billions."""

    case: str
    rate: float  #: non-zeros times columns, in billions, that one GPU multiplies in a millisecond
    slower: float  #: by which several GPUs multiply slower than that, each its share
    nvlink: float  #: GB/s of a GPU in one direction
    latency_ms: float  #: of an exchange, each chunk
    early: float  #: of the multiplication, what needs no other GPU's rows: nearly all, or the GPU's share of one chunk
    error: float  #: of the fit: root of the mean of squares of log(predicted / measured), of several GPUs
    measured: int  #: GPUs, at most

    def call(self, work: float, moved: float, gpus: int, chunks: int) -> float:
        """Milliseconds of a call that multiplies for `work` of them, and whose rows travel for `moved`."""
        own = 1 / gpus / chunks if self.case == "graph" else 0.0
        return together(moved + self.latency_ms * chunks, work, chunks, self.early or own)


def ours(df: pd.DataFrame) -> pd.DataFrame:
    """Records of ours."""
    return where(df, contender=OURS)


def fit(df: pd.DataFrame, case: str) -> Fitted | None:
    """A case's rates from records of ours; None without one GPU, or without several, at the same N."""
    mine = where(ours(df), case=case)
    mine = mine.assign(work=mine["nnz"] * mine["n"] / 1e9, sent=mine["sent_bytes"] / mine["gpus"] / 1e9)
    alone, several = mine[mine["gpus"] == 1], mine[mine["gpus"] > 1]
    if alone.empty or several.empty:
        return None
    rate = float((alone["work"] / alone["multiplication_ms"]).median())
    share = several["work"] * several["imbalance"] / several["gpus"]
    slower = float((several["multiplication_ms"] * rate / share).median())
    latency, per_gb = _line(*(several[c].to_numpy(float) for c in ("sent", "communication_ms", "chunks")))
    early = 0.9 if case == "mesh" else 0.0
    made = Fitted(case, rate, slower, 1e3 / per_gb, latency, early, 0.0, int(several["gpus"].max()))
    off = []
    for r in several.itertuples():
        work = r.work * r.imbalance / rate * slower / r.gpus
        off.append(log(made.call(work, r.sent / made.nvlink * 1e3, r.gpus, r.chunks) / r.median_ms))
    return made._replace(error=sqrt(float(np.mean(np.square(off)))))


def _line(gigabytes: np.ndarray, spent: np.ndarray, chunks: np.ndarray) -> tuple[float, float]:
    """(milliseconds a chunk, milliseconds a gigabyte), neither negative; of one size all is bandwidth."""
    if len(set(np.round(gigabytes, 6))) > 1:
        found, *_ = np.linalg.lstsq(np.stack([chunks, gigabytes], axis=1), spent, rcond=None)
        if found[0] >= 0 and found[1] > 0:
            return float(found[0]), float(found[1])
    return 0.0, float(np.median(spent / np.maximum(gigabytes, 1e-9)))


def together(communication: float, multiplication: float, chunks: int, early: float) -> float:
    """A call of a chunked schedule: the first chunk travels behind what is multiplied early, others behind products."""
    first, rest = communication / chunks, multiplication * (1 - early) / chunks
    end = max(first, early * multiplication)
    for chunk in range(chunks):
        end = max(end, first * (chunk + 1)) + rest
    return end


# ---------------------------------------------------------------- predictions


def predict(of: Fitted, like: Any, gpus: int, domain: int, way: str, infiniband: float) -> dict[str, Any]:
    """A call on so many GPUs of a matrix like a record's, a row of its table: milliseconds, and bytes of a GPU."""
    row_bytes = like.n * _ELEMENT[like.dtype]
    inside, outside = (needed(of.case, like.size, gpus, x) * row_bytes / gpus for x in (1, min(domain, gpus)))
    if way == "flat":
        # Of what a GPU gets, the share that is not in its domain, as rows lie evenly; of a domain of slabs the two at
        # its ends get what comes from outside: the slowest has half of it.
        away = max(0.0, 1 - domain / gpus) * gpus / max(gpus - 1, 1)
        outside = min(inside, outside * domain / 2) if of.case == "mesh" else inside * away
        inside -= outside  # otherwise all that crosses is handed round once it is there
    work = like.nnz * like.n / 1e9 / of.rate * of.slower / gpus
    return {
        "gpus": gpus,
        "domain": domain,
        "way": way,
        "ms": of.call(work, (inside / of.nvlink + outside / infiniband) / 1e6, gpus, like.chunks),
        "multiplication_ms": work,
        "nvlink_bytes": inside,
        "infiniband_bytes": outside,
    }


def predictions(df: pd.DataFrame) -> pd.DataFrame:
    """Strong scaling of each case that can be fitted: predicted milliseconds, their range, efficiency over one GPU, and
    the range of that where rows cross once for a domain; empty where nothing is fitted.

    Of the size that was measured on most numbers of GPUs, of two such the larger.
    """
    found = []
    for case, rows in ours(df).sort_values("gpus", kind="stable").groupby("case", sort=False):
        sizes = [same for _, same in rows.groupby(["size", "n"]) if len(same) > 1 and same["gpus"].iloc[0] == 1]
        of = fit(df, case)
        if of is None or not sizes:
            continue
        alone, *_, several = max(sizes, key=lambda same: (len(same), same["nnz"].iloc[0])).itertuples()
        for domain, way, gpus in product(DOMAINS, WAYS, GPUS):
            slow, middle, fast = (predict(of, several, gpus, domain, way, x) for x in INFINIBAND)
            off = exp(2 * of.error) * (1 + PER_DOUBLING) ** max(0.0, log(gpus / of.measured, 2))
            low, high, efficiency = fast["ms"] / off, slow["ms"] * off, alone.median_ms / gpus / middle["ms"]
            scale = efficiency * middle["ms"] if way == WAYS[1] else nan
            more = {
                "efficiency": efficiency,
                "curve": f"{CASES[case]}, {way}",
                "least": scale / high,
                "most": scale / low,
            }
            found.append({"case": case, **middle, "low_ms": low, "high_ms": high, **more})
    return pd.DataFrame(found)
