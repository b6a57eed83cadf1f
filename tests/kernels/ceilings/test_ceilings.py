"""The microbenchmarks: each does the work that it claims, and nothing cheaper."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import ceilings, jit
from kernels.ceilings import launch


def test_sizes_are_whole_multiples_of_what_a_block_takes():
    """The kernels have no loop for a remainder."""
    assert launch.COPY_BYTES % (16 * launch.COPY_THREADS) == 0
    assert launch.L2_BYTES % (16 * launch.THREADS * launch.L2_UNROLL) == 0
    assert launch.SHARED_WORDS // 4 % launch.THREADS == 0
    laps = launch.SHARED_WORDS // 4 // launch.THREADS
    assert launch.SHARED_ROUNDS * launch.SHARED_UNROLL % laps == 0
    assert 4 * launch.SHARED_WORDS <= 48 * 1024, "static shared memory"
    assert launch.FMA_ITERATIONS % 8 == 0
    # Below the L2 of every target, above the L1 of all of an SM's neighbours.
    assert 2**20 < launch.L2_BYTES <= 32 * 2**20 < launch.COPY_BYTES


def test_an_unknown_microbenchmark_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="no 'l3_read': choose one of fma, copy, l2_read, shared"):
        ceilings.bind("l3_read", None)


@pytest.mark.parametrize("arch", jit.TARGETS)
@pytest.mark.parametrize(
    ("name", "opcode", "modifier", "least"),
    [
        ("fma", "FFMA", "", 8 * launch.FMA_CHAINS),
        ("copy", "LDG", "128", 1),
        ("copy", "STG", "128", 1),
        ("l2_read", "LDG", "128", launch.L2_UNROLL),
        ("shared_read", "LDS", "128", launch.SHARED_UNROLL),
    ],
)
def test_the_work_survives_the_compiler(name, opcode, modifier, least, arch):
    """In one iteration of the loop; what nobody reads would have been removed."""
    (entry,) = ceilings.VARIANTS[name].entries
    cubin = jit.compile_cubin(ceilings.VARIANTS[name].source, entry, arch)
    mix = jit.instruction_mix(cubin)
    found = sum(n for op, n in mix.items() if op.split(".")[0] == opcode and modifier in op)
    assert found >= least, f"{entry} on {arch}: {mix}"
    assert not jit.resources(cubin).spills
    # Two blocks of 1024 threads on an SM, where it has room for them.
    assert jit.resources(cubin).registers <= 64
    if name == "l2_read":
        cached = [op for op in mix if op.startswith("LDG.E.128") and "STRONG.GPU" not in op]
        assert not cached, "the loads must skip L1"


@pytest.mark.gpu
@pytest.mark.parametrize("name", ceilings.VARIANTS)
def test_a_microbenchmark_computes_what_it_must(device, name):
    import cupy

    ceiling = ceilings.bind(name, device, seed=3)
    bound, stream = ceiling.bound, device.create_stream()
    out = bound.result()
    for _ in range(2):
        out.fill(float("nan"))
        device.sync()
        bound.launch(stream)
        stream.sync()
        if name == "copy":
            assert bool((out == ceiling.expected).all())
        else:
            assert out.shape == ceiling.expected.shape
            error = float((cupy.abs(out.astype(np.float64) / ceiling.expected - 1)).max())
            assert error < 1e-3, f"{name} is off by {error:.1e}"
    assert (ceiling.flops > 0) == (name == "fma") and (ceiling.bytes > 0) == (name != "fma")
    assert bound.name == name and bound.prepare_ms == 0
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ceilings.VARIANTS)
def test_another_seed_makes_other_data(device, name):
    import cupy

    one, two = (
        ceilings.bind(name, device, seed=seed).expected.ravel()[:4].get() for seed in (1, 2)
    )
    cupy.get_default_memory_pool().free_all_blocks()
    assert np.isfinite(one).all() and not np.any(one == two)


@pytest.mark.gpu
def test_rates_are_those_of_a_gpu(device):
    """Orders of magnitude: a rate outside them would mean work that is counted but not done."""
    from artifact import bench

    rates = {}
    for name in ceilings.VARIANTS:
        ceiling = ceilings.bind(name, device)
        timing = bench.time({name: ceiling.bound}, device, budget_s=0.1)[name]
        rates[name] = (ceiling.flops or ceiling.bytes) / timing.median_us / 1e6  # tera a second
    sms = device.properties.multiprocessor_count
    assert 0.05 * sms < rates["fma"] < 1.5 * sms, "128 or 64 FMA a cycle and SM, at 0.5 to 3 GHz"
    assert rates["copy"] < rates["l2_read"] < rates["shared_read"], rates
