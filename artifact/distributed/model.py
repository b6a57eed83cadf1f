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

from dataclasses import dataclass
from math import comb, exp, log, sqrt

import numpy as np
import pandas as pd

from artifact.distributed.scaling import OURS, Row
from kernels.distributed.generate import Rmat

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
    if case == "graph":
        of = Rmat(size, 64)
        left = of.a + of.c
        # Vertices by the 1 bits of their number; entries of a column fall on rows at random, as rows are scrambled.
        entries = [64 * of.m * left ** (of.scale - ones) * (1 - left) ** ones for ones in range(of.scale + 1)]
        named = sum(comb(of.scale, i) * (1 - exp(-x / groups)) for i, x in enumerate(entries))
        return groups * named * away
    if case == "mesh":
        edges = np.arange(round(groups) + 1) * size**3 / groups
        return sum(_beside(a, b, size) for a, b in zip(edges, edges[1:], strict=False))
    k, unit, density = 16384, 64, 0.1
    rows = size / unit / groups
    return groups * k * (1 - (1 - density) ** rows) * away


def _beside(begin: float, end: float, side: int) -> float:
    """Rows of B that the points begin … end - 1 of a mesh need of others: in their own plane, and the next two."""
    runs = [
        (max(0, begin - side - 1 + shift), min(side**3, end + side + 1 + shift)) for shift in (-(side**2), 0, side**2)
    ]
    total, at = 0.0, 0.0
    for first, last in runs:
        total += max(0.0, last - max(first, at))
        at = max(at, last)
    return total - (end - begin)


# ---------------------------------------------------------------- fit


@dataclass(frozen=True)
class Fitted:
    """Rates of a case: milliseconds, bytes and non-zeros in billions."""

    case: str
    rate: float  #: non-zeros times columns, in billions, that one GPU multiplies in a millisecond
    slower: float  #: by which several GPUs multiply slower than that, each its share
    nvlink: float  #: GB/s of a GPU in one direction
    latency_ms: float  #: of an exchange, each chunk
    early: float  #: of the multiplication, what needs no other GPU's rows: nearly all, or the GPU's share of one chunk
    error: float  #: of the fit: root of the mean of squares of log(predicted / measured), of several GPUs
    measured: int  #: GPUs, at most


def fit(rows: list[Row], case: str) -> Fitted | None:
    """A case's rates from records of ours; None without one GPU, or without several, at the same N."""
    mine = [row for row in rows if row.case == case and row.contender == OURS]
    alone, several = ([r for r in mine if (r.gpus > 1) == many] for many in (False, True))
    if not alone or not several:
        return None
    rate = float(np.median([r.nnz * r.n / 1e9 / r.multiplication_ms for r in alone]))
    slower = float(
        np.median([r.multiplication_ms * rate * r.gpus / (r.nnz * r.n / 1e9 * r.imbalance) for r in several])
    )
    gigabytes = np.array([r.sent_bytes / r.gpus / 1e9 for r in several])
    spent = np.array([r.communication_ms for r in several])
    chunks = np.array([r.chunks for r in several])
    latency, per_gb = _line(gigabytes, spent, chunks)
    early, most = 0.9 if case == "mesh" else 0.0, max(r.gpus for r in several)
    made = Fitted(case, rate, slower, 1e3 / per_gb, latency, early, 0.0, most)
    off = [log(_measured_like(made, r) / r.median_ms) for r in several]
    return Fitted(**{**vars(made), "error": sqrt(float(np.mean(np.square(off))))})


def _line(gigabytes, spent, chunks) -> tuple[float, float]:
    """(milliseconds a chunk, milliseconds a gigabyte), neither negative; of one size all is bandwidth."""
    if len(set(np.round(gigabytes, 6))) > 1:
        found, *_ = np.linalg.lstsq(np.stack([chunks, gigabytes], axis=1), spent, rcond=None)
        if found[0] >= 0 and found[1] > 0:
            return float(found[0]), float(found[1])
    return 0.0, float(np.median(spent / np.maximum(gigabytes, 1e-9)))


def _measured_like(of: Fitted, row: Row) -> float:
    """Milliseconds that the model gives a record, from its own bytes."""
    moved = row.sent_bytes / row.gpus / 1e9 / of.nvlink * 1e3 + of.latency_ms * row.chunks
    work = row.nnz * row.n / 1e9 * row.imbalance / of.rate * of.slower / row.gpus
    return together(moved, work, row.chunks, _early(of, row.gpus, row.chunks))


