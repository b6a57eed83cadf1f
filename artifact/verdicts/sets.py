"""The set of matrices that a source states its means over: which it is, and what was measured of it, class by class.

The set is known by its names, never by a number of matrices: those of the system's matrices.csv with `source = yes`.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from artifact import registry
from artifact.measure import matrices
from artifact.verdicts import evidence, measures

#: Class of non-zeros -> the least that is too many for it.
CLASSES = {"under 10⁵": 1e5, "10⁵ to 10⁶": 1e6, "10⁶ to 10⁷": 1e7, "over 10⁷": float("inf")}


@cache
def source(system: str) -> frozenset[str]:
    """Return the names of the matrices that a system's source measured."""
    df = matrices.listed(registry.FOLDER / system / registry.MATRICES)
    return frozenset(df.loc[df["source"] == "yes", "name"])


def lacking(system: str, rule: measures.Rule, e: evidence.Evidence, experiments: Iterable[str]) -> frozenset[str]:
    """Return those of the set that the records lack for a contender that the rule names, with no reason given."""
    return source(system) - e.labels(experiments, rule.named)


def by_class(rule: measures.Rule, e: evidence.Evidence, experiments: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return class of non-zeros -> value, matrices and what was measured in words, of the classes that have any."""
    df = e.frame(experiments)
    found: dict[str, Mapping[str, Any]] = {}
    nnz, least = df.loc[df["label"] != ""].groupby("label")["nnz"].max(), 0.0
    for name, past in CLASSES.items():
        labels = nnz.index[(nnz >= least) & (nnz < past)]
        least = past
        try:
            made = measures.outcome(rule, e.only({**e.where, "label": list(labels)}, e.repeats), experiments)
        except evidence.NotMeasured:
            continue
        judged = made.values.all.index if made.values is not None else pd.Index([])
        count = judged.get_level_values("label").nunique() if "label" in judged.names else len(labels)
        found[name] = {"value": made.value, "matrices": count, "measured": made.measured}
    return found
