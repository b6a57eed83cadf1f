"""When a dense product is expected to be faster: against every recorded point that has both, and without a GPU."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import racing
import scipy.sparse as sp

from artifact import paths
from artifact.measure import records
from kernels import gpu
from kernels.formats import bcsr, csr, nm, two_four
from kernels.library import operands, routes

GPUS = {"nvidia-h200": (3_201_000, 6016), "nvidia-h100-80gb-hbm3": (2_619_000, 5120)}
#: system -> what was recorded of it that a route leads to.
OURS = {"async_sparse": ("auto",), "tensor_core_24": ("auto",), "nm_spmm": ("auto", "bf16", "tf32")}
NUMBERS = {"auto": "fp32", "bf16": "16", "tf32": "tf32"}  # of N:M


def described(clock=1_980_000, memory=3_201_000, bus=6016, capability=(9, 0), sms=132):
    properties = SimpleNamespace(
        multiprocessor_count=sms,
        clock_rate=clock,
        memory_clock_rate=memory,
        global_memory_bus_width=bus,
        max_shared_memory_per_block_optin=232_448,
    )
    return SimpleNamespace(name="a GPU", compute_capability=capability, properties=properties)


def work(system: str, ours: str, p) -> routes.Work:
    """What was multiplied at a recorded point."""
    if system == "nm_spmm":  # whose A is dense: the product of the transposes
        vector = 128 if "128" in p.label else 32
        return routes.vectors(p.n, p.m, p.k, p.nnz / (p.n * p.k), vector, NUMBERS[ours])
    if system == "tensor_core_24":
        return routes.Work("2:4", "16", p.m, p.n, p.k, p.m * p.k / 2)
    numbers = "tf32" if "tf32" in p.label else "16"
    return routes.blocks(p.m, p.n, p.k, round(p.nnz / 4096), (64, 64), numbers, False)


@pytest.fixture(scope="module")
def points() -> pd.DataFrame:
    """Of each recorded point with a dense product: both times, measured and expected."""
    rows, point = [], ["label", "m", "n", "k", "density", "nnz"]
    for (slug, (memory, bus)), (system, names) in product(GPUS.items(), OURS.items()):
        of, folder = routes.ceilings(described(memory=memory, bus=bus)), paths.RECORDED / slug / system
        for experiment in sorted({*records.experiments(folder)} - {"fp8"}):
            df = pd.read_csv(
                folder / f"{experiment}.csv", usecols=[*point, "variant", "median_us"], dtype={"label": str}
            )
            us = df.fillna({"label": ""}).pivot_table("median_us", point, "variant", "min").reset_index()
            dense = us.filter(regex="^cublas").min(axis=1)
            for ours in us.columns.intersection(names):
                for p, *measured in zip(us.itertuples(), us[ours], dense, strict=True):
                    rows.append((*measured, *routes.both(work(system, ours, p), of)))
    return pd.DataFrame(rows, columns=["sparse", "dense", "expected_dense", "expected"]).dropna()


def test_it_is_right_at_the_recorded_points(points):
    faster, said = points["dense"] < points["sparse"], points["expected_dense"] < points["expected"]
    assert len(points) > 1000 and faster.sum() >= 15
    assert (faster == said).mean() > 0.99
    assert (faster & said).sum() >= 0.8 * faster.sum(), "most of where dense is faster is found"
    assert (said & ~faster).sum() <= 0.2 * said.sum(), "and little else"


def test_expected_times_are_near_the_recorded_ones(points):
    for measured, expected in (("sparse", "expected"), ("dense", "expected_dense")):
        ratio = points[expected] / points[measured]
        assert ratio.quantile(0.1) > 0.8 and ratio.quantile(0.9) < 1.25
        assert 0.95 < ratio.median() < 1.05


def scattered(m: int, k: int, density: float):
    return csr.from_scipy(sp.random(m, k, density, format="csr", dtype=np.float32, random_state=0))


@pytest.mark.parametrize(
    "device",
    [described(), described(capability=(8, 0), sms=108, clock=1_410_000), gpu.Portable(described())],
    ids=["H200", "A100", "portable"],
)
def test_a_plan_that_dense_beats_says_so_in_one_sentence_with_both_times(device):
    cases = [
        (bcsr.random(4096, 4096, 0.05, 0, dtype="bfloat16"), "bfloat16", 8192, False),
        (bcsr.random(333, 1111, 0.1, 0, dtype="bfloat16"), "bfloat16", 77, None),
        (scattered(2000, 2000, 0.001), "float32", 512, False),
        (scattered(500, 500, 0.6), "float32", 4096, True),
        (two_four.random(4096, 4096, "bfloat16", 0), "bfloat16", 4096, False),
        (nm.random(1024, 1024, 8, 32, 32, 0), "float32", 4096, False),
    ]
    for a, dtype, n, faster in cases:
        asked = operands.resolved(None, dtype)
        said = routes.dense_is_faster(routes.route(a, dtype, asked, device), n, device)
        if faster is not None:
            assert bool(said) == faster, said
        if said:
            assert said.count(" us") == 2 and said.endswith("if it fits.") and ". " not in said


@pytest.mark.parametrize("device", [described(clock=0), described(memory=0), described(capability=(7, 5)), racing.A100])
def test_a_gpu_that_does_not_describe_itself_is_not_spoken_of(device):
    way = routes.route(scattered(500, 500, 0.6), "float32", "fp32", racing.A100)
    assert routes.ceilings(device) is None and routes.dense_is_faster(way, 4096, device) == ""


def test_a_gpu_after_those_that_are_known_is_taken_for_the_last_one_before():
    assert routes.ceilings(described(capability=(9, 0))) == routes.ceilings(described(capability=(9, 5)))
