"""What was rebuilt, and how to dispute it: each system's page, and replies beside the claims."""

import pytest
from refused import refused

from artifact import paths, registry
from artifact.book import text
from artifact.drawing import provenance
from artifact.drawing.pages import ledger, rebuilt
from artifact.measure import records
from artifact.verdicts import judge, load

SYSTEM = "casper_sparse"
NOT_MEASURED = text.NOT_MEASURED.partition("{")[0]
REPLY = """
[[reply]]
claim = "{}"
by = "A. Author, of the source"
date = 2026-11-27
text = "Our blocks had 128 threads."
"""


@pytest.fixture
def replied(tmp_path, monkeypatch):
    """Write a system's replies.toml, beside what it has otherwise."""
    claims = [claim for claim in load.claims() if claim.room == SYSTEM]
    (tmp_path / SYSTEM).mkdir()
    for name in ("rebuilt.md", "rebuilt.toml"):
        (tmp_path / SYSTEM / name).write_bytes((registry.FOLDER / SYSTEM / name).read_bytes())
    monkeypatch.setattr(registry, "FOLDER", tmp_path)

    def write(said: str) -> list[load.Claim]:
        (tmp_path / SYSTEM / "replies.toml").write_text(said)
        return claims

    return write


@pytest.mark.parametrize("system", rebuilt.pages())
def test_a_page_has_open_choices_each_in_the_source_and_every_number_that_it_names(system):
    page, made = rebuilt.page(system), rebuilt.of(system)
    assert NOT_MEASURED not in page and "nan" not in page.split() and len(made["choice"]) >= 6
    assert made["protocol"].keys() | made.get("here", {}).keys() <= {*text.page("protocol").blocks}
    sections = registry.find()[system].sections
    for choice in made["choice"]:
        assert f" {choice['name']}\n" in page and judge.places(choice["where"], sections), choice["where"]
        names = [name.partition("`")[0] for name in " ".join(choice.values()).split("`")[1::2]]
        files = [name for name in names if name.endswith((".cu", ".cuh", ".py", ".c")) and "/" in name]
        assert all((paths.ROOT / "kernels" / name.removeprefix("kernels/")).is_file() for name in files), files


@pytest.mark.parametrize("system", rebuilt.pages())
def test_fidelity_is_shown_by_the_records_that_decide_and_is_what_holds_claims_back(system):
    folders = {gpu: paths.RECORDED / gpu for gpu in (paths.HOME, *records.list_gpus(paths.RECORDED))}
    judged = judge.everywhere(load.claims(), {provenance.name(folder): folder for folder in folders.values()})
    shown, decided = list(rebuilt.fidelity(system)), judge.deciding(judged).query("room == @system")
    assert shown and {gpu for *_, gpu in shown} == {judge.decider(judged, system)}
    assert decided["rebuilt"].any() == (not all(of and of.met for _, of, _ in shown))


def test_a_system_without_them_has_no_page_and_no_row(replied):
    assert list(rebuilt.pages()) == [SYSTEM] and rebuilt.of("another") == {}
    assert rebuilt.protocols()["who"].tolist() == ["this book", registry.find()[SYSTEM].name]


def test_a_reply_is_printed_beside_its_claim_and_on_the_page(replied, gpu_folder):
    claims = replied("")
    assert "There is none yet." in rebuilt.page(SYSTEM)
    replied(REPLY.format(claims[0].id))
    page = rebuilt.page(SYSTEM)
    assert "There is none yet." not in page and f'<a href="ledger.html#claim-{claims[0].id}">' in page
    rows = str(ledger.ledger({"NVIDIA H200": judge.judge(claims, gpu_folder)})).split('<tr id="claim-')
    said = ["Our blocks had 128 threads." in row and "A. Author, of the source, 2026-11-27" in row for row in rows[1:]]
    assert [row.partition('"')[0] for row, here in zip(rows[1:], said, strict=True) if here] == [claims[0].id]
    assert all(f'href="rebuilt_{SYSTEM}.html"' in row for row in rows[1:])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            REPLY.format("no-such-claim"),
            "replies.toml.*'no-such-claim', to which A. Author, of the source replies, is no claim",
        ),
        (REPLY.format("x").replace("by", "from"), "the key 'reply.0.by' is missing"),
        (REPLY.format("x").replace("2026-11-27", '"yesterday"'), "'reply.0.date' is 'yesterday'"),
    ],
)
def test_a_reply_to_no_claim_or_without_a_name_is_refused(replied, said, why):
    replied(said)
    refused(why, rebuilt.of, SYSTEM)
