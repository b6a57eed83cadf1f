"""The library: its wheel holds the kernels and nothing else, and works where only what it declares is installed.

The wheel is built and installed without an index. The environment that it is installed into is empty but for links
to the files of what pyproject.toml declares, and of what that requires in turn.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kernels
from artifact.paths import ROOT
from kernels import jit
from kernels.tuning import __main__ as tuning

NAME = jit.INSTALLED
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGET = "sm_90a"  #: what every room compiles for


def run(*command, cwd: Path, **environment: str) -> str:
    """What a command prints, with few variables of the environment; it must succeed."""
    few = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=few | {"HOME": str(cwd)} | environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy of the tree, with what an earlier build of another tree left in it."""
    folder = tmp_path_factory.mktemp("package")
    tree = folder / "tree"
    for name in ("kernels", "artifact/drawing"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", PROJECT["readme"], *PROJECT["license-files"]):
        shutil.copy(ROOT / name, tree)
    stale = tree / "build" / "wheel" / "lib" / NAME / "no_longer_there.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    backend = importlib.metadata.distribution("setuptools").locate_file("")
    options = ("--no-build-isolation", "--wheel-dir", folder)
    pip("wheel", *options, tree, cwd=folder, PYTHONPATH=str(backend))
    (built,) = folder.glob("*.whl")
    return built


def pip(*arguments, cwd: Path, **environment: str) -> None:
    """pip of this Python without an index, and without what a user configured."""
    run(
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        *arguments,
        "--no-index",
        "--no-deps",
        "--quiet",
        cwd=cwd,
        PIP_CONFIG_FILE=os.devnull,
        **environment,
    )


@pytest.fixture(scope="module")
def installed(wheel) -> Path:
    """The Python of an environment that has the wheel and what it requires."""
    folder = wheel.parent / "environment"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    for distribution in required(PROJECT["dependencies"]):
        link(distribution, site)
    pip("--python", python, "install", wheel, cwd=wheel.parent)
    return python


def required(lines: list[str]) -> list[importlib.metadata.Distribution]:
    """The distributions installed here that these requirements lead to."""
    found, todo = {}, list(lines)
    while todo:
        need = Requirement(todo.pop())
        name = canonicalize_name(need.name)
        if name not in found and (not need.marker or need.marker.evaluate({"extra": ""})):
            found[name] = importlib.metadata.distribution(name)
            todo += found[name].requires or ()
    return list(found.values())


def link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Links in `site` to every file of an installed distribution, but for its commands."""
    for file in distribution.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).symlink_to(Path(distribution.locate_file(file)).resolve())


# ---------------------------------------------------------------- what the wheel holds


def test_an_sdist_has_no_tests_which_need_a_checkout(tmp_path):
    for name in ("kernels", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    files = ("pyproject.toml", "setup.py", "MANIFEST.in", PROJECT["readme"])
    for name in (*files, *PROJECT["license-files"]):
        shutil.copy(ROOT / name, tmp_path)
    code = "from setuptools import build_meta; print(build_meta.build_sdist('.'))"
    name = run(sys.executable, "-c", code, cwd=tmp_path).split()[-1]
    with tarfile.open(tmp_path / name) as archive:
        found = {member.split("/")[1] for member in archive.getnames() if "/" in member}
    assert "kernels" in found and "tests" not in found


def test_the_wheel_holds_the_kernels_and_nothing_else(wheel):
    files = {
        f"{NAME}/{path.relative_to(jit.ROOT).as_posix()}"
        for path in jit.ROOT.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in files} >= {".cu", ".cuh", ".csv", ".md", ".py", ".typed"}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == files


def test_the_wheel_says_its_version_and_requires_four_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == kernels.__version__
    needs = [Requirement(line) for line in metadata.get_all("Requires-Dist")]
    always = {need.name for need in needs if not need.marker}
    assert always == {"cuda-bindings", "cuda-core", "numpy", "nvidia-cuda-nvrtc"}
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited[1] == kernels.__version__


# ---------------------------------------------------------------- what it does elsewhere


def python(installed: Path, code: str, folder: Path, **environment: str) -> str:
    """What code prints that the environment's Python runs in another folder, and without a GPU."""
    (folder / "code.py").write_text(code)
    return run(installed, folder / "code.py", cwd=folder, CUDA_VISIBLE_DEVICES="", **environment)


def test_importing_it_needs_nothing_else(installed, tmp_path):
    every = sorted(
        ".".join((NAME, *path.relative_to(jit.ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for path in jit.ROOT.rglob("*.py")
    )
    code = f"""
import importlib, importlib.util, sys
for name in {every}:
    importlib.import_module(name)
import {NAME} as trial
print(trial.__file__, trial.__version__, *trial.rooms())
foreign = ("kernels", "artifact", "cupy", "torch", "scipy", "pandas")
print(*(name for name in foreign if importlib.util.find_spec(name) or name in sys.modules))
"""
    first, foreign = python(installed, code, tmp_path).split("\n")[:2]
    file, version, *rooms = first.split()
    assert Path(file).is_relative_to(installed.parents[1]) and version == kernels.__version__
    assert rooms == list(kernels.rooms()) and len(rooms) >= 5
    assert foreign == "", "the environment is not empty"


def test_a_kernel_of_each_room_compiles_and_is_kept_in_the_users_own_cache(installed, tmp_path):
    code = f"""
import {NAME} as trial
from {NAME} import jit
for name, room in trial.rooms().items():
    kernel = next(k for k in room.VARIANTS.values() if k.entries and {TARGET!r} in k.targets)
    cubin = jit.compile_cubin(kernel.source, kernel.entries[0], {TARGET!r})
    assert cubin.code[:4] == b"\\x7fELF"
    print(name, kernel.source)
"""
    caches = tmp_path / "caches"
    lines = python(installed, code, tmp_path, XDG_CACHE_HOME=str(caches)).splitlines()
    compiled = dict(line.split() for line in lines)
    assert compiled.keys() == kernels.rooms().keys()
    assert all(Path(path).is_relative_to(installed.parents[1]) for path in compiled.values())
    kept = list((caches / NAME / "cubin").glob("*.cubin"))
    assert len(kept) == len(compiled)
    site = Path(next(iter(compiled.values()))).parents[1]
    assert not [path for path in site.rglob("*") if path.suffix == ".cubin"]


def test_the_shipped_choices_are_there_and_as_current_as_in_the_checkout(installed, tmp_path, capsys):
    tuning.main([])
    here = capsys.readouterr().out
    assert re.search(r": [1-9]\d* of [1-9]\d* choices", here)
    assert run(installed, "-m", f"{NAME}.tuning", cwd=tmp_path) == here


def test_without_a_gpu_a_call_says_so_in_one_sentence(installed, tmp_path):
    code = f"""
import {NAME} as trial
problem = trial.rooms()["casper_sparse"].problem(m=64, n=64, k=64, density=0.1)
assert problem.host().a.nnz == problem.nnz
for call in (lambda: trial.bind("any_n", problem), problem.device):
    try:
        call()
    except trial.NoGpu as error:
        print(error)
"""
    no_gpu, no_cupy = python(installed, code, tmp_path).splitlines()
    assert no_gpu.startswith("GPU 0 cannot be used (") and "NVIDIA GPU with its driver" in no_gpu
    assert no_cupy.startswith("operands on the GPU are CuPy arrays") and "cupy-cuda13x" in no_cupy


@pytest.mark.gpu
def test_the_installed_package_multiplies(installed, tmp_path):
    """In this environment, which has CuPy; only the package itself is the installed one."""
    (site,) = installed.parents[1].glob("lib/python*/site-packages")
    code = f"""
import sys
sys.path.append({str(site)!r})
import numpy as np
import {NAME} as trial
from {NAME} import formats
problem = trial.rooms()["casper_sparse"].problem(m=256, n=128, k=192, density=0.1)
bound = trial.bind("any_n", problem)
device = trial.open_device()
stream = device.create_stream()
device.sync()
bound.launch(stream)
stream.sync()
host = problem.host()
expected = formats.to_dense(host.a).astype(np.float64) @ host.b
found = bound.result().get()
import cupy
import scipy.sparse as sp
again = trial.spmm(formats.csr.to_scipy(host.a), cupy.asarray(host.b)).get()
assert np.abs(again - expected).max() < 1e-5 * np.abs(expected).max()
print(trial.__file__, float(np.abs(found - expected).max() / np.abs(expected).max()))
"""
    (tmp_path / "code.py").write_text(code)
    file, error = run(sys.executable, tmp_path / "code.py", cwd=tmp_path, **os.environ).split()
    assert Path(file).is_relative_to(site) and float(error) < 1e-5
