"""Which file of cuSPARSELt is measured: files in its place, made here, that say nothing but their version."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from artifact.baselines import cpu
from artifact.measure import device

ROOT = Path(__file__).parents[3]
SONAME = "libcusparseLt.so.0"
SOURCE = """
int cusparseLtGetProperty(int part, int* value)
{
    static const int version[3] = {%s};
    *value = version[part];
    return %d;
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
compiler = next(filter(None, map(shutil.which, cpu.COMPILERS)), None)
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


def library(folder: Path, version: str, status: int = 0) -> Path:
    folder.mkdir()
    source, made = folder / "library.c", folder / SONAME
    source.write_text(SOURCE % (version.replace(".", ", "), status))
    subprocess.run([compiler, "-shared", "-fPIC", f"-Wl,-soname,{SONAME}", "-o", made, source], check=True)
    return made


def ask(nvmath: Path, code: str, chosen: object = "", found: Path | None = None) -> str:
    """What a process of its own prints, with a file chosen and another where the loader looks."""
    where = {"PYTHONPATH": f"{nvmath}{os.pathsep}{ROOT}", device.CUSPARSELT: str(chosen)}
    if found is not None:
        where["LD_LIBRARY_PATH"] = str(found.parent)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | where,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.strip()


VERSION = "from artifact.measure import device; print(device._cusparselt_version())"


def test_the_chosen_file_answers_and_not_the_one_that_is_found(nvmath, tmp_path):
    old, new = library(tmp_path / "a", "0.8.0"), library(tmp_path / "b", "0.10.0")
    assert ask(nvmath, VERSION, found=old) == "0.8.0"
    assert ask(nvmath, VERSION, chosen=new, found=old) == "0.10.0"
    assert ask(nvmath, VERSION, chosen=old, found=new) == "0.8.0"


def test_a_library_that_was_there_before_is_said(nvmath, tmp_path):
    old, new = library(tmp_path / "a", "0.8.0"), library(tmp_path / "b", "0.10.0")
    said = ask(
        nvmath,
        f"""
        import ctypes
        first = ctypes.CDLL({str(old)!r})
        from artifact.measure import device
        try:
            device.cusparselt()
        except ValueError as error:
            print(error)
        """,
        chosen=new,
    )
    assert said.startswith(f"{device.CUSPARSELT} names cuSPARSELt 0.10.0, but version 0.8.0 was loaded")
    assert said.endswith("start Python with LD_PRELOAD set to the same file")


def test_a_file_that_is_no_library_is_refused_and_not_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv(device.CUSPARSELT, str(tmp_path / "none.so"))
    for call in (device.cusparselt, device._cusparselt_version):
        with pytest.raises(ValueError, match=f"{device.CUSPARSELT} must name a file .*none.so"):
            call()


def test_a_library_of_something_else_is_refused(monkeypatch, tmp_path):
    other = tmp_path / "other.c"
    other.write_text("int nothing(void) { return 0; }")
    made = tmp_path / "other.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, other], check=True)
    monkeypatch.setenv(device.CUSPARSELT, str(made))
    with pytest.raises(ValueError, match=r"and does not: .*cusparseLtGetProperty"):
        device.cusparselt()
