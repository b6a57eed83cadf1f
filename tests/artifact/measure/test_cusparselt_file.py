"""Which file of cuSPARSELt is measured: files in its place, made here, that say nothing but their version."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from contenders import refused

from artifact.baselines import cpu
from artifact.measure import device

ROOT = Path(__file__).parents[3]
SONAME = "libcusparseLt.so.0"
SOURCE = """
int cusparseLtGetProperty(int part, int* value)
{
    static const int version[3] = {%s};
    *value = version[part];
    return 0;
}
"""
#: Stands for nvmath: calls whatever the loader has by that name.
NVMATH = f"""
import ctypes

class cusparseLt:
    @staticmethod
    def get_property(part):
        value = ctypes.c_int()
        assert ctypes.CDLL({SONAME!r}).cusparseLtGetProperty(part, ctypes.byref(value)) == 0
        return value.value
"""
compiler = cpu.compiler()
pytestmark = pytest.mark.skipif(
    compiler is None, reason=f"none of {', '.join(cpu.COMPILERS)} is here to make a library with"
)


@pytest.fixture
def nvmath(tmp_path):
    """A folder for PYTHONPATH, with an `nvmath` that has nothing but the library's version."""
    (tmp_path / "python/nvmath/bindings").mkdir(parents=True)
    (tmp_path / "python/nvmath/__init__.py").touch()
    (tmp_path / "python/nvmath/bindings/__init__.py").write_text(NVMATH)
    return tmp_path / "python"


def library(made: Path, source: str) -> Path:
    made.parent.mkdir()
    made.with_suffix(".c").write_text(source)
    command = [*compiler, "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", "-o", made, made.with_suffix(".c")]
    subprocess.run(command, check=True)
    return made


@pytest.fixture
def versions(tmp_path):
    """Files of 0.8.0 and of 0.10.0."""
    return [library(tmp_path / v / SONAME, SOURCE % v.replace(".", ", ")) for v in ("0.8.0", "0.10.0")]


#: What a process of its own says: the version, or why not; the file that it is given is loaded first.
ASK = """
import ctypes, sys
first = sys.argv[1:] and ctypes.CDLL(sys.argv[1])
from artifact.measure import device
try:
    print(device._cusparselt_version())
except ValueError as error:
    print(error)
"""


def ask(nvmath: Path, chosen: object, found: Path, *first: Path) -> str:
    """What it says with a file chosen and another where the loader looks."""
    where = {"PYTHONPATH": f"{nvmath}{os.pathsep}{ROOT}", "LD_LIBRARY_PATH": str(found.parent)}
    env = os.environ | where | {device.CUSPARSELT: str(chosen)}
    command = [sys.executable, "-c", ASK, *map(str, first)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


def test_the_chosen_file_answers_and_not_the_one_that_is_found(nvmath, versions):
    old, new = versions
    assert ask(nvmath, "", old) == "0.8.0"
    assert ask(nvmath, new, old) == "0.10.0"
    said = ask(nvmath, new, new, old)
    assert said.startswith(f"{device.CUSPARSELT} names cuSPARSELt 0.10.0, but version 0.8.0 was loaded")
    assert said.endswith("start Python with LD_PRELOAD set to the same file")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "must name a file .*none.so"),
        ("int nothing(void) { return 0; }", "and does not: .*cusparseLtGetProperty"),
        ("int cusparseLtGetProperty(int part, int* value) { return 7; }", "its status is 7, not 0"),
    ],
)
def test_a_file_that_is_no_such_library_is_refused_and_not_passed_over(monkeypatch, tmp_path, source, says):
    made = library(tmp_path / "other" / SONAME, source) if source else tmp_path / "none.so"
    monkeypatch.setenv(device.CUSPARSELT, str(made))
    for call in (device.cusparselt, device._cusparselt_version):
        refused(f"{device.CUSPARSELT} .*{says}", call)
