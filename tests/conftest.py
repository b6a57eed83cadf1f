"""What all tests share: the `gpu` marker skips with its reason where there is no GPU."""

from __future__ import annotations

import pytest

from artifact.measure import device as gpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and gpu.find() is None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU with a driver here"))


@pytest.fixture(scope="session")
def device():
    """The GPU as a `cuda.core.Device`, current in this thread."""
    return gpu.require().open()
