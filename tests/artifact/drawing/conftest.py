"""What the tests of drawing share: a folder for figures, and records to draw."""

import nbformat
import pytest
import synthetic
from drawn import folder  # noqa: F401
from IPython.core import display_functions

from artifact import paths
from artifact.book import figures
from artifact.drawing import outputs, summary
from artifact.measure import device

INFO = device.DeviceInfo("NVIDIA H200", "nvidia-h200", 2**37)


@pytest.fixture(scope="session")
def gpu_folder(tmp_path_factory):
    """Synthetic records of all sweeps and of the ceilings; tests only read them."""
    return synthetic.folder(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="session")
def two(gpu_folder, tmp_path_factory):
    """Name -> synthetic records of two GPUs, on one of which the published kernel is fast; tests only read them."""
    fast = {name: synthetic.experiment(name, 2.0, "NVIDIA X1") for name in synthetic.SHAPES}
    return {
        "NVIDIA H200": gpu_folder,
        "NVIDIA X1": synthetic.folder(tmp_path_factory.mktemp("other"), fast, "NVIDIA X1", "nvidia-x1"),
    }


@pytest.fixture
def race(monkeypatch):
    """What the synthetic records have, whose ladder ends earlier; the shipped ones race as they are."""
    one = summary.Race(
        *("casper_sparse", "CSR", ("wide", "square"), ("warp_per_row",), ("rows_per_warp",)),
        ceiling="fma",
        stated=("abstract-speedup",),
    )
    declared = summary.races

    def made(system, at):
        return declared(system, at) if paths.RECORDED in at.parents else [one] if system == one.room else []

    monkeypatch.setattr(summary, "races", made)
    return one


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """Where verdicts on made-up records are kept: in the build folder they would replace those on the shipped ones."""
    return tmp_path_factory.mktemp("build")


@pytest.fixture
def shipped(build, monkeypatch):
    """A function: have records elsewhere be the shipped ones."""

    def instead(root) -> None:
        monkeypatch.setattr(paths, "RECORDED", root)
        monkeypatch.setattr(paths, "BUILD", build)

    return instead


@pytest.fixture
def shelf(tmp_path, monkeypatch, gpu_folder, shipped):
    """The shipped records are synthetic, the fresh ones empty, and there is no GPU."""
    shipped(gpu_folder.parent)
    monkeypatch.setattr(paths, "RECORDS", tmp_path / "fresh")
    monkeypatch.setattr(device, "find", lambda *_: None)
    return gpu_folder


@pytest.fixture
def gpu(shelf, monkeypatch):
    """The same with a GPU; where its fresh records go."""
    monkeypatch.setattr(device, "find", lambda *_: INFO)
    monkeypatch.setattr(device, "require", lambda *_: INFO)
    return paths.RECORDS


@pytest.fixture
def shown(monkeypatch):
    """What a page's cells display, each as text; called with a notebook's name, the folder of records and a GPU."""

    def run(name: str, root, gpu: str) -> list[str]:
        out, space = [], {}
        keep = lambda what, *_: out.append(getattr(what, "data", None) or what.markdown)  # noqa: E731
        for module in (outputs, figures):
            monkeypatch.setattr(module, "display", keep)
        monkeypatch.setattr("IPython.display.display", keep)
        monkeypatch.setattr(display_functions, "display", keep)
        for cell in nbformat.read(paths.ROOT / "notebooks" / f"{name}.ipynb", as_version=4).cells:
            if cell.cell_type == "code":
                exec(cell.source, space)
            if "parameters" in cell.metadata.get("tags", []):
                space |= {"mode": "recorded", "gpu": gpu, "records": str(root)}
        return out

    return run
