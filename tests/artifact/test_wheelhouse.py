"""Which wheels travel to a node: what it lacks, what is too old there, and what those need in turn."""

import re
import zipfile
from pathlib import Path

import pytest
from contenders import refused
from packaging.requirements import Requirement

from artifact import wheelhouse

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
    (tmp_path / "requirements").mkdir()
    lines = [f"{name}==2 ; sys_platform == 'linux' \\\n    {HASH}\n    # via x\n" for name in PACKAGES]
    lines += [f"middle==1 ; python_full_version < '3.12' \\\n    {HASH}\n"]
    (tmp_path / "requirements" / "gpu.lock").write_text("".join(lines))
    calls: list[list[str]] = []

    def download(pins, folder: Path, python: str, glibc: str) -> dict[str, Path]:
        names = [pin.split("==")[0] for pin in pins]
        calls.append(names)
        for name in names:
            needs = "".join(f"Requires-Dist: {need}\n" for need in PACKAGES[name])
            with zipfile.ZipFile(folder / f"{name}-2-py3-none-any.whl", "w") as wheel:
                wheel.writestr(f"{name}-2.dist-info/METADATA", f"Name: {name}\nVersion: 2\n{needs}\n")
        return {name: folder / f"{name}-2-py3-none-any.whl" for name in names}

    monkeypatch.setattr(wheelhouse, "ROOT", tmp_path)
    monkeypatch.setattr(wheelhouse, "_download", download)
    monkeypatch.setattr(wheelhouse, "_declared", lambda extras: [Requirement("front")])
    return calls


def fetch(folder: Path, freeze: str | None = None, python: str = "3.12") -> tuple[set[str], str]:
    has = None
    if freeze is not None:
        has = folder.parent / "node.txt"
        has.write_text(freeze)
    wheelhouse.fetch(folder, python, "2.39", [], has)
    left_out = folder / "left-out.txt"
    wheels = {path.name.split("-")[0] for path in folder.glob("*.whl")}
    locked = (folder / "requirements.txt").read_text()
    assert set(re.findall(r"^(\w+)==2 \\$", locked, re.MULTILINE)) == wheels
    assert locked.count("--hash=") == 2 * len(wheels)
    return wheels, left_out.read_text() if left_out.exists() else ""


def test_everything_for_a_bare_node(tmp_path, index):
    assert fetch(tmp_path / "w") == ({"front", "middle", "back", "extras", "wing"}, "")
    assert HASH in (tmp_path / "w" / "requirements.txt").read_text()


def test_what_the_node_has_stays_there(tmp_path, index):
    # What only a package of the node needs (back) is the node's business too.
    wheels, left_out = fetch(tmp_path / "w", "middle==3.1\ntorch==2.11+cu130\n-e here\na @ file:///x\n")
    assert wheels == {"front", "extras", "wing"}
    assert left_out == "middle==3.1\n"


def test_what_is_too_old_on_the_node_travels(tmp_path, index):
    wheels, left_out = fetch(tmp_path / "w", "Middle==1.9\nback==0.1\n")
    assert wheels == {"front", "middle", "extras", "wing"}
    assert left_out == "back==0.1\n"


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
        pins = wheelhouse._pins(lock, wheelhouse._environment(python))
        assert pins["numpy"] == f"numpy=={version} \\\n    {HASH}"


def test_a_folder_that_is_no_wheelhouse_is_not_replaced(index, tmp_path):
    mine = tmp_path / "house"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years")
    refused(r"holds thesis\.tex, so it is no wheelhouse", fetch, mine)
    assert (mine / "thesis.tex").read_text() == "years"
