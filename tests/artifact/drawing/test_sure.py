"""How sure the ledger is: tables and forest plots from what lies beside the records of a GPU."""

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from artifact.drawing import style
from artifact.drawing.pages import sure
from artifact.verdicts import judge, load, measures, uncertainty

KNOWN = [claim for claim in load.claims() if uncertainty.stated(claim)]
SOURCES = {claim.source for claim in KNOWN}


@pytest.fixture
def beside(tmp_path):
    """Every claim that states a number measured at half of it, between a quarter and the whole; one states none."""
    of = pd.Series({claim.id: uncertainty.stated(claim) for claim in KNOWN})
    verdicts = [measures.VERDICTS[i % 4] for i in range(len(of))]
    df = pd.DataFrame({"claim": of.index, "verdict": verdicts, "value": of / 2, "low": of / 4, "high": of})
    word = next(claim.id for claim in load.claims() if not uncertainty.stated(claim))
    pd.concat([df, df[:1].assign(claim=word)]).to_csv(tmp_path / judge.STABILITY, index=False)
    return tmp_path


def test_measured_over_stated_of_each_source_lies_on_one_axis(beside):
    df = sure.ratios(beside, load.claims())
    assert set(df["claim"]) == {claim.id for claim in KNOWN}
    assert df["ratio"].round(9).eq(0.5).all() and df["low"].round(9).eq(0.25).all() and df["high"].round(9).eq(1).all()
    made = list(sure.forests(df))
    assert {words["fold"].removesuffix(", claim by claim") for _, _, words in made} == SOURCES
    assert len({fig.axes[0].get_xlim() for _, (fig, _), _ in made}) == 1
    for _, (fig, data), words in made:
        (ax,) = fig.axes
        assert [tick.get_text() for tick in ax.get_yticklabels()] == list(data["claim"]) and words["alt"].endswith(".")
    plt.close("all")


def test_without_what_was_drawn_nothing_is_shown(tmp_path):
    assert sure.ratios(tmp_path, KNOWN) is None and sure.tolerances(None) is None and not list(sure.forests(None))


def test_what_other_tolerances_change_is_listed_by_factor_and_way(tmp_path):
    rows = [(0.5, "a", "down"), (0.5, "b", "up"), (0.5, "c", "down"), (2.0, "a", "up")]
    pd.DataFrame(rows, columns=["factor", "claim", "way"]).to_csv(tmp_path / uncertainty.SCALED, index=False)
    df = sure.tolerances(tmp_path).set_index("factor")
    assert df["changed"].to_dict() == {0.5: 3, 2.0: 1}
    assert "#claim-a" in df.loc[0.5, "down"] and "#claim-c" in df.loc[0.5, "down"] and "#claim-b" in df.loc[0.5, "up"]


def test_every_verdict_looks_as_it_does_elsewhere():
    assert set(style.VERDICTS) == set(measures.VERDICTS)
    assert len({colour for colour, _ in style.VERDICTS.values()}) == len(style.VERDICTS)
