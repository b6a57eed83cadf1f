"""NVIDIA's libraries and PyTorch without a GPU."""

import pytest
from fake_libraries import install_all


@pytest.fixture
def libraries(monkeypatch):
    return install_all(monkeypatch)
