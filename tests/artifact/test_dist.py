"""The release: the same bytes from the same commit, all that is promised in it, and nothing of a machine."""

import gzip
import hashlib
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement
from refused import refused

from artifact import build, dist, wheelhouse
from artifact.book.text import part
from artifact.measure import records
from artifact.paths import ROOT
from kernels import __version__


def run(root, *command):
    who = {f"GIT_{role}_{key}": "x" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    subprocess.run(["git", "-C", str(root), *command], check=True, capture_output=True, env=os.environ | who)


@pytest.fixture
def clone(tmp_path):
    root = tmp_path / "clone"
    records.write_text(root / "recorded" / "a.csv", "1\n")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    for words in ("init -q", "add -A", "commit -qm all"):
        run(root, *words.split())
    (root / "untracked").write_text("of this machine")
    return root


@pytest.fixture
def book(tmp_path):
    for name, text in {"index.html": "<p>", "_static/x.css": "a{}"}.items():
        records.write_text(tmp_path / "html" / name, text)
    return tmp_path / "html"


def test_two_runs_give_the_same_bytes(tmp_path, clone, book):
    said = [dist.release(book, tmp_path / out, clone) for out in ("one", "two")]
    one, two = (open(found["archive"], "rb").read() for found in said)
    os.utime(book / "index.html", (0, 0))
    os.utime(clone / "run", (0, 0))
    third = open(dist.release(book, tmp_path / "three", clone)["archive"], "rb").read()
    assert one == two == third and said[0]["sha256"] == hashlib.sha256(one).hexdigest()
    assert hashlib.sha256(gzip.decompress(one)).hexdigest() == said[0]["of the tar"]
    assert (tmp_path / "one" / f"{dist.NAME}.tar.gz.sha256").read_text() == f"{said[0]['sha256']}  {dist.NAME}.tar.gz\n"


def test_what_is_in_it(tmp_path, clone, book):
    with tarfile.open(dist.release(book, tmp_path, clone)["archive"]) as tar:
        members = {m.name.removeprefix(f"{dist.NAME}/"): m for m in tar}
        assert list(members) == sorted(members)
        assert set(members) == {"SHA256SUMS", "html/_static/x.css", "html/index.html", "recorded/a.csv", "run"}
        assert {m.mtime for m in members.values()} == {int(dist.git("log", "-1", "--format=%ct", root=clone))}
        assert {(m.uid, m.gid, m.uname, m.gname) for m in members.values()} == {(0, 0, "", "")}
        assert members["run"].mode == 0o755 and members["html/index.html"].mode == 0o644
        tar.extractall(tmp_path / "out", filter="data")
    folder = tmp_path / "out" / dist.NAME
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True)
    assert checked.returncode == 0 and checked.stdout.count(b": OK") == 4
    (folder / "recorded" / "a.csv").write_text("2\n")
    assert subprocess.run(["sha256sum", "--check", "--status", "SHA256SUMS"], cwd=folder).returncode == 1


