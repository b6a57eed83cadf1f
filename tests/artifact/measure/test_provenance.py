"""Provenance: each row says who measured it, and whatever is changed in a record afterwards is found."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from test_records import frame

from artifact import paths
from artifact.book import facts
from artifact.measure import files, records

SHIPPED = sorted(path.parent for path in paths.RECORDED.rglob(records.MACHINE))
FOLDER = paths.RECORDED / paths.HOME / "casper_sparse"
MACHINE = dict.fromkeys(records.MACHINE_KEYS, "of it") | {
    "gpu": "NVIDIA H200",
    "slug": "nvidia-h200",
    "packages": {"a": "1"},
}


@pytest.fixture
def measured(tmp_path):
    """A system's folder with a record of three rows, measured at commit aaaa."""
    folder = tmp_path / "nvidia-h200" / "casper_sparse"
    records.write_machine(folder, MACHINE | {"commit": "aaaa"})
    records.append(folder / "wide.csv", frame({}, {"n": 1024}, {"n": 2048}))
    return folder


def lines(folder) -> list[str]:
    return (folder / files.PROVENANCE).read_text().splitlines()[1:]


def test_what_is_measured_is_of_the_commit_the_driver_and_the_day(measured):
    assert lines(measured) == ["wide.csv,2,4,aaaa,of it,2026-01-02"]
    records.write_machine(measured, MACHINE | {"commit": "bbbb"})
    records.append(measured / "wide.csv", frame({"n": 64, "when": "2026-01-03T00:00:00+00:00"}))
    assert lines(measured) == ["wide.csv,2,4,aaaa,of it,2026-01-02", "wide.csv,5,5,bbbb,of it,2026-01-03"]
    records.append(measured / "wide.csv", frame({"n": 1024, "median_us": 50.5, "bound": 0.1}))  # in place of the second
    first, second, third = lines(measured)
    assert first == "wide.csv,2,3,aaaa,of it,2026-01-02" and third == "wide.csv,5,5,bbbb,of it,2026-01-02"
    assert records.made(measured) == [
        ("2026-01-02", "aaaa", ("wide",)),
        ("2026-01-02", "bbbb", ("wide",)),
        ("2026-01-03", "bbbb", ("wide",)),
    ]
    records.plan(measured / "wide.csv", [])
    records.write_text(measured / "traces" / "timeline.csv", "us\n1\n2\n")
    assert [*records.read_machine(measured)[files.DIGESTS]] == [
        "plan.json",
        "provenance.csv",
        "traces/timeline.csv",
        "wide.csv",
    ]
    assert not [*files.problems(measured, measured)]


def test_of_what_is_set_aside_or_was_there_before_nothing_is_told(measured):
    (measured / "wide.csv").rename(measured / "wide.csv.stale")
    records.write_machine(measured, MACHINE)
    assert lines(measured) == [] and not [*files.problems(measured, measured)]
    path = measured / "tall.csv"
    path.write_text(records._text(frame({"experiment": "tall"}), path))
    records.append(path, frame({"experiment": "tall", "n": 64}))
    assert [line.split(",")[3] for line in lines(measured)] == [files.NOT_RECORDED, "of it"]


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: "-".join(path.relative_to(paths.RECORDED).parts[:3]))
def test_all_shipped_records_are_as_they_were_written(folder):
    assert not [*files.problems(folder, folder)]


#: In a checkout it is said which row and cell, since Git has the file as it was.
GIT = (paths.ROOT / ".git").exists()
HARM = {
    "a cell": (
        lambda lines: [*lines[:6], lines[6].replace(",25,", ",26,", 1), *lines[7:]],
        "row 7, '26' in place of '25'",
    ),
    "a row less": (lambda lines: [*lines[:6], *lines[7:]], "row 7,"),
    "a row more": (lambda lines: [*lines, lines[-1]], "row 227,"),
}


@pytest.mark.parametrize("harm", HARM)
def test_whatever_is_changed_in_a_record_is_found(tmp_path, harm):
    change, says = HARM[harm]
    copy = shutil.copytree(FOLDER, tmp_path / FOLDER.name)
    path = copy / "square.csv"
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    found = [*files.problems(copy, FOLDER)]
    assert all(said.startswith(f"{path}: ") for said in found) and (says if GIT else "the file is not") in found[0]
    assert len(found) == 1 + (harm != "a cell")
    assert str(path) in [*files.problems(copy, tmp_path)][0]  # where git does not know of it


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_of_any_file_is_found(tmp_path, data):
    copy = tmp_path / FOLDER.name
    if not copy.exists():
        shutil.copytree(FOLDER, copy)
    path = data.draw(st.sampled_from([*files.kept(copy).values()]))
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    path.write_bytes(content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :])
    assert any(said.startswith(f"{path}: ") for said in files.problems(copy, FOLDER))
    path.write_bytes(content)
    assert not [*files.problems(copy, FOLDER)]


@pytest.mark.parametrize("name", ["square.csv", "plan.json", "provenance.csv"])
def test_a_file_that_is_lost_or_of_which_nothing_is_told_is_found(tmp_path, name):
    copy = shutil.copytree(FOLDER, tmp_path / FOLDER.name)
    (copy / name).unlink()
    assert any(str(copy / name) in said for said in files.problems(copy, FOLDER))
    shutil.copyfile(FOLDER / name, copy / name)
    shutil.copyfile(FOLDER / name, copy / f"other.{name}")
    assert all(f"other.{name}" in said for said in files.problems(copy, FOLDER))
    assert [*files.problems(copy, FOLDER)]


def test_a_fact_or_a_verdict_that_is_not_that_of_the_records_is_named(tmp_path):
    path = tmp_path / "verdicts.csv"
    path.write_text("claim,gpu,verdict\na,x,partly\nb,x,partly\nn,x,0.1\n")
    found = [*facts.differences(path, "claim,gpu,verdict\na,x,partly\nb,x,reproduced\nn,x,0.10000000000000002\n")]
    assert found == [f"{path}: b, x is 'partly', but the records give 'reproduced'."]
