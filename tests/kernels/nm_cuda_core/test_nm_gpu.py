"""The variants on a GPU beyond the contract of all systems: depths, vectors, margins, offsets beyond 31 bits."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from products import SEED, between, exact, launched
from test_nm_cuda_core import GATHER, VARIANTS

from artifact.measure import verification
from kernels import nm_cuda_core as system
from kernels.contract import Operands
from kernels.formats import nm
from kernels.nm_cuda_core import launch

pytestmark = pytest.mark.gpu
each = pytest.mark.parametrize("variant", VARIANTS)


def prepare(variant: str, device):
    return partial(system.prepare, variant, device=device)


@each
def test_depths_around_every_step_patterns_and_vectors(device, variant):
    """k around 32, 64 and 128 compressed rows and 64 rows of A; vectors of one block and of several."""
    kinds = [((2, 4), 32), ((1, 4), 64), ((16, 32), 96), ((4, 4), 160)]
    kinds += [((2, 4), 1), ((8, 32), 5), ((2, 4), 48), ((8, 32), 100)] * (variant == "element_wise")
    for (keep, group), vector in kinds:
        edges = [w // keep * group + d for w in (32, 64, 128) for d in (-1, 0, 1)]
        for k in (1, 60, 65, 1021, *edges):
            p = system.problem(64, 160, k, keep / group, SEED, group=group, vector=vector)
            exact(p, prepare(variant, device), device)


@pytest.mark.parametrize("variant", GATHER)
def test_without_shared_indices_kernels_multiply_with_what_they_gather(device, variant):
    """The product is that of `as_gathered`, which is not that of B."""
    p = system.problem(96, 160, 1021, seed=SEED, vector=4)
    found = launched(system.prepare(variant, p, device, shared_indices=False), device)
    host = p.host()
    right = verification.reference(host.a.astype(float) @ nm.to_dense(system.as_gathered(host.b)))
    verification.compare(found, right, variant)
    assert not np.allclose(found, host.a @ nm.to_dense(host.b), rtol=0.01)


def test_variants_that_add_in_the_same_order_give_the_same_bits(device):
    """All but split-K: they differ in how the operands travel, and not in a single multiply-add."""
    for k in (60, 1021):
        p = system.problem(96, 64, k, seed=SEED)
        one, *others = (x for x in VARIANTS if launch.SPLIT_K.get(x) != 2)
        first = launched(system.prepare(one, p, device), device)
        for name in others:
            assert np.array_equal(launched(system.prepare(name, p, device), device), first), f"{name} at k={k}"


@each
def test_nothing_beside_the_operands_is_read_into_a_sum_or_written(device, variant):
    """A, B's values and C lie between NaN, which stay; columns of A that no index names are NaN as well."""
    for k in (4, 60, 132):
        p = system.problem(64, 96, k, seed=SEED, vector=96)

        def inside(whole, k=k):
            ops = whole.device()
            unused = np.setdiff1d(np.arange(k), ops.b.index.get())
            (around, c), a = between(ops.c), between(ops.a)[1]
            a[:, unused] = np.nan
            made = Operands(a, replace(ops.b, val=between(ops.b.val)[1]), c)
            bound = system.prepare(variant, replace(whole, make_device=lambda: made, _device=None), device)
            bound.keep = (*bound.keep, around)
            return bound

        bound = exact(p, inside, device)
        around, c = bound.keep[-1], bound.result()
        assert np.isnan(around.get()).sum() == around.size - c.size, f"{variant}, seed {SEED}"


@pytest.mark.alone
@pytest.mark.parametrize(("m", "n", "k"), [(1025 * 32, 32, 2**16), (32, 129 * 32, 2**20), (4097 * 32, 2**14, 4)])
def test_offsets_beyond_2_to_the_31_elements(device, m, n, k):
    """Of A, B and C; rows repeat after a prime number of them, so that one from a wrong address shows."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    need, free = 4.4 * (m * k + k * n + m * n), cupy.cuda.runtime.memGetInfo()[0]
    if free < need:
        pytest.skip(f"{need / 2**30:.0f} GiB of GPU memory needed, {free / 2**30:.1f} free")
    rng = np.random.default_rng((SEED, m))

    def periodic(rows: int, columns: int):
        numbers, array = cupy.asarray(rng.integers(-3, 4, (1021, columns))), cupy.empty((rows, columns), cupy.float32)
        for i in range(0, rows, 1021):
            array[i : i + 1021] = numbers[: rows - i]
        return array

    index = (2 * np.arange(k // 2) + rng.integers(0, 2, k // 2)).astype(np.int32)[:, None]
    b = nm.Nm(k, n, 2, 4, n, periodic(k // 2, n), cupy.asarray(index))
    ops = Operands(periodic(k, m).T, b, cupy.empty((m, n), cupy.float32, order="F"))
    p = replace(system.problem(m, n, k), make_device=lambda: ops)
    for variant in [x for x in VARIANTS if x not in launch.VERBATIM]:
        bound, stream = system.prepare(variant, p, device), device.create_stream()
        ops.c.fill(np.nan)
        device.sync()
        bound.launch(stream)
        stream.sync()
        for j in (0, n // 2 // 32 * 32, n - 32):
            values = cupy.ascontiguousarray(b.val[:, j : j + 32])
            right = verification.dense_product(ops.a, nm.Nm(k, 32, 2, 4, 32, values, b.index))
            assert bool((ops.c[:, j : j + 32] == right).all()), f"{variant}, columns from {j}, seed {SEED}"
        bound = None
    cupy.get_default_memory_pool().free_all_blocks()
