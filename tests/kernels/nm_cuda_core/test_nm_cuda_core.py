"""The system's problems, what bind hands to a launch, with NumPy in CuPy's place, and what the compiler makes."""

import math
from dataclasses import replace

import compiled
import numpy as np
import pytest
from compiled import count
from hypothesis import given, settings, strategies as st
from pretend import there
from racing import H200
from refused import says

from kernels import nm_cuda_core as system
from kernels.formats import nm
from kernels.nm_cuda_core import launch

VARIANTS = tuple(system.VARIANTS)
#: Variants that read the indices of a block's first column only; of these the report to the letter.
GATHER = tuple(name for name in VARIANTS if name != "element_wise")
VERBATIM = tuple(name for name, kernel in system.VARIANTS.items() if kernel.published)
OURS = [e for kernel in system.VARIANTS.values() if not kernel.published for e in kernel.entries]
SPLIT = ("double_buffer", "verbatim_double_buffer")
#: What is said of machine code is looked at where the report is from, on Hopper, and on the newest GPU.
each_target = pytest.mark.parametrize("arch", ("sm_80", "sm_90a", "sm_120"))


# ------------------------------------------------------------------------------------ problems


@given(
    sizes=st.tuples(*[st.integers(1, 70)] * 3),
    pattern=st.sampled_from([(2, 4), (1, 4), (4, 4), (4, 8), (8, 32), (1, 1)]),
    vector=st.sampled_from([1, 4, 32, 100]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=50)
def test_a_problem_counts_what_its_operands_hold(sizes, pattern, vector, seed):
    (m, n, k), (keep, group) = sizes, pattern
    p = system.problem(m, n, k, keep / group, seed, group=group, vector=vector)
    a, b = p.host().a, p.host().b
    assert a.dtype == np.float32 and a.shape == (m, k) and a.flags.f_contiguous and 0 < a.min() and a.max() <= 1
    assert nm.validate(b) is b and (b.k, b.n, b.keep, b.group, b.vector) == (k, n, keep, group, vector)
    w = math.ceil(k / group) * keep
    assert p.nnz == b.nnz == w * n and p.useful_flops == 2 * m * n * w
    assert p.least_bytes == a.nbytes + b.nbytes + 4 * m * n
    blocks = math.ceil(m / 32) * math.ceil(n / 32)
    assert p.requested_bytes == blocks * w * (32 + 32 + 1) * 4 + 4 * m * n, "rows of A and of B and an index"
    again = system.problem_from_nm(b, m, seed)
    assert np.array_equal(again.host().a, a) and replace(again, make_host=p.make_host, make_device=p.make_device) == (
        replace(p, _host=again._host)
    )


@pytest.mark.parametrize(
    ("density", "group", "vector", "label"),
    [(0.5, 4, 32, ""), (0.5, 4, 1, "2:4 element-wise"), (1, 4, 32, "4:4"), (0.375, 32, 16, "12:32 vectors of 16")],
)
def test_a_label_tells_patterns_apart(density, group, vector, label):
    p = system.problem(64, 96, 128, density, group=group, vector=vector)
    assert p.label == label == system.problem_from_nm(p.host().b, 64).label
    assert system.problem_from_nm(p.host().b, 64, label="a layer").label == "a layer"


def test_the_counts_of_the_largest_problem_do_not_wrap():
    """NumPy's integers would; no operand is made."""
    p = system.problem(*map(np.int32, (2**20, 2**20, 2**20)), seed=np.int32(3))
    assert p.useful_flops == 2**60 and p.nnz == 2**39 and type(p.least_bytes) is int


@pytest.mark.parametrize(
    "changed",
    [{"density": 0.3}, {"density": 0}, {"group": 3}, {"group": 0}, {"vector": 0}, {"vector": 1.5}],
    ids=str,
)
def test_what_makes_no_problem_is_one_sentence(changed):
    ((name, value),) = changed.items()
    says([str(value)], lambda: system.problem(**{"m": 64, "n": 64, "k": 64} | changed))
    b = nm.random(8, 32, 2, 4, 32, 0)
    says(["index[0, 0] is 7"], lambda: system.problem_from_nm(replace(b, index=np.full_like(b.index, 7)), 32))


# ------------------------------------------------------------------------- what the gather computes


@given(
    vector=st.sampled_from((1, 2, 5, 16, 31, 32, 33, 48, 64, 96)),
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 100), st.integers(0, 99)),
    pattern=st.sampled_from([(1, 1), (1, 2), (2, 4), (3, 4), (8, 8)]),
)
@settings(deadline=None, max_examples=60)
def test_a_gathered_matrix_has_the_indices_of_each_blocks_first_column(vector, sizes, pattern):
    k, n, seed = sizes
    b = nm.random(k, n, *pattern, vector, seed)
    before = b.index.copy()
    gathered = nm.validate(system.as_gathered(b))
    assert gathered.vector == 32 and gathered.val is b.val
    assert np.array_equal(nm.per_column_index(gathered), nm.per_column_index(b)[:, np.arange(n) // 32 * 32])
    assert vector % 32 or np.array_equal(nm.to_dense(gathered), nm.to_dense(b))
    gathered.index[:] = 0
    assert np.array_equal(b.index, before)


# ----------------------------------------------------------------------------------------- bind


@pytest.fixture
def device(pretended):
    return pretended(H200)


@pytest.mark.parametrize("variant", VARIANTS)
def test_prepare_makes_one_launch_that_covers_the_output(device, variant):
    for m, n, k, vector in ((32, 32, 4, 32), (64, 160, 132, 64), (160, 96, 1021, 96), (96, 32, 1, 32)):
        p = there(system.problem(m, n, k, vector=vector))
        ops = p.device()
        bound = system.prepare(variant, p, device)
        ((kernel, config, arguments),) = bound.steps
        assert kernel == f"{system.VARIANTS[variant].source.stem}: {system.entry(variant)}"
        assert config.grid == (m // 32, n // 32, 1 + (variant in SPLIT)) and config.block == 64
        assert config.shmem_size == launch.SHARED_BYTES.get(variant, 0)
        assert bound.accumulates == (variant in SPLIT), "only atomics need zeros to add to"
        index = bound.keep[1]
        sizes = [m, n, ops.b.w] + [k] * (variant == "element_wise")
        assert list(arguments[:-4]) == sizes and all(type(x) is np.int32 for x in arguments[:-4])
        assert arguments[-4:] == tuple(x.data.ptr for x in (ops.a, ops.b.val, index, ops.c))
        assert np.array_equal(index, nm.per_column_index(ops.b)) and index.flags.c_contiguous
        assert bound.prepare_bytes == 4 * ops.b.w * n and bound.result() is ops.c


def test_element_wise_is_compiled_for_the_pattern_at_hand_where_it_fits_a_step(device):
    for keep, group in [*launch.PATTERNS, (4, 4), (5, 16), (64, 64)]:
        p = there(system.problem_from_nm(nm.random(130, 32, keep, group, 1, 0), 32))
        ((kernel, *_),) = system.prepare("element_wise", p, device).steps
        assert kernel.endswith(f"element_wise<32, 32, 64, {keep}, {group}>")
    for group in (3, 12, 128):
        p = there(system.problem_from_nm(nm.random(260, 32, 1, group, 32, 0), 32))
        says(["64 rows", f"groups of {group}"], lambda p=p: system.prepare("element_wise", p, device))
        assert all(system.prepare(name, p, device).steps for name in GATHER)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sizes_that_a_kernel_does_not_take_are_refused_before_operands_are_made(variant):
    refused = [((33, 64, 64), "33"), ((64, 48, 64), "48"), ((32, 65536 * 32, 4), "65535")]
    if variant in VERBATIM:
        refused += [((2**16, 32, 2**15), "2147483648"), ((32, 2**16, 2**16), "2147483648")]
        refused += [((2**16, 2**15, 4), "2147483648")]
    for sizes, word in refused:
        p = replace(system.problem(*sizes), make_device=lambda: pytest.fail("operands are made"))
        says([word], lambda p=p: system.prepare(variant, p, H200))


def test_the_largest_that_is_taken(device):
    p = there(system.problem(32, 65535 * 32, 1, 1, group=1))
    assert system.prepare("baseline", p, device).steps[0][1].grid == (1, 65535, 1)
    largest = replace(there(system.problem(32, 32, 32)), m=32, k=2**26 - 1)  # 2^31 - 32 elements of A
    assert system.prepare("verbatim", largest, device).steps


@pytest.mark.parametrize("vector", [1, 16, 33, 48])
def test_only_element_wise_takes_columns_with_indices_of_their_own(device, vector):
    p = there(system.problem(32, 64, 64, vector=vector))
    assert system.prepare("element_wise", p, device).steps
    for variant in GATHER:
        says([f"{vector} columns", "use element_wise"], lambda variant=variant: system.prepare(variant, p, device))
        assert system.prepare(variant, p, device, shared_indices=False).steps


# --------------------------------------------------------------------------- what the compiler makes


@pytest.fixture
def reports(arch):
    jobs = [(kernel.source, e) for kernel in system.VARIANTS.values() for e in kernel.entries]
    return compiled.reports(compiled.cubins(jobs, [arch]))


@each_target
def test_the_report_to_the_letter_has_an_array_in_local_memory_and_stores_float_by_float(reports, arch):
    """16 bytes of pointers, and no register is spilled; 16 stores of 4 bytes a thread."""
    for name in VERBATIM:
        used, mix = reports[system.entry(name), arch]
        assert used.stack_bytes == 16 * (not system.VARIANTS[name].spill_free), f"{name} on {arch}"
        assert count(mix, "STG", 32) == count(mix, "STG") == 16 and not count(mix, "FMUL") + count(mix, "FADD")


@each_target
def test_as_many_blocks_share_an_sm_as_the_launch_bounds_ask_for(reports, arch):
    for entry in [e for e in OURS if e.startswith(("double_buffer", "element_wise"))]:
        *_, keep, group = entry.rstrip(">").split(", ")
        # More values than 48 rows of them in registers at once leave fewer blocks.
        least = 11 if entry[0] == "d" else 4 if launch.DENSE_ROWS // int(group) * int(keep) > 48 else 6
        assert 65536 // (math.ceil(reports[entry, arch][0].registers / 8) * 8 * 64) >= least, f"{entry} on {arch}"


@compiled.again
@each_target
def test_the_compiler_drops_a_prefetch_that_nothing_reads(reports, arch):
    """The machine code is the baseline's; kept, everything is loaded twice and the rest done once."""
    names = [system.entry(name) for name in ("baseline", "prefetch", "prefetch_kept")]
    (one, baseline), prefetch, (two, kept) = (reports[name, arch] for name in names)
    assert prefetch == (one, baseline) and two.registers > one.registers
    assert all(count(kept, "LDG", bits) == 2 * count(baseline, "LDG", bits) > 0 for bits in (32, 128))
    assert all(count(kept, op) == count(baseline, op) for op in ("LDS", "STS", "FFMA"))
    mixes = [reports[system.entry(name), arch][1] for name in ("verbatim", "verbatim_prefetch")]
    loads, steps = ([count(mix, op) for mix in mixes] for op in ("LDG", "FFMA"))
    assert loads[0] * steps[1] == loads[1] * steps[0] > 0


@compiled.exact
@each_target
def test_memory_moves_16_bytes_at_a_time_and_feeds_its_multiply_adds(reports, arch):
    """Section 3.3: 16 for two float4; an index and four float4 of A instead cost element_wise six reads."""
    for entry in OURS:
        _, mix = reports[entry, arch]
        where, element_wise = f"{entry} on {arch}: {mix}", entry.startswith("element_wise")
        assert all(count(mix, op) == count(mix, op, 128) for op in ("STS", "LDGSTS")), where
        assert count(mix, "LDS", 64) <= 4 * element_wise and not count(mix, "LDS", 32), where
        assert not count(mix, "LD") + count(mix, "ST") + count(mix, "FMUL") + count(mix, "FADD"), where
        vectors = count(mix, "LDS", 128) + count(mix, "LDS", 64) / 2
        assert (6 if element_wise else 2) * count(mix, "FFMA") == 16 * vectors > 0, where
        buffered, split = entry.startswith("double_buffer"), entry == system.entry("double_buffer")
        assert bool(count(mix, "LDGSTS")) == buffered and count(mix, "RED") + count(mix, "REDG") == 16 * split, where
        assert count(mix, "STG", 128) == (0 if split else 4), where
