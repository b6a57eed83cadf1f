"""What all tests share: the `gpu` marker skips with its reason where there is no GPU, and fails where
there is a driver that does not work."""

from __future__ import annotations

import pytest

from artifact.measure import device as gpu


@pytest.hookimpl(trylast=True)  # what -m and -k leave out shall not look for a GPU
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    # With a broken driver they run, and `pytest_runtest_setup` says what is the matter.
    none = bool(marked) and not _broken_driver() and gpu.find() is None
    for item in marked if none else ():
        item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU with a driver here"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    broken = _broken_driver() if item.get_closest_marker("gpu") else ""
    if broken:
        pytest.fail(broken, pytrace=False)


def _broken_driver() -> str:
    """What is the matter with the driver; empty where it works, or where there is none."""
    try:
        gpu.find()
    except gpu.NoGpu as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def device():
    """The GPU as a `cuda.core.Device`, current in this thread."""
    return gpu.require().open()
