"""The Makefile: documented, and it redoes what a change touches and nothing else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from artifact.measure import device
from artifact.paths import BUILD, ROOT

TEXT = (ROOT / "Makefile").read_text()
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    """Run make as a user would, whatever make runs these tests."""
    inherited = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "SPARSITY_BUILD"}
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    return subprocess.run(["make", *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture
def built() -> list[str]:
    """The variables under which the book in BUILD is up to date."""
    marks = list((BUILD / "parameters").glob("*"))
    if not marks or not (BUILD / "html" / "index.html").is_file():
        pytest.skip("the book is not built: make book")
    return [f"BUILD={BUILD}", *marks[0].read_text().splitlines()]


def executed(result: subprocess.CompletedProcess) -> list[str]:
    return sorted(re.findall(r"artifact\.build notebook notebooks/(\S+)", result.stdout))


def test_help_lists_every_target():
    targets = re.search(r"^\.PHONY: (.*)$", TEXT, re.MULTILINE)[1].split()
    lines = re.findall(r"^  make (\S+) +(\S.*)$", make("help").stdout, re.MULTILINE)
    assert sorted(name for name, _ in lines) == sorted(targets)
    assert set("artifact test kick measure profile claims compare book wheelhouse clean help".split()) <= set(targets)
    assert make().stdout == make("help").stdout


def test_goals_of_one_command_are_reached_one_after_the_other():
    """At once, `make artifact test` would build one book twice in one place."""
    rules = ["--eval", "one: ; @sleep 0.5; echo one $(SEED)", "--eval", "two: ; @echo two $(SEED)"]
    result = make("--silent", "JOBS=4", "SEED=7", *rules, "one", "two")
    assert result.stdout.splitlines() == ["one 7", "two 7"], result.stderr
    assert "clean" in (found := make("-n", "clean", "help").stdout) and found.index("clean") < found.index("help")


def test_the_longest_notebook_is_begun_first():
    listed = make("--silent", "--eval", "said: ; @echo $(NOTEBOOKS)", "said").stdout.split()
    assert sorted(listed) == [f"notebooks/{name}" for name in NOTEBOOKS]
    assert listed[:2] == ["notebooks/elsewhere.ipynb", "notebooks/reviewers.ipynb"]  # which judge every claim
    sizes = [(ROOT / name).stat().st_size for name in listed[2:]]
    assert sizes == sorted(sizes, reverse=True)


def test_nothing_changed_nothing_done(built):
    assert "Nothing to be done for 'artifact'" in make("-n", "artifact", *built).stdout, "out of date: run make test"


@pytest.mark.parametrize(
    ("changed", "anew"),
    [
        *((["-W", f"notebooks/{name}"], [name]) for name in NOTEBOOKS),
        (["-W", "kernels/jit.py"], NOTEBOOKS),
        (["-W", "artifact/paths.py"], NOTEBOOKS),
        (["-W", "book/glossary.md"], []),
        (["SEED=7"], NOTEBOOKS),
    ],
)
def test_what_changed_is_executed_anew_and_the_book_is_built_once(built, changed, anew):
    result = make("-n", "artifact", *built, *changed)
    assert executed(result) == anew
    assert result.stdout.count("artifact.build book") == 1


def test_records_that_changed(built, tmp_path):
    """What lies in a folder that a user names counts, even where the folder's name does not change."""

    def mark() -> str:
        return re.search(r"parameters/(\d+)", make("-n", "artifact", *built, f"RECORDS={tmp_path}").stdout)[1]

    before = mark(), mark()
    (tmp_path / "wide.csv").write_text("another record")
    assert before[0] == before[1] != mark()


@pytest.mark.parametrize("variable", ["GPU=NVIDIA H200", "RECORDS=my records", "GPU=it's", "SEED=$(nothing)"])
def test_values_with_spaces_and_quotes_remove_nothing(variable):
    removed = re.findall(r"rm -rf ([^&\n]*)", make("-n", "artifact", variable, "BUILD=build/of_a_test").stdout)
    assert removed[0].split() == ["build/of_a_test/parameters"]
    assert all(name.startswith("build/of_a_test/") for name in removed)


