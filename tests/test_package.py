"""The library: its wheel holds the kernels and nothing else, and works where only what it declares is installed.

The wheel is built and installed without an index. The environment that it is installed into is empty but for links
to the files of what pyproject.toml declares, and of what that requires in turn.
"""

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

import kernels
from artifact.paths import ROOT
from kernels import jit
from kernels.autotune import __main__ as tuning

NAME = jit.INSTALLED
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGET = "sm_90a"  #: what every system compiles for
SOME = "tensor_core_24"  #: a system that ships choices


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


def make(kind: str, tree: Path, *folders: str) -> Path:
    """Build a "wheel" or an "sdist" in a copy of these folders of the tree, without an index and without pip."""
    for name in folders:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", PROJECT["readme"], *PROJECT["license-files"]):
        shutil.copy(ROOT / name, tree)
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}('.'))"
    return tree / run(sys.executable, "-c", code, cwd=tree).split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy of the tree, with what an earlier build of another tree left in it."""
    tree = tmp_path_factory.mktemp("package") / "tree"
    stale = tree / "build" / "wheel" / "lib" / NAME / "no_longer_there.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    return make("wheel", tree, "kernels", "artifact/drawing")


@pytest.fixture(scope="module")
def site(wheel) -> Path:
    """The packages of an environment: the wheel's, and links to those that it requires, directly or not."""
    environment, todo, known = wheel.parent.parent / "environment", list(PROJECT["dependencies"]), set()
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    while todo:
        need = Requirement(todo.pop())
        if need.name in known or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        known.add(need.name)
        distribution = importlib.metadata.distribution(need.name)
        todo += distribution.requires or ()
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:  # a command, and what Python makes
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).symlink_to(Path(distribution.locate_file(file)).resolve())
    return site


# ---------------------------------------------------------------- what the wheel holds


def test_an_sdist_has_no_tests_which_need_a_checkout(tmp_path):
    with tarfile.open(make("sdist", tmp_path, "kernels", "tests")) as archive:
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


# ---------------------------------------------------------------- what it does elsewhere


def python(site: Path, code: str, folder: Path, **environment: str) -> str:
    """What code prints in the Python that has these packages alone, in another folder, and without a GPU."""
    return run(site.parents[2] / "bin" / "python", "-c", code, cwd=folder, CUDA_VISIBLE_DEVICES="", **environment)


def test_importing_it_needs_nothing_else(site, tmp_path):
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
    first, foreign = python(site, code, tmp_path).split("\n")[:2]
    file, version, *systems = first.split()
    assert Path(file).is_relative_to(site) and version == kernels.__version__
    assert systems == list(kernels.systems()) and len(systems) >= 5
    assert foreign == "", "the environment is not empty"


def test_a_kernel_of_each_system_compiles_and_is_kept_in_the_users_own_cache(site, tmp_path):
    code = f"""
import {NAME} as trial
from {NAME} import jit
for name, system in trial.rooms().items():
    kernel = next(k for k in system.VARIANTS.values() if k.entries and {TARGET!r} in k.targets)
    cubin = jit.compile_cubin(kernel.source, kernel.entries[0], {TARGET!r})
    assert cubin.code[:4] == b"\\x7fELF"
    print(name, kernel.source)
"""
    caches = tmp_path / "caches"
    compiled = dict(line.split() for line in python(site, code, tmp_path, XDG_CACHE_HOME=str(caches)).splitlines())
    assert compiled.keys() == kernels.systems().keys()
    assert all(Path(path).is_relative_to(site) for path in compiled.values())
    assert len(list((caches / NAME / "cubin").glob("*.kernel"))) == len(compiled)
    assert not [path for path in site.rglob("*") if path.suffix == ".kernel"]


def test_the_shipped_choices_are_there_and_as_current_as_in_the_checkout(site, tmp_path, capsys, monkeypatch):
    """Those of one system: all of them take long."""
    monkeypatch.setattr(tuning, "systems", lambda every=tuning.systems: {SOME: every()[SOME]})
    tuning.main([])
    here = capsys.readouterr().out
    assert re.search(r": [1-9]\d* of [1-9]\d* choices", here)
    code = (
        f"from {NAME}.autotune import __main__ as t; one = t.systems()[{SOME!r}]; t.systems = lambda: {{{SOME!r}: one}}"
    )
    assert python(site, f"{code}; t.main([])", tmp_path) == here


def test_without_a_gpu_a_call_says_so_in_one_sentence(site, tmp_path):
    code = f"""
import {NAME} as trial
problem = trial.rooms()["casper_sparse"].problem(m=64, n=64, k=64, density=0.1)
assert problem.host().a.nnz == problem.nnz
for call in (lambda: trial.prepare("any_n", problem), problem.device):
    try:
        call()
    except trial.NoGpu as error:
        print(error)
"""
    no_gpu, no_cupy = python(site, code, tmp_path).splitlines()
    assert no_gpu.startswith("GPU 0 cannot be used (") and "NVIDIA GPU with its driver" in no_gpu
    assert no_cupy.startswith("operands on the GPU are CuPy arrays") and "cupy-cuda13x" in no_cupy


@pytest.mark.gpu
def test_the_installed_package_multiplies(site, tmp_path):
    """In this environment, which has CuPy; only the package itself is the installed one."""
    code = f"""
import sys
sys.path.append({str(site)!r})
import numpy as np
import {NAME} as trial
from {NAME} import formats
problem = trial.rooms()["casper_sparse"].problem(m=256, n=128, k=192, density=0.1)
bound = trial.prepare("any_n", problem)
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
