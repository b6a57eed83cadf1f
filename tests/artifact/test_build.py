"""Notebook to page, pages to book: what the build changes on the way, and what it leaves when it fails."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import pytest
import synthetic
from refused import refused

from artifact import build, command, paths
from artifact.measure import device, records
from artifact.paths import ROOT


def notebook(*cells: tuple[str, list[str]]) -> nbformat.NotebookNode:
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    made = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    for source, tags in cells:
        made.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": tags}))
    return made


def test_page_shows_the_parameters_that_were_used_and_first_what_was_found(tmp_path):
    executed = notebook(
        *(("seed = 0", ["parameters"]), ("seed = 7", ["injected-parameters"]), ("seed", ["hide-input"])),
        *(("## The format", []), ("## What we found", ["found"])),
    )
    html = '<a href="../figures/room/name.csv">data</a>'
    executed.cells[2].outputs = [nbformat.v4.new_output("display_data", {"text/html": html})]
    nbformat.write(executed, tmp_path / "in.ipynb")
    build._as_page(tmp_path / "in.ipynb", tmp_path / "out.ipynb")
    page = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    tags = [cell.metadata.tags for cell in page.cells]
    assert tags == [
        ["parameters", "remove-cell"],
        ["injected-parameters", "hide-input"],
        ["hide-input"],
        ["found"],
        [],
    ]
    assert page.cells[2].outputs[0].data["text/html"] == html.replace("../", "")


@pytest.fixture
def no_notebook(tmp_path, monkeypatch):
    """A machine without a GPU and with records of one, where no notebook may start."""
    monkeypatch.setattr(device, "find", lambda *_: None)
    monkeypatch.setattr(paths, "RECORDED", tmp_path / "recorded")
    synthetic.folder(tmp_path / "recorded")
    started = []
    monkeypatch.setattr(build, "execute", lambda *given: started.append(given[2]))
    return started


@pytest.fixture(autouse=True)
def build_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")


def step(*options: str) -> int:
    try:
        return build.main(["notebook", "in.ipynb", "out.ipynb", *options])
    except SystemExit as leave:  # argparse
        return leave.code


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--preset", "x"], "preset is 'x', but must be one of full, kick"),
        (["--mode", "x"], "mode is 'x', but must be one of auto, measure, recorded"),
        (["--seed", "abc"], "seed is 'abc', but must be a whole number from 0"),
        (["--seed", "-1"], "seed is '-1'"),
        (["--seed", "1.5"], "seed is '1.5'"),
        (["--seed"], "argument --seed: expected one argument"),  # make artifact SEED=
        (["--gpu", "nix"], "no records of a GPU 'nix'; known: nvidia-h200"),
        (["--gpu", "nix", "--mode", "recorded"], "no records of a GPU 'nix'; known: nvidia-h200"),
        (["--records", "no/where"], "no/where: this folder of records is missing"),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
    ],
)
def test_a_bad_parameter_is_one_line_before_any_notebook_starts(no_notebook, capsys, options, says):
    assert step(*options) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.startswith("error: ") and err.count("\n") == 1
    assert not no_notebook


def test_good_parameters_reach_the_notebook(no_notebook, tmp_path, monkeypatch):
    assert step("--seed", "7", "--preset", "kick", "--gpu", "NVIDIA H200") == 0
    given = {"mode": "auto", "gpu": "NVIDIA H200", "preset": "kick", "seed": 7, "records": ""}
    assert no_notebook.pop() == given
    # Which GPU's records to read does not matter where there is one to measure.
    assert step("--mode", "measure") == 2 and not no_notebook
    monkeypatch.setattr(device, "require", lambda *_: "a GPU")
    assert step("--mode", "measure", "--gpu", "nix", "--records", str(tmp_path / "new")) == 0
    monkeypatch.setattr(device, "find", lambda *_: "a GPU")
    assert step("--gpu", "nix") == 0
    # Nor where nothing was recorded: there are notebooks that need no records.
    monkeypatch.setattr(device, "find", lambda *_: None)
    monkeypatch.setattr(paths, "RECORDED", tmp_path / "empty")
    assert step("--gpu", "nix") == 0


@pytest.fixture
def slow_notebook(tmp_path):
    """A notebook that waits for a minute, and the process that executes it, in a group of its own as in a terminal."""
    source, marker, sockets = tmp_path / "slow.ipynb", tmp_path / "started", tmp_path / "t"
    sockets.mkdir()
    parameters = "\n".join(f"{name} = None" for name in build.PARAMETERS)
    waits = f"open({str(marker)!r}, 'w').close()\nimport time\ntime.sleep(60)"
    cells = ((parameters, ["parameters"]), (waits, []))
    nbformat.write(notebook(*cells), source)
    target = tmp_path / "made" / "slow.ipynb"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "artifact.build",
            "notebook",
            str(source),
            str(target),
            "--mode",
            "recorded",
        ],
        cwd=ROOT,
        env=os.environ | {"SPARSITY_BUILD": str(tmp_path / "build"), "TMPDIR": str(sockets)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process, marker, target, sockets
    process.kill()


def test_being_stopped_ends_in_one_line(slow_notebook):
    """As by a terminal that is closed."""
    process, marker, target, sockets = slow_notebook
    limit = time.monotonic() + 60
    while not marker.exists() and time.monotonic() < limit:
        time.sleep(0.1)
    assert marker.exists(), "the notebook did not start"
    os.killpg(process.pid, signal.SIGHUP)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP and "Traceback" not in out + err
    said = [line for line in err.splitlines() if line and "/cell" not in line and "cell/s" not in line]
    assert len(said) == 1 and "slow.ipynb is not finished; the same command goes on" in said[0], err
    assert not list(target.parent.iterdir()), "something half-written is left"
    limit = time.monotonic() + 20
    with pytest.raises(ProcessLookupError):  # nor does its kernel go on
        while time.monotonic() < limit:
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    assert not list(sockets.iterdir())


@pytest.mark.parametrize("number", command.SIGNALS)
def test_what_ends_a_process_is_an_interrupt_unless_it_is_ignored(number):
    """Ctrl-C, and what Slurm, `timeout` and a terminal that is closed send; under nohup."""
    before, log = {x: signal.getsignal(x) for x in command.SIGNALS}, []
    try:
        command.as_interrupt(lambda: log.append("first"))
        with pytest.raises(KeyboardInterrupt) as caught:
            signal.raise_signal(number)
        assert caught.value.args == (number,) and log == ["first"]
        signal.signal(number, signal.SIG_IGN)
        command.as_interrupt()
        assert (signal.getsignal(number) is signal.SIG_IGN) == (number != signal.SIGINT)
    finally:
        for x, handler in before.items():
            signal.signal(x, handler)


def test_kernels_share_no_ports(tmp_path, monkeypatch):
    """Two that started at once were given the same TCP port, now and then; the build stood still, and failed.

    Here temporary files lie deeper than a socket's path may be long; nothing stays there.
    """
    told = ("open('told', 'w').write(get_ipython().kernel.parent.transport)", [])
    nbformat.write(notebook(("mode = 1", ["parameters"]), told), tmp_path / "in.ipynb")
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    build.execute(tmp_path / "in.ipynb", tmp_path / "out.ipynb", {"mode": 2})
    assert (tmp_path / "told").read_text() == "ipc" and not any(deep.iterdir())


def small_book(root, text: str) -> None:
    """A repository with a book of one page."""
    shutil.copytree(ROOT / "book" / "_static", root / "book" / "_static")
    for name in ("_config.yml", "references.bib"):
        shutil.copy(ROOT / "book" / name, root / "book")
    (root / "book" / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    (root / "book" / "index.md").write_text(text)
    (root / "notebooks").mkdir()


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    for name, path in {"ROOT": "", "BUILD": "build", "FIGURES": "build/figures"}.items():
        monkeypatch.setattr(build, name, tmp_path / path)
    return tmp_path


def test_book_replaces_the_previous_one(elsewhere, monkeypatch):
    """Of Jupyter Book's own pages the next test is."""

    def built(words, **_):
        html = Path(words[words.index("--path-output") + 1], "_build", "html")
        records.write_text(html / "index.html", "<p>A title</p>")
        return subprocess.CompletedProcess(words, 0, "")

    monkeypatch.setattr(build.subprocess, "run", built)
    small_book(elsewhere, "# A title\n\n$x$\n")
    figures, target = elsewhere / "build" / "figures" / "room", elsewhere / "build" / "html"
    for folder, name in ((figures, "name.csv"), (target, "stale.html")):
        records.write_text(folder / name, "a\n")
    build.book(elsewhere / "build" / "notebooks", target)
    assert "A title" in (target / "index.html").read_text() and not (target / "stale.html").exists()
    assert (target / "figures" / "room" / "name.csv").read_text() == "a\n"
    assert sorted(p.name for p in (elsewhere / "build").iterdir()) == ["figures", "html"]
    library = (target / "itables.js").read_text()
    assert library.startswith('window.itablesBundle = "') and len(library) > 100_000


