"""docs/architecture.md draws the layers that `make lint` holds."""

import re
import tomllib

from artifact.paths import ROOT

TABLE = re.compile(r"^\| \w+ \| (`.*?`) \|", re.MULTILINE)


def test_the_layers_are_those_that_are_held():
    """Every module and package of the harness has one, as `exhaustive` asks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layered, systems, library = project["tool"]["importlinter"]["contracts"]
    drawn = TABLE.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    names = [re.findall(r"`(\w+)`", cells) for cells in drawn]
    assert names == [re.split(r" [|:] ", layer) for layer in layered["layers"]]
    assert layered["exhaustive"] and systems["modules"] == ["artifact.systems.*"]
    assert (library["source_modules"], library["forbidden_modules"]) == (["kernels"], ["artifact"])
    exceptions = {"ignore_imports", "exhaustive_ignores", "allow_indirect_imports"}
    assert not any(contract.keys() & exceptions for contract in (layered, systems, library))
