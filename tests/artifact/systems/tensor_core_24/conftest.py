"""The shipped records, as the chapter reads them."""

from dataclasses import replace

import pytest

from artifact.book.study import where
from artifact.measure.run import start
from artifact.systems.tensor_core_24 import experiments


@pytest.fixture(scope="session")
def post():
    return experiments.Chapter(start("tensor_core_24", "recorded"))


@pytest.fixture(scope="session")
def ada(post):
    """The same records as a GPU without wgmma would have them."""
    machine = post.run.machine | {"compute_capability": "8.9", "shared_bytes_per_sm": 102400}
    there = experiments.Chapter(replace(post.run, machine=machine))
    known = ["mma_sp", "mma_sp_ca", "mma_sp_all_threads", "auto", "cusparselt", "cublaslt"]
    parts = {"counters": post.counters.where(variant=known), "ladder": where(post.ladder, variant=known)}
    there.__dict__.update(parts, ceilings=post.ceilings.loc[["mma", "mma_sp"]])
    return there
