"""The tables of the page on other GPUs: from routes and records, the same in the README and in the book."""

from __future__ import annotations

import shutil

import pytest

from artifact import paths
from artifact.drawing.pages import elsewhere
from artifact.verdicts import page
from kernels.library import families

ROOT = paths.RECORDED.parents[1]


@pytest.mark.parametrize("text", ["README.md", "book/library.md"])
def test_the_table_of_kernels_is_the_same_wherever_it_stands(text):
    assert page.table(elsewhere.multiplied()) in (ROOT / text).read_text()


def test_the_readme_says_where_kernels_have_run():
    assert page.table(elsewhere.tried()) in (ROOT / "README.md").read_text()


def test_families_that_get_the_same_share_a_column(monkeypatch):
    df = elsewhere.multiplied()
    named = {name for column in df.columns[2:] for name in column.split("; ")}
    assert named == {f.name for f in families.FAMILIES} and df.shape[1] < 2 + len(families.FAMILIES)
    table = families.table()
    table["CSR", "float32"]["B200"] = "something else"
    monkeypatch.setattr(families, "table", lambda: table)
    assert "B200" in elsewhere.multiplied().columns


def test_a_family_without_records_was_never_run(tmp_path):
    slug = "nvidia-h200"
    for name, capability in ((slug, "9.0"), ("an-a100", "8.0")):
        room = tmp_path / name / "async_sparse"
        room.mkdir(parents=True)
        shutil.copy(paths.RECORDED / slug / "async_sparse" / "ladder.csv", room)
        text = (paths.RECORDED / slug / "async_sparse" / "machine.json").read_text()
        text = text.replace('"compute_capability": "9.0"', f'"compute_capability": "{capability}"')
        (room / "machine.json").write_text(text)
    df = elsewhere.tried(tmp_path).set_index("compute capability")["kernels"]
    assert df["8.0"].startswith("measured") and df["9.0"].startswith("measured")
    assert set(df.drop(["8.0", "9.0"])) == {"compiled, never run"}
    assert set(elsewhere.tried(tmp_path / "none")["kernels"]) == {"compiled, never run"}
