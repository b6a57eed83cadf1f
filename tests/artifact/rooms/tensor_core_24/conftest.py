"""The shipped records, as the chapter reads them."""

import pytest

from artifact.measure import run as harness
from artifact.rooms.tensor_core_24 import experiments


@pytest.fixture(scope="module")
def run():
    return harness.start("tensor_core_24", mode="recorded")


@pytest.fixture(scope="module")
def counters(run):
    return experiments.counters(run)


@pytest.fixture(scope="module")
def ladder(run):
    return experiments.ladder(run)
