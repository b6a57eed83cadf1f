"""A room is three folders and a notebook: the seven steps of the README, in a copy of the tree, edit no other file.

The room that is added, `scalar_csr`, lies in tests/added_room as it will lie in the tree. Its records are synthetic.
The book is built whole; its chapter and the pages that speak of all rooms are executed, the others have no outputs.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifact.measure import records
from artifact.paths import ROOT
from tests.artifact import synthetic

ROOM, NAME, CLAIM, GPU = "scalar_csr", "Scalar CSR", "scalar-twice", "nvidia-h200"
#: The README's steps, and what each of them adds.
STEPS = {
    "Kernels": [f"kernels/{ROOM}"],
    "Look at it": [],
    "The room": [
        f"artifact/rooms/{ROOM}/room.toml",
        f"artifact/rooms/{ROOM}/references.bib",
        f"artifact/rooms/{ROOM}/__init__.py",
    ],
    "Claims": [f"artifact/rooms/{ROOM}/published", f"artifact/rooms/{ROOM}/claims.toml"],
    "Chapter": [*(f"artifact/rooms/{ROOM}/{name}.toml" for name in ("figures", "tables")), f"notebooks/{ROOM}.ipynb"],
    "Records": [f"artifact/rooms/{ROOM}/profiles.toml"],
    "Tests": [f"tests/kernels/{ROOM}"],
}
EXECUTED = (ROOM, "index", "ledger", "reviewers")
PARTS = ("artifact", "book", "kernels", "notebooks", "requirements", "tests")
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.ncu-rep", "added_room")


def digests(tree: Path) -> dict[str, str]:
    """Every file of a tree but for what is built, and a hash of its content."""
    files = (path for path in sorted(tree.rglob("*")) if path.is_file())
    found = {str(f.relative_to(tree)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    skip = re.compile(r"(^|/)(build|__pycache__|\.pytest_cache|\.hypothesis)/")
    return {name: digest for name, digest in found.items() if not skip.search(name)}


def add(step: str, tree: Path) -> None:
    """What a step of the README adds to the tree."""
    for name in STEPS[step]:
        source, target = ROOT / "tests" / "added_room" / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def add_records(tree: Path) -> None:
    """Records as `make measure` leaves them, of our `scalar` and of cuSPARSE: 1.6 times as fast."""
    df = synthetic.experiment("wide", speedup=1.6, room=ROOM, experiment="columns")
    df = df[(df["density"] == 0.01) & df["n"].isin([512, 1024, 2048])]
    other = {"warp_per_row": "scalar", "rows_per_warp": "unrolled", "any_n": "cusparse_alg3"}
    library = df["variant"].where(df["variant"].str.startswith("cusparse"))
    variant = df["variant"].map(other).fillna(library)
    df = df.assign(variant=variant, m=1024, k=1024).dropna(subset="variant")
    folder = tree / "artifact" / "recorded" / GPU / ROOM
    records.write(folder / "columns.csv", df)
    records.write_machine(folder, synthetic.machine())


def python(tree: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Run this Python in the tree, with the tree's packages, as a user there would."""
    environment = os.environ | {"SPARSITY_BUILD": str(tree / "build"), "PYTHONPATH": str(tree)}
    return subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)