def test_warnings_fail_the_book_and_keep_the_previous_one(elsewhere, capsys):
    """All of them are said at once; of each kind alone the build's exit code says the same."""
    faults = {"[a link](nowhere.md)": "nowhere", "{cite}`nobody`": "nobody", "#### Four": "header"}
    small_book(elsewhere, "# A title\n\n" + "\n\n".join(faults) + "\n")
    target = elsewhere / "build" / "html"
    records.write_text(target / "index.html", "previous")
    refused("without warnings", build.book, elsewhere / "build" / "notebooks", target, kind=build.BuildError)
    said = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert all(any(word in line for line in said) for word in faults.values()), said
    assert (target / "index.html").read_text() == "previous"
    assert [p.name for p in (elsewhere / "build").iterdir()] == ["html"]


# ---------------------------------------------------------------- where it builds


@pytest.mark.parametrize("step", [["check"], ["notebook", "in.ipynb", "out.ipynb"], ["book", "x", "html"]])
def test_a_folder_of_the_user_s_is_not_built_into(tmp_path, monkeypatch, capsys, step):
    """Its html/ would be replaced by the book, and its parameters/ removed."""
    mine = tmp_path / "mine"
    for name in ("html", "parameters"):
        records.write_text(mine / name / "mine.txt", "years of work")
    for name, what in {"BUILD": mine, "execute": pytest.fail, "book": pytest.fail}.items():
        monkeypatch.setattr(build, name, what)
    monkeypatch.chdir(mine)
    assert build.main(step) == 2
    err = capsys.readouterr().err
    assert f"{mine}: this folder is not empty (html)" in err and err.count("\n") == 1
    assert sorted(path.name for path in mine.rglob("*.txt")) == ["mine.txt"] * 2
    assert not (mine / build.MARK).exists()


