"""What all tests share: the `gpu` marker skips with its reason where there is no GPU, and fails where
there is a driver that does not work."""

from __future__ import annotations

import pytest

from artifact.measure import device as gpu


@pytest.hookimpl(trylast=True)  # what -m and -k leave out shall not look for a GPU
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    try:
        found = not marked or gpu.find() is not None
    except gpu.NoGpu:
        found = True  # so that they run, and `pytest_runtest_setup` says what is the matter
    for item in marked if not found else ():
        item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU with a driver here"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        try:
            gpu.find()
        except gpu.NoGpu as error:
            pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def device():
    """The GPU as a `cuda.core.Device`, current in this thread."""
    return gpu.require().open()