def said(tree: Path, *arguments: str) -> str:
    """What `python -m artifact …` prints in the tree; it must succeed."""
    result = python(tree, "-m", "artifact", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of this tree with the room added."""
    tree = tmp_path_factory.mktemp("tree") / "copy"
    for part in PARTS:
        shutil.copytree(ROOT / part, tree / part, ignore=NOT_COPIED)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
    # The pages that speak of all rooms judge what was recorded: of one room beside the new one, that is enough.
    for folder in (tree / "artifact" / "recorded" / GPU).iterdir():
        if folder.name not in ("ceilings", "casper_sparse"):
            shutil.rmtree(folder)
    before = digests(tree)
    for step in STEPS:
        add(step, tree)
        if step == "Records":
            add_records(tree)
    after = digests(tree)
    assert before.items() <= after.items(), "adding a room changed a file that was there"
    return tree


def test_the_steps_are_those_of_the_readme_and_add_the_whole_room():
    section = (ROOT / "README.md").read_text().partition("## How to add a room")[2]
    section = section.partition("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*(.+?)\.\*\*", section, re.MULTILINE) == [
        (str(number), step) for number, step in enumerate(STEPS, 1)
    ]
    room = ROOT / "tests" / "added_room"
    files = {str(p.relative_to(room)) for p in room.rglob("*") if p.is_file()} - {"conftest.py"}
    added = tuple(name for names in STEPS.values() for name in names)
    assert {f for f in files if "__pycache__" not in f and not f.startswith(added)} == set()
    places = ("kernels/", f"artifact/rooms/{ROOM}/", f"notebooks/{ROOM}.ipynb", "tests/")
    assert all(name.startswith(places) for name in added)


def test_its_kernels_compile_and_the_commands_know_it(tree):
    rows = list(csv.DictReader(said(tree, "compile", ROOM, "--csv").splitlines()))
    assert {row["variant"] for row in rows} == {"scalar", "unrolled"}
    assert all(int(row["registers"]) > 0 and row["spills"] == "False" for row in rows)
    (claim,) = json.loads(said(tree, "claims", "--room", ROOM, "--json"))
    assert (claim["id"], claim["source"], claim["verdict"]) == (
        CLAIM,
        NAME,
        "does not carry over to this GPU",
    )
    assert "1.60" in claim["measured"] + claim["why"] and claim["published"].startswith("2")
    refused = python(tree, "-m", "artifact", "profile", "no_such_room")
    assert refused.returncode == 2 and ROOM in refused.stderr, "its plan is not read"


def test_its_own_tests_pass_there(tree):
    result = python(tree, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"tests/kernels/{ROOM}")
    assert result.returncode == 0 and "10 passed" in result.stdout, result.stdout


def test_its_page_its_claims_its_card_and_its_lines_in_the_appendix(tree):
    bs4 = pytest.importorskip("bs4")
    pytest.importorskip("jupyter_book")
    pages = tree / "build" / "notebooks"
    pages.mkdir(parents=True)
    for notebook in (tree / "notebooks").glob("*.ipynb"):
        if notebook.stem not in EXECUTED:
            shutil.copy(notebook, pages)

    def execute(name: str) -> None:
        page = f"{name}.ipynb"
        step = ("notebook", f"notebooks/{page}", f"build/notebooks/{page}", "--mode", "recorded")
        result = python(tree, "-m", "artifact.build", *step)
        assert result.returncode == 0, f"{name}: {result.stderr}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(execute, EXECUTED))
    result = python(tree, "-m", "artifact.build", "book", "build/notebooks", "build/html")
    assert result.returncode == 0, result.stderr

    def page(name: str):
        return bs4.BeautifulSoup((tree / "build/html" / f"{name}.html").read_text(), "html.parser")

    index, ledger, appendix, own = (page(n) for n in ("index", "ledger", "reviewers", ROOM))
    contents = [a["href"] for a in index.select(".bd-sidebar-primary nav a[href]")]
    at = contents.index(f"{ROOM}.html")
    assert contents[at - 1 : at + 2] == ["tensor_core_24.html", f"{ROOM}.html", "nm_spmm.html"]
    card = index.select_one("figure#book-systems img")
    assert f"{NAME}: CSR, CUDA cores, measured." in card["alt"]
    row = next(tr for tr in index.select("table tr") if NAME in tr.get_text())
    assert row.select_one(f'a[href^="{ROOM}.html"]') and "Nobody" in row.get_text()
    claim = ledger.select_one(f"tr#claim-{CLAIM}")
    assert NAME in claim.get_text() and "does not carry over" in claim.get_text()
    named = (a.find_parent("tr") for a in appendix.select(f'td a[href="{ROOM}.html"]') if a.get_text() == ROOM)
    line = next(named)
    assert "Fig. 1" in line.get_text() and "columns" in line.get_text()
    assert f"{NAME} (CSR, FP32, measured)" in appendix.get_text()
    figure = own.select_one(f"figure#{ROOM.replace('_', '-')}-rates")
    assert "scalar" in figure.img["alt"] and "Fig. 1 of the source" in figure.figcaption.get_text()
    assert (tree / "build/html/figures" / ROOM / "rates.csv").is_file()
    assert own.select_one(f"tr#claim-{CLAIM}") and "Nobody" in page("bibliography").get_text()