def test_a_release_is_of_a_commit_and_of_a_book(tmp_path, clone, book):
    unbuilt = (tmp_path / "none", tmp_path / "out", clone)
    refused("the book is not built there; `make dist`", dist.release, *unbuilt, kind=FileNotFoundError)
    (clone / "recorded" / "a.csv").write_text("2\n")
    refused("recorded/a.csv was changed and not committed", dist.release, book, tmp_path / "out", clone)
    refused("git status: .*; a release is made in a clone", dist.release, book, tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


def test_errors_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dist, "tracked", lambda root: {"html/x": (b"", False)})
    assert dist.main([str(tmp_path), str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: html/x: git has a file where the release puts its own.\n"


def test_pages_hold_nothing_that_an_execution_adds(tmp_path):
    """Two executions of a notebook that shows a styled table: papermill's stamps, random ids, addresses in memory."""
    texts = []
    for number, (table, address) in enumerate({"1a2b3": "7f181c544c50", "fffff": "7f0128363d50"}.items()):
        cell = nbformat.v4.new_code_cell(
            "x", metadata={"tags": ["injected-parameters"], "papermill": {"duration": number}}
        )
        html = f'<table id="T_{table}"><td id="T_{table}_row0">T_9</td></table>'
        data = {"text/html": html, "text/plain": f"<Styler at 0x{address}>"}
        cell.outputs = [nbformat.v4.new_output("display_data", data)]
        made = nbformat.v4.new_notebook(cells=[cell], metadata={"papermill": {"start_time": str(number)}})
        nbformat.write(made, tmp_path / "in.ipynb")
        build._as_page(tmp_path / "in.ipynb", tmp_path / "out.ipynb")
        texts.append((tmp_path / "out.ipynb").read_text())
    assert texts[0] == texts[1] and "T_00000_row0" in texts[0] and "T_9<" in texts[0]


def test_heads_of_columns_say_so():
    frame = pd.DataFrame({"a": [1.0], "b": ["x"]})
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x")])
    tables = frame.to_html(index=False) + frame.style.to_html() + str(part("facts", {"k": "v"}))
    made.cells[0].outputs = [nbformat.v4.new_output("display_data", {"text/html": tables})]
    text = nbformat.reads(build._same(nbformat.writes(made)), as_version=4).cells[0].outputs[0].data["text/html"]
    assert text.count('scope="col"') == 4 and text.count('scope="row"') == 1
    assert "<th>" not in text and ">a</th>" in text


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [version for version in versions if version != "Unreleased"]
    assert citation["version"] == released[0] == __version__ and __version__ in dist.NAME
    assert {"cff-version", "message", "title", "authors", "license", "date-released"} <= set(citation)


# ---------------------------------------------------------------- wheels for a node


HASH = f"--hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}"
#: name -> what it requires; everything is at version 2.
PACKAGES = {
    "front": ["middle>=2", "extras[fast]", 'other ; sys_platform == "win32"'],
    "middle": ["back"],
    "back": [],
    "extras": ['wing ; extra == "fast"', 'tail ; extra == "slow"'],
    "wing": [],
    "tail": [],
}


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A lock and an index of small wheels instead of the real ones; returns the calls to the index."""
    lines = [f"{name}==2 ; sys_platform == 'linux' \\\n    {HASH}\n    # via x\n" for name in PACKAGES]
    lines += [f"middle==1 ; python_full_version < '3.12' \\\n    {HASH}\n"]
    records.write_text(tmp_path / "requirements" / "gpu.lock", "".join(lines))
    calls: list[list[str]] = []

    def download(pins, folder: Path, python: str, glibc: str) -> dict[str, Path]:
        names = [pin.split("==")[0] for pin in pins]
        calls.append(names)
        for name in names:
            needs = "".join(f"Requires-Dist: {need}\n" for need in PACKAGES[name])
            with zipfile.ZipFile(folder / f"{name}-2-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{name}-2.dist-info/METADATA", f"Name: {name}\nVersion: 2\n{needs}\n")
        return {name: folder / f"{name}-2-py3-none-any.whl" for name in names}

    for name, what in {
        "ROOT": tmp_path,
        "_download": download,
        "_declared": lambda extras: [Requirement("front")],
    }.items():
        monkeypatch.setattr(wheelhouse, name, what)
    return calls


def fetch(folder: Path, freeze: str | None = None, python: str = "3.12") -> tuple[set[str], str]:
    has = folder.parent / "node.txt"
    has.write_text(freeze or "")
    wheelhouse.fetch(folder, python, "2.39", [], None if freeze is None else has)
    left_out = folder / "left-out.txt"
    wheels = {path.name.split("-")[0] for path in folder.glob("*.whl")}
    locked = (folder / "requirements.txt").read_text()
    assert set(re.findall(r"^(\w+)==2 \\$", locked, re.MULTILINE)) == wheels
    assert locked.count("--hash=") == 2 * len(wheels)
    return wheels, left_out.read_text() if left_out.exists() else ""


@pytest.mark.parametrize(
    ("freeze", "travels", "left_out"),
    [
        (None, {"front", "middle", "back", "extras", "wing"}, ""),
        # What only a package of the node needs (back) is the node's business too.
        (
            "middle==3.1\ntorch==2.11+cu130\n-e here\na @ file:///x\n",
            {"front", "extras", "wing"},
            "middle==3.1\n",
        ),
        ("Middle==1.9\nback==0.1\n", {"front", "middle", "extras", "wing"}, "back==0.1\n"),
    ],
    ids=["a bare node", "what it has", "what is too old there"],
)
def test_what_the_node_lacks_travels(tmp_path, index, freeze, travels, left_out):
    assert fetch(tmp_path / "w", freeze) == (travels, left_out)
    assert HASH in (tmp_path / "w" / "requirements.txt").read_text()


@pytest.mark.parametrize(
    ("freeze", "python", "says"),
    [
        ("numpy 2.0\n", "3.12", "line 1: expected name==version"),
        ("", "312", "must be given like 3.12"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, index, freeze, python, says):
    refused(says, fetch, tmp_path / "w", freeze, python)
    assert not list(tmp_path.glob("*w*"))


def test_incomplete_lock_leaves_nothing(tmp_path, index):
    lock = tmp_path / "requirements" / "gpu.lock"
    lock.write_text(lock.read_text().replace("back==2", "black==2"))
    refused("gpu.lock lacks back", fetch, tmp_path / "w")
    assert not list(tmp_path.glob("*w*"))


def test_pins_for_the_node():
    lock = f"numpy==1 ; python_full_version < '3.12' \\\n    {HASH}\n"
    lock += f"numpy==2 ; python_full_version >= '3.12' \\\n    {HASH}\n"
    for python, version in {"3.11": "1", "3.12": "2"}.items():
        assert wheelhouse._pins(lock, wheelhouse._environment(python))["numpy"] == f"numpy=={version} \\\n    {HASH}"


def test_a_folder_that_is_no_wheelhouse_is_not_replaced(index, tmp_path):
    mine = records.write_text(tmp_path / "house" / "thesis.tex", "years")
    refused(r"holds thesis\.tex, so it is no wheelhouse", fetch, mine.parent)
    assert mine.read_text() == "years"