def test_a_new_folder_is_marked_and_built_into_again(tmp_path, monkeypatch):
    folder = tmp_path / "a" / "b"
    build.claim(folder)
    (folder / "html").mkdir()
    build.claim(folder)
    # What measuring or a trial put there first is kept, and no reason to refuse.
    (tmp_path / "c" / "records").mkdir(parents=True)
    build.claim(tmp_path / "c")
    # The repository's own build/ needs no mark.
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "build" / "kick" / "html").mkdir(parents=True)
    build.claim(tmp_path / "build")
    build.claim(tmp_path / "build" / "kick")


def test_a_name_that_is_not_utf_8_is_one_sentence(tmp_path):
    refused(r"udcff' is a name that is not UTF-8", build.claim, tmp_path / os.fsdecode(b"\xff"))
    assert not list(tmp_path.iterdir())


def test_two_builds_that_end_at_once_leave_one_of_their_books(tmp_path, monkeypatch):
    """Between the two renames of one, the other puts its own there."""
    target, rename, books = tmp_path / "html", os.replace, [tmp_path / name / "html" for name in ("1", "2", "3")]
    for book in books:
        records.write_text(book / "index.html", book.parent.name)
    rename(books[0], target)

    def between(old, new):
        rename(old, new)
        if old == target and books[1].exists():
            rename(books[1], target)

    monkeypatch.setattr(build.os, "replace", between)
    build._replace_folder(books[2], target)
    assert (target / "index.html").read_text() == "3"
    (tmp_path / "file").touch()
    refused("below", build._replace_folder, target, tmp_path / "file" / "below", kind=OSError)