@pytest.mark.parametrize(
    "variable,says",
    [
        *((given, "without a space in its name") for given in ("BUILD=a folder", "BUILD=", "WHEELHOUSE=my wheels")),
        *((f"BUILD={name}", "BUILD is the folder of the sources") for name in (".", "./", "notebooks/..")),
        # What a shell would run.
        *(
            (f"{given}={name}", "has the characters")
            for given in ("BUILD", "WHEELHOUSE")
            for name in ("a$$(id)", "a;id", "a`id`", 'a"b', "a%b", "~/x", "a&b", "a:b", "a'b")
        ),
    ],
)
def test_a_folder_that_make_cannot_take_is_one_sentence(variable, says):
    result = make("-n", "artifact", variable)
    assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1 and says in result.stderr


def test_a_folder_may_have_letters_of_any_language():
    assert make("-n", "help", "BUILD=/tmp/größe/α_1+2=3,x@y").returncode == 0


@pytest.mark.parametrize("target", ["claims", "compare", "wheelhouse", "notebooks"])
def test_no_value_is_run_by_the_shell(tmp_path, target):
    """They reach the program as one argument each; a stand-in for Python writes its arguments down."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nfor x in "$@"; do printf "%s\\n" "$x"; done >> {tmp_path}/given\n')
    python.chmod(0o755)
    harm = f"""x'; touch {tmp_path}/run; $$(touch {tmp_path}/run) `touch {tmp_path}/run` " """
    names = "GPU RECORDS FORMAT FRESH SHIPPED NODE_PYTHON NODE_GLIBC NODE_HAS MODE PRESET SEED".split()
    make(target, f"PY={python}", "ENV=", f"BUILD={tmp_path}/build", *[f"{name}={harm}{name}" for name in names])
    seen = (tmp_path / "given").read_text()
    value = harm.replace("$$", "$")
    mine = {
        "claims": ("GPU", "RECORDS", "FORMAT"),
        "compare": ("FRESH", "SHIPPED"),
        "wheelhouse": ("NODE_PYTHON", "NODE_GLIBC", "NODE_HAS"),
        "notebooks": ("MODE", "GPU", "PRESET", "SEED", "RECORDS"),
    }[target]
    assert all(f"\n{value}{name}\n" in seen for name in mine), seen
    assert not (tmp_path / "run").exists()


def test_a_folder_of_the_user_s_stays_as_it_was(tmp_path):
    for name in ("html", "parameters"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("years of work")
    result = make("book", f"BUILD={tmp_path}", f"PY={sys.executable}", "ENV=", "MODE=recorded")
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.returncode == 2 and "not empty (html)" in line
    assert len(list(tmp_path.rglob("mine.txt"))) == 2 and len(list(tmp_path.iterdir())) == 2


def test_clean_keeps_what_took_hours(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    built = ("build/records/gpu", "build/choices", "build/notebooks", "build/.book-left", "build/a space")
    for name in ("kernels", "artifact", "book", *built):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "build/records/gpu/wide.csv").touch()
    result = make("clean", cwd=tmp_path)
    assert result.returncode == 0 and "kept: choices records in build" in result.stdout
    left = {str(path.relative_to(tmp_path / "build")) for path in (tmp_path / "build").rglob("*")}
    assert left == {"choices", "records", "records/gpu", "records/gpu/wide.csv"}
    assert make("clean-records", "clean", cwd=tmp_path).returncode == 0 and not (tmp_path / "build").exists()


@pytest.mark.skipif(device.find() is not None, reason="there is a GPU here")
def test_measure_without_a_gpu(tmp_path):
    result = make("measure", f"BUILD={tmp_path}", f"PY={sys.executable}", "ENV=")
    assert result.returncode != 0 and "Traceback" not in result.stderr
    assert re.findall("^error: .*GPU", result.stderr, re.MULTILINE) and result.stderr.count("\nerror: ") <= 1
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".ipynb", ".csv")]


def test_old_python_is_refused(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo Python 3.8.1; exit; fi\nexec false\n')
    old.chmod(0o755)
    result = make("-B", "environment", f"PYTHON={old}", f"VENV={tmp_path}/venv")
    assert result.returncode != 0 and not (tmp_path / "venv").exists()
