"""Every notebook is committed clean, takes the same parameters, and runs without a GPU."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import nbformat
import pytest

from artifact import build, registry
from artifact.book.text import NOT_MEASURED
from artifact.measure import records
from artifact.paths import BUILD, ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RECORDED = ROOT / "artifact" / "recorded" / "nvidia-h200"
#: The chapter with the most experiments; and those of real matrices, of which a kick takes few.
KICKED = "async_sparse"
KICKED_MATRICES = "ablation tile_n spmm spmm_tf32 spmm_half spmm_rcm wcsr_parts".split()
DEFAULTS = {"mode": "auto", "gpu": "nvidia-h200", "preset": "full", "seed": 0, "records": ""}
#: Lines of code that a reader can take in: of a cell, and of a chapter.
LONGEST_CELL, LONGEST_CHAPTER = 18, 250
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def execute(source: Path, target: Path, folder: Path, *options: str) -> subprocess.CompletedProcess:
    """Run a notebook as `make` does, in a build folder of its own, with the verdicts that a build has judged before."""
    if (BUILD / "verdicts").is_dir():
        shutil.copytree(BUILD / "verdicts", folder / "verdicts", dirs_exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "artifact.build", "notebook", str(source), str(target), *options],
        cwd=ROOT,
        env=os.environ | {"SPARSITY_BUILD": str(folder)},
        capture_output=True,
        text=True,
    )


def error_line(result: subprocess.CompletedProcess) -> str:
    """The one line that a failed command says; the progress bar shares stderr with it."""
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in result.stderr
    return line


@each
def test_one_parameters_cell(path):
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    assert cell is next(c for c in notebook.cells if c.cell_type == "code"), "not the first code"
    statements = ast.parse(cell.source).body
    assert all(isinstance(statement, ast.Assign) for statement in statements), "the parameters cell only assigns"
    found = {statement.targets[0].id: ast.literal_eval(statement.value) for statement in statements}
    assert found == DEFAULTS and tuple(found) == build.PARAMETERS


@each
def test_committed_clean_and_short_enough_to_read(path):
    text = path.read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell.id for cell in code if cell.outputs or cell.execution_count is not None], "has stored outputs"
    kept = [cell.metadata.keys() for cell in notebook.cells] + [
        notebook.metadata.keys() - {"kernelspec", "language_info"}
    ]
    assert set().union(*kept) <= {"tags", "editable", "slideshow"} and text.endswith("\n")
    assert notebook.metadata.kernelspec.name == "python3"
    lines = [len(cell.source.splitlines()) for cell in code]
    assert max(lines) <= LONGEST_CELL, "what it does belongs into the system's modules"
    assert sum(lines) <= LONGEST_CHAPTER


def no_complaint(executed: Path) -> None:
    """Every cell has run, and no page shows an error or what a library says on stderr."""
    for cell in nbformat.read(executed, as_version=4).cells:
        if cell.cell_type == "code" and cell.source.strip():
            assert cell.execution_count, f"this cell has not run: {cell.source[:80]}"
        for output in cell.get("outputs", []):
            assert output.output_type != "error"
            assert output.get("name") != "stderr", f"a page would show this: {output.text}"


@each
def test_ran_for_the_book(path):
    """As `make` executed it before the tests; that it is up to date is asked in test_makefile.py.

    Some of the explanations in a chapter are of one GPU; a page of no system lacks nothing.
    """
    executed = BUILD / "notebooks" / path.name
    if not executed.is_file():
        pytest.skip("the book is not built: make book")
    no_complaint(executed)
    outputs = [output for cell in nbformat.read(executed, as_version=4).cells for output in cell.get("outputs", [])]
    said = "\n".join(text for output in outputs for text in output.get("data", {}).values() if isinstance(text, str))
    assert len(said) > 3000 and not re.search(r"\bnan\b", said)
    assert path.stem in registry.find() or NOT_MEASURED.partition("{")[0] not in said


@pytest.fixture(scope="module")
def kicked(tmp_path_factory) -> Path:
    """The shipped records, of real matrices what a kick leaves: the first three, at the smallest N."""
    target = tmp_path_factory.mktemp("kicked") / RECORDED.name
    shutil.copytree(RECORDED, target)
    for experiment in KICKED_MATRICES:
        path = target / KICKED / f"{experiment}.csv"
        df = records.read(path)
        few = df["label"].isin(df["label"].unique()[:3]) & (df["n"] == df["n"].min())
        path.unlink()
        (path.parent / records.PLAN).unlink(missing_ok=True)  # of all matrices
        records.write(path, df[few])
    return target.parent


def test_a_chapter_runs_as_a_kick(kicked, tmp_path):
    target = tmp_path / "notebooks" / f"{KICKED}.ipynb"
    options = ("--mode", "recorded", "--preset", "kick", "--records", str(kicked))
    result = execute(ROOT / "notebooks" / target.name, target, tmp_path, *options)
    assert result.returncode == 0, result.stderr
    no_complaint(target)


@pytest.mark.parametrize("system", [system for system in registry.find() if (RECORDED / system).is_dir()])
def test_what_a_kick_asks_for_is_in_the_records(system):
    """A point that is asked for and is not recorded ends a chapter; so does an experiment without a file."""
    shape = ["m", "n", "k", "density"]
    for experiment, asked in importlib.import_module(f"kernels.{system}").sweeps("kick").items():
        folder, name = RECORDED / system, f"{experiment}.csv"
        paths = [folder / name] if (folder / name).is_file() else [*folder.glob(f"{experiment}_*.csv")]
        assert asked and paths, f"{system} has no record of {experiment}"
        for path in paths:
            points = records.read(path)[list(records.POINT)].drop_duplicates()[shape].astype(float)
            wanted = Counter(tuple(float(s[key]) for key in shape) for s in asked)
            missing = wanted - Counter(points.itertuples(index=False, name=None))
            assert not missing, f"{path.name} lacks {sorted(missing)[0]}"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('row 3')", "error: broken.ipynb, cell 3: ValueError: row 3"),
        ("import os; os._exit(1)", "error: broken.ipynb: DeadKernelError: "),
    ],
)
def test_a_failing_notebook_is_one_sentence_and_leaves_nothing(tmp_path, code, says):
    notebook = nbformat.read(ROOT / "notebooks" / "index.ipynb", as_version=4)
    notebook.cells = [*notebook.cells[:2], nbformat.v4.new_code_cell(code)]
    source, target = tmp_path / "broken.ipynb", tmp_path / "notebooks" / "broken.ipynb"
    nbformat.write(notebook, source)
    target.parent.mkdir()
    target.write_text("the previous one")
    result = execute(source, target, tmp_path / "build")
    assert result.returncode == 2 and error_line(result).startswith(says)
    assert list(target.parent.iterdir()) == [target] and target.read_text() == "the previous one"
