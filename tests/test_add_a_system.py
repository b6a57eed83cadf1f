"""A system is three folders and a notebook: the seven steps of the README, in a copy of the tree, edit no other file.

The added system, `scalar_csr`, lies in tests/added_system as it will lie in the tree. Its records are synthetic.
Its chapter and the pages that speak of all systems run there, in one process, as the book's would.
"""

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from artifact import registry
from artifact.measure import records
from artifact.paths import ROOT
from tests.artifact import synthetic

SYSTEM, NAME, CLAIM, GPU = "scalar_csr", "Scalar CSR", "scalar-twice", "nvidia-h200"
#: The README's steps, and what each of them adds.
STEPS = {
    "Kernels": [f"kernels/{SYSTEM}"],
    "Look at it": [],
    "The system": [
        f"artifact/systems/{SYSTEM}/system.toml",
        f"artifact/systems/{SYSTEM}/references.bib",
        f"artifact/systems/{SYSTEM}/__init__.py",
    ],
    "Claims": [
        f"artifact/systems/{SYSTEM}/published",
        *(f"artifact/systems/{SYSTEM}/{name}" for name in ("claims.toml", "rebuilt.md", "rebuilt.toml")),
    ],
    "Chapter": [
        *(f"artifact/systems/{SYSTEM}/{name}.toml" for name in ("figures", "tables")),
        f"notebooks/{SYSTEM}.ipynb",
    ],
    "Records": [f"artifact/systems/{SYSTEM}/profiles.toml"],
    "Tests": [f"tests/kernels/{SYSTEM}"],
}
EXECUTED = (SYSTEM, "index", "ledger", "reviewers")
PARTS = ("artifact", "book", "kernels", "notebooks", "requirements", "tests")
#: Prints what the pages show, and the table of contents: {notebook: HTML or Markdown}.
SHOW = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from artifact import build
from artifact.drawing.pages import appendix
appendix.typed = lambda *commands: "what commands print is not asked here"
shell, shown = InteractiveShell.instance(), {"contents": str(build.contents())}
for name in sys.argv[1:]:
    notebook = json.load(open(f"notebooks/{name}.ipynb", encoding="utf-8"))
    with capture_output() as seen:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                shell.run_cell("".join(cell["source"]).replace('"auto"', '"recorded"')).raise_error()
    shown[name] = "\\n".join(out.data.get("text/markdown", "") + out.data.get("text/html", "") for out in seen.outputs)
print(json.dumps(shown))
"""
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.ncu-rep", "added_system")


def digests(tree: Path) -> dict[str, str]:
    """Every file of a tree but for what is built, and a hash of its content."""
    files = (path for path in tree.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def add(step: str, tree: Path) -> None:
    """What a step of the README adds to the tree."""
    for name in STEPS[step]:
        source, target = ROOT / "tests" / "added_system" / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def add_records(tree: Path) -> None:
    """Records as `make measure` leaves them, of our `scalar` and of cuSPARSE: 1.6 times as fast."""
    df = synthetic.experiment("wide", speedup=1.6, room=SYSTEM, experiment="columns")
    df = df[(df["density"] == 0.01) & df["n"].isin([512, 1024, 2048])]
    other = {"warp_per_row": "scalar", "rows_per_warp": "unrolled", "any_n": "cusparse_alg3"}
    library = df["variant"].where(df["variant"].str.startswith("cusparse"))
    variant = df["variant"].map(other).fillna(library)
    df = df.assign(variant=variant, m=1024, k=1024).dropna(subset="variant")
    folder = tree / "artifact" / "recorded" / GPU / SYSTEM
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
    """A copy of this tree with the system added."""
    tree = tmp_path_factory.mktemp("tree") / "copy"
    for part in PARTS:
        shutil.copytree(ROOT / part, tree / part, ignore=NOT_COPIED)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
    # The pages that speak of all systems judge what was recorded: of one system beside the new one, that is enough.
    recorded = tree / "artifact" / "recorded"
    for folder in (*recorded.iterdir(), *(recorded / GPU).iterdir()):
        if folder.is_dir() and folder.name not in (GPU, "ceilings", "casper_sparse"):
            shutil.rmtree(folder)
    before = digests(tree)
    for step in STEPS:
        add(step, tree)
        if step == "Records":
            add_records(tree)
    assert before.items() <= digests(tree).items(), "adding a system changed a file that was there"
    return tree


def test_the_steps_are_those_of_the_readme_and_add_the_whole_system():
    section = (ROOT / "README.md").read_text().partition("## How to add a system")[2]
    section = section.partition("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*(.+?)\.\*\*", section, re.MULTILINE) == [
        (str(number), step) for number, step in enumerate(STEPS, 1)
    ]
    system = ROOT / "tests" / "added_system"
    files = {str(p.relative_to(system)) for p in system.rglob("*") if p.is_file()} - {"conftest.py"}
    added = tuple(name for names in STEPS.values() for name in names)
    assert {f for f in files if "__pycache__" not in f and not f.startswith(added)} == set()
    places = ("kernels/", f"artifact/systems/{SYSTEM}/", f"notebooks/{SYSTEM}.ipynb", "tests/")
    assert all(name.startswith(places) for name in added)


def test_its_kernels_compile_and_the_commands_know_it(tree):
    rows = list(csv.DictReader(said(tree, "compile", SYSTEM, "--csv").splitlines()))
    assert {row["variant"] for row in rows} == {"scalar", "unrolled"}
    assert all(int(row["registers"]) > 0 and row["spills"] == "False" for row in rows)
    (claim,) = json.loads(said(tree, "claims", "--room", SYSTEM, "--json"))
    assert [claim[key] for key in ("id", "source", "verdict")] == [CLAIM, NAME, "partly"]
    assert "1.60" in claim["measured"] + claim["why"] and claim["published"].startswith("2")
    refused = python(tree, "-m", "artifact", "profile", "no_such_room")
    assert refused.returncode == 2 and SYSTEM in refused.stderr, "its plan is not read"


def test_its_own_tests_pass_there(tree):
    result = python(tree, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"tests/kernels/{SYSTEM}")
    assert result.returncode == 0 and "10 passed" in result.stdout, result.stdout


def test_its_page_its_claims_its_card_and_its_lines_in_the_appendix(tree):
    result = python(tree, "-c", SHOW, *EXECUTED)
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout.splitlines()[-1])
    found = re.findall("'file': '(\\w+)'", shown["contents"])
    for name in (SYSTEM, f"rebuilt_{SYSTEM}"):
        beside = [name.replace(SYSTEM, other) for other in ("tensor_core_24", SYSTEM, "nm_spmm")]
        assert found[(at := found.index(name)) - 1 : at + 2] == beside
    for page, said in {
        "index": [f"{NAME}: CSR, CUDA cores, measured.", f"[{NAME}]({SYSTEM}.ipynb)"],
        "ledger": [f'id="claim-{CLAIM}"', NAME, "does not carry over"],
        "reviewers": [f'| Fig. 1 | columns | <a href="{SYSTEM}.html">', f"{NAME} (CSR, FP32, measured)"],
        SYSTEM: [":name: scalar-csr-rates", "TFLOP/s over N: scalar", "Fig. 1 of the source", f'id="claim-{CLAIM}"'],
    }.items():
        assert all(words in shown[page] for words in said), page
    assert (tree / "build/figures" / SYSTEM / "rates.csv").is_file()
    assert "Nobody" in registry.references(tree / "artifact" / "systems")
