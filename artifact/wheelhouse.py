"""Wheels for a GPU node without internet: `python -m artifact.wheelhouse FOLDER --python 3.12 --has FILE`.

Starting from what pyproject.toml declares (its dependencies, and of its extras artifact, gpu and test, without the
book), it follows the requirements of the wheels that it fetches. A package that the node has, at a version that
every requirement met on the way allows, is left out, and so is what only that package needs. Everything fetched has
the version and one of the hashes of requirements/gpu.lock. The folder also receives

    requirements.txt   the fetched packages with their hashes, for `pip install --require-hashes`
    left-out.txt       what the node must have itself; absent when nothing was left out
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from artifact import command
from artifact.paths import ROOT
from kernels.contract import require

#: The extra without which nothing is measured.
HARNESS = "artifact"
REQUIREMENTS, LEFT_OUT = "requirements.txt", "left-out.txt"


def fetch(folder: Path, python: str, glibc: str, extras: list[str], has: Path | None) -> None:
    """Fill `folder` with wheels for CPython `python` on x86-64 Linux with `glibc`, aside and then renamed.

    `has` is what the node's `python3 -m pip list --format=freeze` printed. Raises ValueError for a bad
    version, extra or freeze file, for a requirement that the lock lacks, and when pip cannot fetch.
    """
    environment = _environment(python)
    pins = _pins((ROOT / "requirements" / "gpu.lock").read_text(encoding="utf-8"), environment)
    on_node = _freeze(has) if has else {}
    declared = _declared(extras)
    for name in sorted({path.name for path in folder.glob("*") if path.suffix != ".whl"} - {REQUIREMENTS, LEFT_OUT}):
        raise ValueError(f"{folder} holds {name}, so it is no wheelhouse that may be replaced")
    folder.parent.mkdir(parents=True, exist_ok=True)
    wheels: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as beside:
        aside = Path(beside, folder.name)
        aside.mkdir()
        while missing := _walk(declared, wheels, on_node, environment)[0]:
            for name in missing - pins.keys():
                raise ValueError(f"requirements/gpu.lock lacks {name}, which is needed: run `make lock`")
            wheels |= _download([pins[name] for name in sorted(missing)], aside, python, glibc)
        left_out = [f"{name}=={on_node[name]}\n" for name in sorted(_walk(declared, wheels, on_node, environment)[1])]
        (aside / REQUIREMENTS).write_text("\n".join(pins[name] for name in sorted(wheels)), encoding="utf-8")
        if left_out:
            (aside / LEFT_OUT).write_text("".join(left_out), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(f"{folder}: {len(wheels)} wheels, {size:.1f} MB; left to the node: {len(left_out)} packages")


def _walk(
    declared: list[Requirement],
    wheels: dict[str, Path],
    on_node: dict[str, Version],
    environment: dict[str, Any],
) -> tuple[set[str], set[str]]:
    """Follow the requirements as far as `wheels` tell them: names still to fetch, names left to the node."""
    missing, left_out, seen, todo = set[str](), set[str](), set[tuple[str, str]](), list(declared)
    while todo:
        need = todo.pop()
        name = canonicalize_name(need.name)
        if name in wheels:
            parts = {(name, extra) for extra in ("", *need.extras)} - seen
            seen |= parts
            todo += [new for _, extra in parts for new in _requirements(wheels[name], environment | {"extra": extra})]
        else:
            has = name in on_node and need.specifier.contains(on_node[name], prereleases=True)
            (left_out if has else missing).add(name)
    return missing, left_out


def _declared(extras: list[str]) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = project["optional-dependencies"]
    for extra in set(extras) - known.keys():
        raise ValueError(f"pyproject.toml declares no extra {extra!r}, only {', '.join(known)}")
    return [
        Requirement(line)
        for lines in (project["dependencies"], *(known[extra] for extra in [HARNESS, *extras]))
        for line in lines
    ]


def _environment(python: str) -> dict[str, Any]:
    """Return the values that requirement markers are judged by on the node."""
    require(bool(re.fullmatch(r"3\.\d+", python)), f"the node's Python must be given like 3.12, not {python!r}")
    return {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.99",
        "implementation_name": "cpython",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
    }


def _pins(lock: str, environment: dict[str, Any]) -> dict[str, str]:
    """Name -> its lines in the lock, hashes included, of each package that applies to the node."""
    found = re.findall(r"^([a-z0-9].*?)((?: \\\n    --hash=\S+)+)", lock, re.MULTILINE)
    needs = [(Requirement(line), hashes) for line, hashes in found]
    # Without its marker: pip would judge that by the Python that it runs on here.
    return {
        canonicalize_name(need.name): f"{need.name}{need.specifier}{hashes}"
        for need, hashes in needs
        if need.marker is None or need.marker.evaluate(environment)
    }


def _freeze(path: Path) -> dict[str, Version]:
    require(path.is_file(), f"{path} does not exist: write `pip list --format=freeze` of the node into it")
    found: dict[str, Version] = {}
    for number, line in enumerate(map(str.strip, path.read_text(encoding="utf-8").splitlines()), 1):
        if line and not line.startswith(("#", "-e ")) and " @ " not in line:
            name, _, version = line.partition("==")
            try:
                found[canonicalize_name(name)] = Version(version)
            except InvalidVersion:
                raise ValueError(f"{path}, line {number}: expected name==version, found {line!r}") from None
    return found


def _download(pins: list[str], folder: Path, python: str, glibc: str) -> dict[str, Path]:
    """Fetch exactly these pins into `folder`; returns the wheel of each name."""
    newest = re.fullmatch(r"2\.(\d+)", glibc)
    if not newest:
        raise ValueError(f"the node's glibc must be given like 2.39, not {glibc!r}")
    # Wheels for an older glibc run on a newer one; pip wants each tag spelled out. manylinux2014 is 2_17.
    platforms = (*(f"manylinux_2_{minor}_x86_64" for minor in range(int(newest[1]), 16, -1)), "manylinux2014_x86_64")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        lock = Path(name) / REQUIREMENTS
        lock.write_text("\n".join(pins), encoding="utf-8")
        call = [
            *(sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"),
            *("--require-hashes", "--only-binary", ":all:", "--implementation", "cp", "--python-version", python),
            *("--dest", name, "--requirement", str(lock)),
            *(f"--platform={platform}" for platform in platforms),
        ]
        require(
            not subprocess.run(call).returncode,
            f"pip could not fetch the wheels for Python {python}: see the lines above",
        )
        return {
            canonicalize_name(wheel.name.split("-")[0]): wheel.rename(folder / wheel.name)
            for wheel in Path(name).glob("*.whl")
        }


def _requirements(wheel: Path, environment: dict[str, Any]) -> list[Requirement]:
    (found,) = distributions(path=[str(wheel)])
    needs = map(Requirement, found.requires or ())
    return [need for need in needs if need.marker is None or need.marker.evaluate(environment)]


@command.program(
    "artifact.wheelhouse",
    __doc__,
    command.option("folder", type=Path),
    command.option("--python", default="3.12", help="the node's Python, like 3.12"),
    command.option("--glibc", default="2.39", help="the node's C library, like 2.39"),
    command.option("--extras", nargs="*", default=["gpu", "test"], help=f"of pyproject.toml, beside {HARNESS}"),
    command.option("--has", type=Path, help="what `pip list --format=freeze` printed there"),
)
def main(o: command.Options) -> None:
    """Fill a folder with wheels."""
    command.as_interrupt()
    fetch(o.folder, o.python, o.glibc, o.extras, o.has)


if __name__ == "__main__":
    raise SystemExit(main())
