"""The microbenchmarks: each does the work that it claims, and nothing cheaper."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from refused import says

from kernels import ceilings, jit
from kernels.ceilings import launch

TENSOR = ("mma", "mma_sp", "wgmma", "wgmma_sp", "wgmma_sp_ra")
SPARSE = ("mma_sp", "wgmma_sp", "wgmma_sp_ra")


def cubin(name: str, arch: str) -> jit.Cubin:
    (entry,) = ceilings.VARIANTS[name].entries
    return jit.compile_cubin(ceilings.VARIANTS[name].source, entry, arch)


def test_sizes_are_whole_multiples_of_what_a_block_takes():
    """The kernels have no loop for a remainder."""
    laps = launch.SHARED_WORDS // 4 // launch.THREADS
    for whole, part in (
        (launch.COPY_BYTES, 16 * launch.COPY_THREADS),
        (launch.L2_BYTES, 16 * launch.THREADS * launch.L2_UNROLL),
        (launch.SHARED_WORDS, 4 * launch.THREADS),
        (launch.SHARED_ROUNDS * launch.SHARED_UNROLL, laps),
        (launch.FMA_ITERATIONS, 8),
        (launch.MMA_K, 16),
        (launch.MMA_SP_K, 64),
    ):
        assert whole % part == 0
    assert 4 * launch.SHARED_WORDS <= 48 * 1024, "static shared memory"
    # Below the L2 of every target, above the L1 of all of an SM's neighbours.
    assert 2**20 < launch.L2_BYTES <= 32 * 2**20 < launch.COPY_BYTES
    assert launch.TENSOR_THREADS == 32 * launch.MMA_WARPS == 2 * launch.WGMMA_M
    # A, which is stored in half of its columns where it is sparse, and B: 227 KiB are a block's.
    dense = 2 * launch.WGMMA_K * (launch.WGMMA_M + launch.WGMMA_N)
    assert max(dense, 2 * launch.WGMMA_SP_K * (launch.WGMMA_M // 2 + launch.WGMMA_N)) <= 227 * 1024


@pytest.mark.parametrize(("capability", "hopper"), [((9, 0), True), ((8, 9), False), ((8, 6), False), ((12, 0), False)])
def test_what_a_gpu_supports_and_what_is_refused(capability, hopper):
    """Also one that no target names: what is for all targets needs no instruction of a few."""
    device = SimpleNamespace(compute_capability=capability)
    for name, kernel in ceilings.VARIANTS.items():
        assert ceilings.supports(name, device) == (hopper or kernel.targets == jit.TARGETS)
        if not ceilings.supports(name, device):
            says([name, "sm_90a"], lambda name=name: ceilings.prepare(name, device))
    says(["no 'l3_read': choose one of fma, copy, l2_read, shared"], lambda: ceilings.prepare("l3_read", None))


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
    made = cubin(name, arch)
    mix = jit.instruction_mix(made)
    found = sum(n for op, n in mix.items() if op.split(".")[0] == opcode and modifier in op)
    assert found >= least, f"{made.entry} on {arch}: {mix}"
    assert not jit.resources(made).spills
    # Two blocks of 1024 threads on an SM, where it has room for them.
    assert jit.resources(made).registers <= 64
    if name == "l2_read":
        assert not [op for op in mix if op.startswith("LDG.E.128") and "STRONG.GPU" not in op], "the loads must skip L1"


def loop(name: str, arch: str, opcode: str) -> list[str]:
    """The instructions from the first `opcode` to the branch back, which the same loop holds."""
    sass = jit.disassemble(cubin(name, arch))
    ops = [" ".join(op.split()) for op in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", sass)]
    ops = [op for op in ops if not op.startswith(("@!UPT", "@!PT"))]  # padding, never executed
    first = next(i for i, op in enumerate(ops) if op.startswith(opcode))
    back = next(i for i, op in enumerate(ops) if i > first and re.search(r"\bBRA\b", op))
    assert not any(op.startswith(opcode) for op in ops[back:]), "a second loop"
    return ops[first : back + 1]


@pytest.mark.parametrize(
    ("name", "arch"), [(name, arch) for name in TENSOR for arch in ceilings.VARIANTS[name].targets]
)
def test_nothing_but_the_tensor_cores_is_at_work_in_the_loop(name, arch):
    """A sparse instruction names its selector last, and both occur equally often."""
    warp = name.startswith("mma")
    shape = "16832" if name == "mma_sp" else "16816" if warp else "64x256x"
    opcode = f"{'H' if warp else 'HG'}MMA{'.SP' if name in SPARSE else ''}.{shape}"
    ops = loop(name, arch, opcode)
    work = [op for op in ops if op.startswith(opcode)]
    assert len(work) == (launch.MMA_DOWN * launch.MMA_ACROSS * 2 if warp else 4)
    assert all("F32.BF16" in op for op in work)
    rest = [op for op in ops if op not in work and not op.startswith("NOP")]
    assert len(rest) <= 6 and not any(op.startswith(("LD", "ST", "WARPGROUP.ARRIVE")) for op in rest), rest
    if name in SPARSE:
        for selector in ("0x0", "0x1"):
            found = [op for op in work if re.search(rf", {selector}(, gsb0)? ;", op)]
            assert len(found) == len(work) // 2, (selector, work)
    if not warp:  # where the compiler serialises, it waits for every one; here one wait closes all four
        closing = [i for i, op in enumerate(ops) if op in work and "gsb0 ;" in op]
        waits = [i for i, op in enumerate(ops) if op == "WARPGROUP.DEPBAR.LE gsb0, 0x1 ;"]
        assert len(closing) == len(waits) == sum(op.startswith("WARPGROUP") for op in ops) == 1
        assert waits[0] > max(i for i, op in enumerate(ops) if op in work)
    assert not jit.resources(cubin(name, arch)).spills


def bound_or_skipped(name, device, seed=0):
    if not ceilings.supports(name, device):
        pytest.skip(f"this GPU has no {name}")
    return ceilings.prepare(name, device, seed=seed)


def largest_error(ceiling) -> float:
    import cupy

    off = cupy.abs(ceiling.bound.result().astype(np.float64) - ceiling.expected)
    return float(off.max() / cupy.abs(ceiling.expected).mean())


@pytest.mark.gpu
@pytest.mark.parametrize("name", ceilings.VARIANTS)
def test_a_microbenchmark_computes_what_it_must(device, name):
    import cupy

    ceiling = bound_or_skipped(name, device, seed=3)
    first, other = (x.expected.ravel()[:4].get() for x in (ceiling, ceilings.prepare(name, device, seed=1)))
    assert np.isfinite(other).all() and not np.any(first == other), "another seed makes other data"
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
            error = largest_error(ceiling)
            assert error < ceiling.tolerance, f"{name} is off by {error:.1e}"
    arithmetic = name == "fma" or name in TENSOR
    assert (ceiling.flops > 0) == arithmetic and (ceiling.bytes > 0) != arithmetic
    assert bound.name == name and bound.prepare_ms == 0
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.gpu
@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("columns", [1, 2], ids=["another lane", "another selector"])
def test_the_device_sees_wrong_metadata(device, name, columns):
    """The kernel reads the word that the format says, not one that happens to be alike."""
    ceiling = bound_or_skipped(name, device)
    meta = ceiling.bound.keep[1]
    words = meta.reshape(-1, 4 // columns, columns)
    meta[...] = words[:, [i ^ 1 for i in range(4 // columns)]].reshape(meta.shape)
    stream = device.create_stream()
    device.sync()
    ceiling.bound.launch(stream)
    stream.sync()
    assert largest_error(ceiling) > 10 * ceiling.tolerance


@pytest.mark.gpu
@pytest.mark.alone
def test_rates_are_those_of_a_gpu(device):
    """Orders of magnitude: a rate outside them would mean work that is counted but not done."""
    from artifact.measure import bench

    rates = {}
    for name in ceilings.VARIANTS:
        if not ceilings.supports(name, device):
            continue
        ceiling = ceilings.prepare(name, device)
        timing = bench.time({name: ceiling.bound}, device, budget_s=0.1)[name]
        rates[name] = (ceiling.flops or ceiling.bytes) / timing.median_us / 1e6  # tera a second
    sms = device.properties.multiprocessor_count
    assert 0.05 * sms < rates["fma"] < 1.5 * sms, "128 or 64 FMA a cycle and SM, at 0.5 to 3 GHz"
    assert rates["copy"] < rates["l2_read"] < rates["shared_read"], rates
    assert 2 * rates["fma"] < rates["mma"] < rates["mma_sp"] < 2.1 * rates["mma"], rates
    if "wgmma" in rates:
        assert rates["mma"] < rates["wgmma"] < rates["wgmma_sp"] < 2.1 * rates["wgmma"], rates
        assert 2 < rates["wgmma"] / sms < 4096 * 2e-3, "4096 FLOP a cycle and SM, below 2 GHz"
        assert rates["wgmma_sp"] < 1.05 * rates["wgmma_sp_ra"], rates
