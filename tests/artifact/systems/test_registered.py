"""Systems are found by looking, a system.toml that is not whole is refused; the harness names none."""

import re

import pytest
from refused import refused

from artifact import build, registry
from artifact.measure import records
from artifact.paths import ROOT

WHOLE = """
name = "A"
title = "On A"
cite = "a"
order = 1
format = "CSR"
precision = "FP32"
unit = "CUDA cores"
patterns = ["non-zeros anywhere", "blocks"]
written_for = "a GPU"
idea = "one"
claims = "much"
"""


def system(folder, name: str, text: str = WHOLE) -> None:
    records.write_text(folder / name / "system.toml", text)


def test_systems_are_found_in_their_order(tmp_path):
    for name, order in (("zebra", 5), ("yak", 7), ("ant", 7)):
        system(tmp_path, name, WHOLE.replace("order = 1", f"order = {order}"))
    (tmp_path / "no_room").mkdir()
    found = registry.find(tmp_path)
    assert list(found) == ["zebra", "ant", "yak"]
    assert found["yak"].room == "yak" and found["yak"].name == "A"
    assert not found["yak"].headline and found["yak"].names == {}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('idea = "one"\n', "", "the key 'idea' is missing"),
        ('idea = "one"', 'idea = "one"\ncolour = "red"', "the key 'colour' is none of name, title"),
        ("CUDA cores", "abacus", "'unit' is 'abacus'"),
        ('"blocks"', '"N of M vectors"', "must be one or neighbours of non-zeros anywhere, blocks"),
        ('"blocks"', '"stripes"', "'patterns.1' is 'stripes'"),
        ('["non-zeros anywhere", "blocks"]', "[]", "'patterns' is"),
        ("order = 1", "order = ", "this is not valid TOML"),
    ],
)
def test_a_system_that_is_not_whole_is_refused(tmp_path, old, new, says):
    assert old in WHOLE
    system(tmp_path, "a", WHOLE.replace(old, new))
    refused(f"a/system.toml: .*{says}", registry.find, tmp_path)


def test_every_system_brings_the_source_that_it_cites(tmp_path):
    system(tmp_path, "a")
    refused("a/references.bib", registry.references, tmp_path, kind=FileNotFoundError)
    (tmp_path / "a" / "references.bib").write_text("@misc{b,\n}\n")
    refused("a/references.bib: there is no entry 'a'", registry.references, tmp_path)
    system(tmp_path, "c", WHOLE.replace('"a"', '"c"'))
    for name, end in (("a", "}"), ("c", "}\n\n")):
        (tmp_path / name / "references.bib").write_text(f"@misc{{{name},\n{end}")
    assert registry.references(tmp_path) == "@misc{a,\n}\n\n@misc{c,\n}\n"


def test_chapters_are_the_systems_with_a_notebook(tmp_path, monkeypatch):
    known = list(registry.find())
    for name in (known[2], known[0], "no_room"):
        records.write_text(tmp_path / "notebooks" / f"{name}.ipynb", "")
    contents = (ROOT / "book" / "_toc.yml").read_text(encoding="utf-8")
    records.write_text(tmp_path / "book" / "_toc.yml", contents)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    assert build.contents()["parts"][0]["chapters"] == [{"file": known[0]}, {"file": known[2]}]


def test_a_table_that_is_like_another_has_what_it_does_not_say_itself(tmp_path):
    first, second = '[[claim]]\nid = "a"\nnote = "its own"\nrule = 1\n', '[[claim]]\nid = "b"\nlike = "a"\nwhere = 2\n'
    (tmp_path / "claims.toml").write_text(first + second)
    assert registry.toml(tmp_path / "claims.toml")["claim"][1] == {"id": "b", "rule": 1, "where": 2}
    (tmp_path / "claims.toml").write_text(second + first)
    refused("'b' is like 'a', which is no table above it", registry.toml, tmp_path / "claims.toml")


def test_the_sources_are_in_one_bibliography_each_once():
    texts = [(ROOT / "book" / "references.bib").read_text(encoding="utf-8"), registry.references()]
    keys = re.findall(r"^@\w+{(\w+),$", "\n".join(texts), re.MULTILINE)
    assert len(keys) == len(set(keys)) > len(registry.find())


def test_the_harness_names_no_system():
    notebooks = [ROOT / "notebooks" / f"{name}.ipynb" for name in ("index", "ledger", "reviewers")]
    files = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "environment.yml", *notebooks]
    files += [p for p in (ROOT / "book").iterdir() if p.is_file()]
    for path in (ROOT / "artifact").rglob("*"):
        inside = path.relative_to(ROOT / "artifact").parts
        of_a_system = "recorded" in inside or (inside[0] == "systems" and len(inside) > 2)
        if path.is_file() and path.suffix != ".pyc" and not of_a_system:
            files.append(path)
    names = re.compile(rf"\b({'|'.join(registry.find())})\b")
    naming = {
        str(path.relative_to(ROOT)): found
        for path in files
        if (found := sorted(set(names.findall(path.read_text(encoding="utf-8")))))
    }
    assert len(files) > 50 and naming == {}
