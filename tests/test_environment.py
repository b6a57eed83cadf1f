"""pyproject.toml declares, the locks pin, environment.yml installs: the three must say the same."""

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
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
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
    extras = [PROJECT["optional-dependencies"][extra] for extra in EXTRAS[lock]]
    return [Requirement(line) for line in itertools.chain(PROJECT["dependencies"], *extras)]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_lock_satisfies_what_the_project_declares(lock, python):
    pinned = pins(lock, python)
    for need in declared(lock):
        assert canonicalize_name(need.name) in pinned, f"{lock}.lock lacks {need.name}: make lock"
        version = pinned[canonicalize_name(need.name)]
        assert need.specifier.contains(version), f"{lock}.lock: {version} is outside {need}"


@pytest.mark.parametrize("python", PYTHONS)
def test_gpu_lock_is_the_base_lock_and_more_and_optional_extras_are_in_none(python):
    base, gpu = pins("base", python), pins("gpu", python)
    extra = {canonicalize_name(Requirement(r).name) for r in PROJECT["optional-dependencies"]["gpu"]}
    assert base.items() <= gpu.items() and not extra & base.keys() and extra <= gpu.keys()
    assert {*EXTRAS["gpu"], *OPTIONAL} == set(PROJECT["optional-dependencies"])
    assert not {canonicalize_name(need.name) for need in optional()} & gpu.keys()


def optional() -> list[Requirement]:
    return [Requirement(line) for extra in OPTIONAL for line in PROJECT["optional-dependencies"][extra]]


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


def test_one_range_of_pythons_stands_everywhere():
    past = f"3.{int(PYTHONS[-1][2:]) + 1}"
    within = SpecifierSet(f">={PYTHONS[0]},<{past}")
    (conda,) = [d for d in CONDA["dependencies"] if str(d).startswith("python")]
    assert SpecifierSet(PROJECT["requires-python"]) == within == Requirement(conda).specifier
    ends = [tuple(map(int, version.split("."))) for version in (PYTHONS[0], past)]
    makefile = (ROOT / "Makefile").read_text()
    assert f"{ends[0]} <= v < {ends[1]} or" in makefile
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]} is needed" in makefile
    assert f"${{*:-{' '.join(PYTHONS)}}}" in (ROOT / ".ci" / "pythons").read_text()


def test_conda_environment_is_the_gpu_lock():
    """Whatever conda installs itself is no Python package of the lock, so it cannot disagree with it."""
    (pip,) = [d["pip"] for d in CONDA["dependencies"] if isinstance(d, dict)]
    assert CONDA["name"] == PROJECT["name"] and pip == ["--require-hashes", "--requirement requirements/gpu.lock"]
    assert not {Requirement(d).name for d in CONDA["dependencies"] if isinstance(d, str)} & pins("gpu", "3.12").keys()


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not the environment made by make")
def test_installed_is_what_is_locked():
    pinned = pins("base", f"3.{sys.version_info.minor}")
    assert {name: Version(importlib.metadata.version(name)) for name in pinned} == pinned


parsed = functools.cache(lambda path: ast.parse(path.read_text()))


@functools.cache
def imports(path: Path, top: bool = False) -> set[str]:
    """The packages that a file imports by an absolute name, at its top level or anywhere."""
    nodes = parsed(path).body if top else list(ast.walk(parsed(path)))
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0}
    return {name.split(".")[0] for name in found}


FILES = [path for folder in ("kernels", "artifact", "tests") for path in (ROOT / folder).rglob("*.py")]


def test_imports_are_declared_and_what_needs_a_gpu_is_imported_where_it_is_used():
    """But for a script, which is run by its name and which no module imports as it starts."""
    known = {canonicalize_name(need.name) for need in (*declared("gpu"), *optional())}
    owners = {name: {*map(canonicalize_name, of)} for name, of in importlib.metadata.packages_distributions().items()}
    shared = {path.stem for path in FILES if path.is_relative_to(ROOT / "tests")}  # what tests put on their path
    everything = "\n".join(line for path in FILES for line in re.findall("^from .*", path.read_text(), re.MULTILINE))
    for path in FILES:
        ours = {"kernels", "artifact", "tests", *shared, *(p.stem for p in path.parent.glob("*.py"))}
        for module in imports(path) - sys.stdlib_module_names - ours:
            assert {*owners.get(module, ()), GPU_MODULES.get(module)} & known, f"{path}: {module} is not declared"
        package = re.escape(".".join(path.relative_to(ROOT).parent.parts))
        script = '__name__ == "__main__"' in path.read_text()
        if not script or re.search(rf"^from {package}(\.| import .*\b){path.stem}\b", everything, re.MULTILINE):
            assert not imports(path, top=True) & (GPU_MODULES.keys() | {"pynvml"}), f"{path} imports it at the top"


def test_a_program_runs_where_python_runs_its_module_and_behind_all_that_it_needs():
    programs = [path for path in FILES if "\n@command.program(" in path.read_text()]
    for path in programs:
        said = ast.unparse(parsed(path).body[-1])
        assert said.startswith("if __name__ == '__main__':") and re.search(
            r"raise SystemExit\((\w+\.)?main\(\)\)$", said
        )
    assert programs


def test_programs_are_heard_in_one_encoding_whatever_the_locale():
    """Texts that are opened, ruff asks for theirs."""
    for path in (path for path in FILES if not path.is_relative_to(ROOT / "tests")):
        assert not re.search(r"\b(text|universal_newlines)=True", path.read_text()), path
