"""A third GPU: its records beside those of the others are enough for it to appear on every page, and none says two."""

import re

import pytest

from artifact import paths
from artifact.drawing import prose
from artifact.measure import records
from artifact.verdicts import load

ROOM = "casper_sparse"
SLUG, NAME = "nvidia-z9", "NVIDIA Z9"
#: What a page may not say of three.
TWO = re.compile(r"\b(both GPUs|two (kinds of )?GPUs|two machines|the other GPU's)\b")


def copied(source, target, slower=1.0, **named):
    """A GPU's records of one room and its ceilings, with times so many times as long."""
    for room in (ROOM, records.CEILINGS):
        for name in records.experiments(source / room):
            df = records.read(source / room / f"{name}.csv")
            df[["median_us", "q25_us", "q75_us"]] *= slower
            df[["tflops", "gbps"]] /= slower
            records.write(target / room / f"{name}.csv", df.assign(**named))
        machine = records.read_machine(source / room)
        slug = {"slug": target.name} if named else {}
        records.write_machine(target / room, machine | named | slug)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Every GPU that is shipped, and one that nobody has: the last of them, a quarter slower."""
    shipped = [paths.RECORDED / slug for slug in records.list_gpus(paths.RECORDED)]
    assert len(shipped) > 1
    root = tmp_path / "records"
    for folder in shipped:
        copied(folder, root / folder.name)
    copied(shipped[-1], root / SLUG, 1.25, gpu=NAME)
    monkeypatch.setattr(paths, "RECORDED", root)
    monkeypatch.setattr(prose.sides, "__defaults__", (root,))
    mine = [claim for claim in load.claims() if claim.room == ROOM]
    monkeypatch.setattr(load, "claims", lambda *_: mine)
    return root


@pytest.mark.parametrize("home", [SLUG, "nvidia-h200"])
def test_elsewhere_holds_it_against_every_other(shelf, shown, home):
    text = "\n".join(shown("elsewhere", shelf, home))
    names = [records.read_machine(shelf / slug / ROOM)["gpu"] for slug in records.list_gpus(shelf)]
    assert len(names) > 2 and NAME in names
    own = records.read_machine(shelf / home / ROOM)["gpu"]
    banner, _, page = text.partition("Commits")
    assert all(gpu in banner for gpu in names)
    for other in set(names) - {own}:
        assert f"**{own} and {other}**" in page
    assert page.count("```{figure} ") == len(names) - 1
    (head,) = re.findall(r"^\| quantity .*", page, re.MULTILINE)
    assert all(gpu in head for gpu in names), "a column of the machines"
    assert not TWO.search(re.sub(r"^\|.*", "", page, flags=re.MULTILINE))


def test_the_ledger_has_its_column(shelf, shown):
    text = "\n".join(shown("ledger", shelf, "nvidia-h200"))
    assert text.count('data-gpu=""') == len(records.list_gpus(shelf)) == 3
    assert f'<th scope="col" data-gpu="">{NAME}</th>' in text and NAME in text.partition("Commits")[0]
    cells_of = text.count(f'data-label="{NAME}"')
    assert cells_of == len(load.claims()) > 0
    assert f"records/{SLUG}/{ROOM}/wide.csv" in text
    assert not TWO.search(re.sub(r"<tbody>.*?</tbody>", "", text, flags=re.DOTALL))
