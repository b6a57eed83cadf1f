"""A claim over the source's own set of matrices: decided where all of the set was measured, by name, and open else."""

from pathlib import Path

import pandas as pd
import pytest
import synthetic
from judging import GOOD, load

from artifact.measure import records
from artifact.verdicts import judge, sets
from artifact.verdicts.measures import REPRODUCED, UNDECIDED

SET = [f"theirs{i}" for i in range(6)]
OTHERS = [f"other{i}" for i in range(518)]
CLAIM = GOOD.replace('where = "V.A"', 'where = "V.A"\nset = true').replace('"each point"', '"geometric mean"')
#: A matrix of the set has the claimed speedup, any other one three times the baseline's.
SPEEDUPS = {True: 0.7, False: 3.0}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """(a function: names of the matrices in the records, those left out for a reason -> the verdict's row)."""
    monkeypatch.setattr(sets, "source", lambda system: frozenset(SET))
    kinds = {own: synthetic.experiment("wide", speedup).query("n == 512") for own, speedup in SPEEDUPS.items()}

    def one(i: int, name: str) -> pd.DataFrame:
        # Of less and of more than 10⁵ non-zeros.
        df = kinds[name in SET]
        return df[df["density"] == synthetic.DENSITIES[i % 2]].assign(label=name)

    def row(names: list[str], left: list[str]) -> dict:
        df = pd.concat([one(i, name) for i, name in enumerate(names)], ignore_index=True)
        folder: Path = synthetic.folder(tmp_path, {"wide": df})
        for name in left:
            for variant in df["variant"].unique().tolist() + ["cusparse_best"]:
                records.leave_out(folder / "casper_sparse" / "wide.csv", (variant, name, 1, 1, 1, 0.5), "too large")
        return judge.judge(load(tmp_path / "rooms", CLAIM), folder).to_dict("records")[0]

    return row


@pytest.mark.parametrize(
    "names,left,here",
    [
        (SET, [], None),
        (SET + OTHERS, [], None),  # on the set alone
        (SET[:-1], SET[-1:], None),  # with a reason for what lacks
        (SET[:-1], [], 5),
        (OTHERS, [], 0),  # more than enough of another set
        (OTHERS + SET[:1], [], 1),
    ],
)
def test_the_set_is_known_by_its_names_and_not_by_how_many_there_are(measured, names, left, here):
    row = measured(names, left)
    assert row["verdict"] == (REPRODUCED if here is None else UNDECIDED)
    judged = set(names) if here is not None else set(names) & set(SET)
    assert sum(of["matrices"] for of in row["classes"].values()) == len(judged)
    assert list(row["classes"]) == list(sets.CLASSES)[: min(len(judged), 2)]
    if here is None:
        assert row["reason"] == "" and f"({row['classes']['under 10⁵']['matrices']} matri" in row["why"]
    else:
        assert f"Of the {len(SET)} matrices that the source measured {here} w" in row["reason"]
        assert row["reason"] in row["why"] and row["measured"].startswith("under 10⁵ non-zeros: geometric mean")


def test_a_source_is_listed_whole():
    assert len(sets.source("async_sparse")) == 414
