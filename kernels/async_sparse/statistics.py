"""What of a matrix on a GPU decides which kernel is the fastest, and under which key a choice for it is kept."""

from __future__ import annotations

from dataclasses import dataclass

from ..formats import intake
from ..formats.csr import Csr
from . import tasks

HEIGHTS = intake.HEIGHTS  #: rows of a window or group


@dataclass(frozen=True)
class Statistics:
    """Of an m x k matrix with nnz entries."""

    m: int
    k: int
    nnz: int
    longest: int  #: entries of the row that has most
    #: order of rows (`tasks.ORDERS`) -> for each of `HEIGHTS` the columns that windows of so many rows have together.
    columns: dict[str, tuple[int, ...]]
    ascending: bool = True  #: False: of some row columns do not ascend, or repeat, so groups of rows are costly to make


def statistics(a: Csr, at_a_glance: bool = False) -> Statistics:
    """Statistics of A by a sample of columns, in both orders of its rows; at_a_glance: in the given one alone, by the
    sample that its facts have."""
    facts = intake.facts_of(a)
    given = {"": facts.columns}
    columns = given if at_a_glance else {how: intake.shared(tasks.ordered(a, how)[1]) for how in tasks.ORDERS}
    return Statistics(a.m, a.k, a.nnz, facts.longest, columns, facts.ascending)


def fingerprint(a: Csr) -> str:
    """16 hexadecimal digits of where A's entries are: the key under which a choice for it is kept."""
    return f"{intake.facts_of(a).fingerprint:016x}"