def _early(of: Fitted, gpus: int, chunks: int) -> float:
    return of.early or (1 / gpus / chunks if of.case == "graph" else 0.0)


def together(communication: float, multiplication: float, chunks: int, early: float) -> float:
    """A call of a chunked schedule: the first chunk travels behind what is multiplied early, others behind products."""
    first = communication / chunks
    begins = max(first, early * multiplication)
    rest = multiplication * (1 - early) / chunks
    end = begins
    for chunk in range(chunks):
        arrives = first * (chunk + 1)
        end = max(end, arrives) + rest
    return end


# ---------------------------------------------------------------- predictions


def predict(
    of: Fitted,
    like: Row,
    gpus: int,
    *,
    size: int | None = None,
    domain: int = 8,
    way: str = WAYS[1],
    infiniband: float = INFINIBAND[1],
) -> dict:
    """A call on so many GPUs of a matrix like a record's, or of another size: milliseconds, and bytes of a GPU.

    Raises ValueError, one sentence, for a way that there is none of.
    """
    if way not in WAYS:
        raise ValueError(f"way is {way!r}, but must be one of {', '.join(WAYS)}")
    size = size or like.size
    ratio = size / like.size
    grown = {"graph": 2.0 ** (size - like.size), "mesh": ratio**3, "block": ratio}[of.case]
    row_bytes = like.n * _ELEMENT[like.dtype]
    every = needed(of.case, size, gpus) * row_bytes / gpus
    apart = needed(of.case, size, gpus, min(domain, gpus)) * row_bytes / gpus
    if way == "flat":
        # Of what a GPU gets, the share that is not in its domain, as rows lie evenly.
        away = max(0.0, 1 - domain / gpus) * gpus / max(gpus - 1, 1)
        # Of a domain of slabs the two at its ends get what comes from outside: the slowest has half of it.
        outside = min(every, apart * domain / 2) if of.case == "mesh" else every * away
        inside = every - outside
    else:
        outside = apart
        inside = every  # all that crosses is handed round once it is there
    moved = (inside / of.nvlink + outside / infiniband) / 1e6 + of.latency_ms * like.chunks
    work = like.nnz * grown * like.n / 1e9 / of.rate * of.slower / gpus
    ms = together(moved, work, like.chunks, _early(of, gpus, like.chunks))
    return {
        "gpus": gpus,
        "domain": domain,
        "way": way,
        "ms": ms,
        "multiplication_ms": work,
        "nvlink_bytes": inside,
        "infiniband_bytes": outside,
    }


def uncertainty(of: Fitted, gpus: int) -> float:
    """The factor by which a prediction may be off either way."""
    doublings = max(0.0, log(gpus / of.measured, 2))
    return exp(2 * of.error) * (1 + PER_DOUBLING) ** doublings


def predictions(rows: list[Row]) -> pd.DataFrame:
    """Strong scaling of each case that can be fitted: predicted milliseconds, their range, efficiency over one GPU."""
    found = []
    for case in dict.fromkeys(row.case for row in rows):
        of = fit(rows, case)
        like = _strongest(rows, case)
        if of is None or like is None:
            continue
        alone, several = like
        for domain in DOMAINS:
            for way in WAYS:
                for gpus in GPUS:
                    slow, middle, fast = (
                        predict(of, several, gpus, domain=domain, way=way, infiniband=x) for x in INFINIBAND
                    )
                    off = uncertainty(of, gpus)
                    found.append(
                        {
                            "case": case,
                            **middle,
                            "low_ms": fast["ms"] / off,
                            "high_ms": slow["ms"] * off,
                            "efficiency": alone.median_ms / gpus / middle["ms"],
                        }
                    )
    return pd.DataFrame(found)


def _strongest(rows: list[Row], case: str) -> tuple[Row, Row] | None:
    """(on one GPU, on the most) of the size that was measured on most numbers of GPUs; None without two."""
    mine = [row for row in rows if row.case == case and row.contender == OURS]
    by_size: dict[tuple, dict[int, Row]] = {}
    for row in mine:
        by_size.setdefault((row.size, row.n), {})[row.gpus] = row
    full = [x for x in by_size.values() if 1 in x and len(x) > 1]
    if not full:
        return None
    best = max(full, key=lambda x: (len(x), x[1].nnz))
    return best[1], best[max(best)]
