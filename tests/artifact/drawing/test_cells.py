"""What cells put on a page."""

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from artifact import paths
from artifact.book import figures
from artifact.drawing import cells
from artifact.measure import run
from artifact.verdicts import load


@pytest.fixture
def shown(monkeypatch) -> list:
    found = []
    for module in (cells, figures):
        monkeypatch.setattr(module, "display", found.append)
    return found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    return tmp_path


def test_figure_is_kept_with_its_data(shown, folder):
    fig, ax = plt.subplots()
    ax.plot([1, 2])
    figures.shower("a_room")("one", (fig, pd.DataFrame({"x": [1]})), alt="A line", caption="It rises.")
    assert (folder / "a_room" / "one.csv").read_text() == "x\n1\n"
    assert (folder / "a_room" / "one.svg").is_file() and "It rises." in shown[0].markdown


def test_verdicts_are_those_of_the_room(shown):
    judged = cells.verdicts(run.start("nm_cuda_core", mode="recorded"))
    assert set(judged["id"]) == {claim.id for claim in load.claims() if claim.room == "nm_cuda_core"}
    assert all(name in shown[0].data for name in judged["id"])


def test_several_texts_and_what_is_not_there(shown, folder):
    cells.say("one", "", "two")
    figures.shower("a_room")("one", None, alt="", caption="")
    assert [markdown.data for markdown in shown] == ["one", "two"]
