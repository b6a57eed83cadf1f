"""pyproject.toml declares, the locks pin, environment.yml installs: the three must say the same."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import itertools
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from artifact.paths import ROOT

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = {name: (ROOT / "requirements" / f"{name}.lock").read_text() for name in ("base", "gpu")}
EXTRAS = {
    "base": ("artifact", "book", "dev", "test"),
    "gpu": ("artifact", "book", "dev", "gpu", "test"),
}
#: What is in no lock, for who has it.
OPTIONAL = ("farm", "llm", "mpi", "torch")
#: Packages whose modules are only installed where there is a GPU, or where somebody wants them.
GPU_MODULES = {
    "cupy": "cupy-cuda13x",
    "cupyx": "cupy-cuda13x",
    "ml_dtypes": "ml-dtypes",
    "nvmath": "nvmath-python",
    "torch": "torch",
    "transformers": "transformers",
    "cloudpickle": "cloudpickle",
    "distributed": "distributed",
    "mpi4py": "mpi4py",
}


def pins(lock: str, python: str) -> dict[str, Version]:
    """The versions that pip installs from a lock under one Python on x86-64 Linux."""
    target = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}
    target |= {"python_version": python, "python_full_version": f"{python}.9"}
    target |= {"implementation_name": "cpython", "os_name": "posix"}
    environment = default_environment() | target
    found: dict[str, Version] = {}
    for line in re.findall(r"^([a-z0-9].*?)(?: \\)?$", LOCKS[lock], re.MULTILINE):
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate(environment):
            assert need.name not in found, f"{lock}.lock pins {need.name} twice for Python {python}"
            (pin,) = need.specifier
            assert pin.operator == "==", f"{lock}.lock does not pin {need.name}: {need.specifier}"
            found[canonicalize_name(need.name)] = Version(pin.version)
    return found


def declared(lock: str) -> list[Requirement]:
    lines = list(PROJECT["dependencies"])
    for extra in EXTRAS[lock]:
        lines += PROJECT["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_lock_satisfies_what_the_project_declares(lock, python):
    pinned = pins(lock, python)
    for need in declared(lock):
        assert canonicalize_name(need.name) in pinned, f"{lock}.lock lacks {need.name}: make lock"
        version = pinned[canonicalize_name(need.name)]
        assert need.specifier.contains(version), f"{lock}.lock: {version} is outside {need}"


@pytest.mark.parametrize("python", PYTHONS)
def test_gpu_lock_is_the_base_lock_and_more(python):
    base, gpu = pins("base", python), pins("gpu", python)
    assert base.items() <= gpu.items()
    extra = {canonicalize_name(Requirement(r).name) for r in PROJECT["optional-dependencies"]["gpu"]}
    assert not extra & base.keys(), "the base lock must do without GPU-only packages"
    assert extra <= gpu.keys()


def optional() -> list[Requirement]:
    return [Requirement(line) for extra in OPTIONAL for line in PROJECT["optional-dependencies"][extra]]


def test_every_extra_but_the_optional_ones_is_in_a_lock():
    assert {*EXTRAS["gpu"], *OPTIONAL} == set(PROJECT["optional-dependencies"])
    names = {canonicalize_name(need.name) for need in optional()}
    assert all(not names & pins(lock, python).keys() for lock in LOCKS for python in PYTHONS)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_hashes_and_no_index(lock):
    text = LOCKS[lock]
    assert not re.search(r"https?://|--index-url|--extra-index-url|--find-links|file:", text)
    for entry in re.split(r"\n(?=[a-z0-9])", text)[1:]:
        assert "--hash=sha256:" in entry, f"{lock}.lock has no hash for {entry.splitlines()[0]}"


def test_what_formats_before_a_commit_is_what_is_locked():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    asked = {Requirement(line) for hook in local["hooks"] for line in hook.get("additional_dependencies", [])}
    assert {need.name for need in asked} == {"clang-format", "import-linter", "ruff"}
    for lock, python in itertools.product(LOCKS, PYTHONS):
        pinned = pins(lock, python)
        assert all(str(need.specifier) == f"=={pinned[need.name]}" for need in asked)


@pytest.mark.parametrize("lock", LOCKS)
def test_the_compiler_is_that_of_the_records(lock):
    """Readers run the machine code that was measured, and shipped choices hold for them."""
    machines = sorted((ROOT / "artifact" / "recorded").glob("*/*/machine.json"))
    recorded = {json.loads(path.read_text())["packages"]["nvidia-cuda-nvrtc"] for path in machines}
    for python in PYTHONS:
        assert {str(pins(lock, python)["nvidia-cuda-nvrtc"])} == recorded


def test_requires_python():
    past = f"3.{int(PYTHONS[-1][2:]) + 1}"
    within = SpecifierSet(f">={PYTHONS[0]},<{past}")
    assert SpecifierSet(PROJECT["requires-python"]) == within
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (conda,) = [d for d in environment["dependencies"] if str(d).startswith("python")]
    assert Requirement(conda).specifier == within
    makefile = (ROOT / "Makefile").read_text()
    ends = [tuple(map(int, version.split("."))) for version in (PYTHONS[0], past)]
    assert f"{ends[0]} <= v < {ends[1]} or" in makefile
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]} is needed" in makefile
    assert f"${{*:-{' '.join(PYTHONS)}}}" in (ROOT / ".ci" / "pythons").read_text()


def test_conda_environment_is_the_gpu_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["name"] == PROJECT["name"]
    packages = [d for d in environment["dependencies"] if isinstance(d, str)]
    (pip,) = [d["pip"] for d in environment["dependencies"] if isinstance(d, dict)]
    assert pip == ["--require-hashes", "--requirement requirements/gpu.lock"]
    (python,) = [Requirement(p) for p in packages if Requirement(p).name == "python"]
    for version in PYTHONS:
        assert python.specifier.contains(f"{version}.1")
    assert not python.specifier.contains("3.10.9")
    assert not python.specifier.contains(f"3.{int(PYTHONS[-1][2:]) + 1}.0"), "beyond what is locked"
    # Whatever conda installs itself is no Python package of the lock, so it cannot disagree with it.
    assert not {Requirement(p).name for p in packages} & pins("gpu", "3.12").keys()


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not the environment made by make")
def test_installed_is_what_is_locked():
    pinned = pins("base", f"3.{sys.version_info.minor}")
    found = {name: Version(importlib.metadata.version(name)) for name in pinned}
    assert found == pinned


@functools.cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(module, at the top level of the file) for each absolute import in a file."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name.split(".")[0], node in tree.body) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.module.split(".")[0], node in tree.body))
    return found


FILES = [path for folder in ("kernels", "artifact", "tests") for path in (ROOT / folder).rglob("*.py")]


def test_imports_are_declared():
    known = {canonicalize_name(need.name) for need in (*declared("gpu"), *optional())}
    owners = importlib.metadata.packages_distributions()
    shared = {path.stem for path in FILES if path.is_relative_to(ROOT / "tests")}  # what tests put on their path
    for path in FILES:
        beside = {p.stem for p in path.parent.glob("*.py")} | shared
        for module, _ in imports(path):
            if module in sys.stdlib_module_names | {"kernels", "artifact", "tests"} | beside:
                continue
            packages = {canonicalize_name(name) for name in owners.get(module, [])}
            packages |= {GPU_MODULES[module]} if module in GPU_MODULES else set()
            where = path.relative_to(ROOT)
            assert packages & known, f"{where}: {module} is of no package in pyproject.toml"


def test_gpu_only_modules_are_imported_where_they_are_used():
    """But for a script, which is run by its name and which no module imports as it starts."""
    everything = "".join(path.read_text() for path in FILES)
    for path in FILES:
        package, name = ".".join(path.relative_to(ROOT).parent.parts), path.stem
        used = re.search(rf"^from {re.escape(package)}(\.| import .*\b){name}\b", everything, re.MULTILINE)
        if '__name__ == "__main__"' in path.read_text() and not used:
            continue
        early = {module for module, top in imports(path) if top}
        early &= GPU_MODULES.keys() | {"pynvml"}
        where = path.relative_to(ROOT)
        assert not early, f"{where}: {early} at the top level, so not to be imported without a GPU"


def test_layers_import_downwards_only():
    for path in (ROOT / "kernels").rglob("*.py"):
        modules = {module for module, _ in imports(path)}
        assert "artifact" not in modules, f"{path.relative_to(ROOT)} imports the harness"
        named = f"{path.relative_to(ROOT)} imports kernels by that name, which it has not where it is installed"
        assert "kernels" not in modules, f"{named}: import relatively"


@pytest.mark.parametrize("folder", ["kernels", "artifact"])
def test_texts_are_of_one_encoding_whatever_the_locale(folder):
    """Every call that opens a text, or hears a program, says which."""
    calls = {"read_text", "write_text", "open", "fdopen", "run", "Popen"}
    others = ("tarfile.open", "os.open")
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or ast.unparse(node.func).split(".")[-1] not in calls:
                continue
            said = ast.unparse(node)
            name, given = ast.unparse(node.func), {word.arg for word in node.keywords}
            modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            binary = any("b" in mode for mode in modes) and name.endswith("open")
            device = name.endswith(".open") and not (node.args or node.keywords)
            if name.startswith(("records.", *others)) or name == "write_text" or binary or device:
                continue
            if name.endswith(("run", "Popen")):
                assert not given & {"text", "universal_newlines"}, f"{path}: {said}"
            else:
                assert "encoding" in given, f"{path}: {said}"
