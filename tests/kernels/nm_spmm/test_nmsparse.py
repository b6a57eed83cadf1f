"""nmSPARSE as it is timed: what bind prepares and refuses, what the compiler makes of it, and on a GPU the products."""

from __future__ import annotations

import math
from dataclasses import replace

import compiled
import numpy as np
import pytest
from compiled import count
from refused import says
from test_published import H200, SEED, as_array, make_problem, on_fake_gpu

from artifact.measure import check
from kernels import jit
from kernels import nm_spmm as room
from kernels.contract import Operands
from kernels.formats import nm
from kernels.nm_spmm import nmsparse, operands

gpu = pytest.mark.gpu
NAME = nmsparse.NAME
KERNEL = nmsparse.KERNELS[NAME]
#: bug -> (file, text that is there once, what stands there instead)
MUTANTS = {
    "gathers_next_row": ("nmsparse.cuh", "*(index + n0 + (i + row) * n)", "*(index + n0 + (i + row ^ 1) * n)"),
    "first_block_indices": ("nmsparse.cuh", "*(index + n0 + (i + row) * n)", "*(index + (i + row) * n)"),
    "loses_last_row": ("nmsparse.cuh", "row < rows; ++row", "row < rows - 1; ++row"),
    "transposes_a_tile": ("nmsparse.cuh", "acc[j][i] += b[j] * a[i];", "acc[i][j] += b[j] * a[i];"),
    "stores_one_float_less": ("nmsparse.cuh", "for (int i = 0; i < 4; ++i) C[", "for (int i = 0; i < 3; ++i) C["),
    "drops_last_step": ("nmsparse.cu", "k0 < k; k0 += BK", "k0 + BK < k; k0 += BK"),
}


def mutated(monkeypatch, folder, bug: str) -> None:
    """From now on the kernel is compiled from sources with one text changed."""
    compiled.changed(nmsparse.HERE, folder, *MUTANTS[bug])
    monkeypatch.setitem(nmsparse.KERNELS, NAME, replace(KERNEL, source=folder / KERNEL.source.name))


# ------------------------------------------------------------------------------------ compilation


@pytest.fixture(scope="module")
def reports():
    return compiled.reports(compiled.cubins([(KERNEL.source, entry) for entry in KERNEL.entries]))


@pytest.mark.parametrize("entry", KERNEL.entries)
@pytest.mark.parametrize("target", jit.TARGETS)
def test_c_is_stored_float_by_float_and_nothing_spills(reports, target, entry):
    resources, mix = reports[entry, target]
    assert not resources.spills and resources.registers <= 64, resources
    assert count(mix, "STG", 32) == count(mix, "STG") == 16, mix
    assert not count(mix, "LDGSTS") + count(mix, "ATOMG"), mix
    assert count(mix, "FMUL") < 16, "the rows of a step, but no product of a turn apart from its sum"


@compiled.exact
def test_loops_are_as_long_as_in_the_machine_code_of_the_authors_kernel(reports):
    """For sm_90a: compiled here, it has as many loads, stores and multiply-adds as this. Loops of four rows and two."""
    _, mix = reports[KERNEL.entries[0], "sm_90a"]
    found = {
        (opcode, bits): count(mix, opcode, bits)
        for opcode, bits in (
            ("FFMA", None),
            ("FMUL", None),
            ("LDS", 128),
            ("LDG", 32),
            ("LDG", 128),
            ("STS", 128),
            ("STG", 32),
        )
    }
    assert found == {
        ("FFMA", None): 48,
        ("FMUL", None): 1,
        ("LDS", 128): 6,
        ("LDG", 32): 7,
        ("LDG", 128): 14,
        ("STS", 128): 14,
        ("STG", 32): 16,
    }


@pytest.mark.parametrize("entry", ["nmsparse<16, 32, 128>", "nmsparse<32, 48, 128>"])
def test_an_impossible_tile_says_why(entry):
    with pytest.raises(jit.CompileError, match="(?s)choose BM and BN as multiples of 32"):
        jit.compile_cubin(KERNEL.source, entry, "sm_90a")


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_compiles(monkeypatch, tmp_path, bug):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    before = jit.compile_cubin(KERNEL.source, KERNEL.entries[0], "sm_90a").code
    mutated(monkeypatch, tmp_path, bug)
    source = nmsparse.KERNELS[NAME].source
    assert jit.compile_cubin(source, KERNEL.entries[0], "sm_90a").code != before


# --------------------------------------------------------------------------------- bind, on a CPU


@pytest.fixture
def loaded(monkeypatch) -> list:
    """bind without a GPU; (cubin, bytes of dynamic shared memory) of what it would load."""
    found = []

    def load(cubin, dynamic_shared_bytes=0):
        found.append((cubin, dynamic_shared_bytes))
        return cubin.entry

    monkeypatch.setattr(jit, "load", load)
    monkeypatch.setattr(nmsparse, "timed", lambda work: (tuple(map(as_array, work())), 1.25))
    return found


def test_steps_are_the_authors():
    """128 rows of B at 50% sparsity, else 256."""
    assert [nmsparse.depth(keep, 32) for keep in (32, 16, 12, 8, 4)] == [256, 128, 256, 256, 256]
    assert nmsparse.depth(2, 4) == 128 and nmsparse.depth(1, 4) == 256


@pytest.mark.parametrize(("keep", "rows"), [(32, 256), (16, 64), (12, 96), (8, 64), (4, 32)], ids=str)
def test_bind_covers_c_with_tiles_of_32(loaded, keep, rows):
    p = on_fake_gpu(operands.problem(96, 160, 512, keep / 32))
    ops = p.device()
    bound = nmsparse.bind(NAME, p, H200)
    ((kernel, config, arguments),) = bound.steps
    ((cubin, shared),) = loaded
    deep = 128 if keep == 16 else 256
    assert kernel == f"nmsparse<32, 32, {deep}>" and cubin.source == KERNEL.source
    assert config.grid == (3, 5, 1) and config.block == (64, 1, 1)
    assert config.shmem_size == shared == 4 * rows * 64
    assert list(arguments[:4]) == [96, 160, 512, 1 - keep / 32]
    assert [type(x) for x in arguments[:4]] == [np.int32, np.int32, np.int32, np.float32]
    assert int(deep * (np.float32(1) - arguments[3])) == rows, "as the kernel computes it"
    _, val, index = bound.keep
    assert arguments[4:] == tuple(x.data.ptr for x in (ops.a, val, index, ops.c))
    assert np.shares_memory(val, ops.b.val) and np.array_equal(index, nm.per_column_index(ops.b))
    assert bound.prepare_ms == 1.25 and bound.prepare_bytes == index.nbytes
    assert not bound.accumulates and bound.result() is ops.c


def test_a_last_step_is_filled_with_zeros(loaded):
    p = on_fake_gpu(operands.problem(32, 64, 300, 0.25))
    b = p.device().b
    bound = nmsparse.bind(NAME, p, H200)
    _, val, index = bound.keep
    assert val.shape == index.shape == (128, 64) and b.w == 80
    assert np.array_equal(val[:80], b.val) and not val[80:].any()
    assert np.array_equal(index[:80], nm.per_column_index(b)) and 0 <= index.min()
    assert index.max() < 300 and val.flags.c_contiguous and index.flags.c_contiguous
    assert bound.prepare_bytes == 4 * 2 * 128 * 64


@pytest.mark.parametrize(
    ("sizes", "given", "words"),
    [
        ((33, 64, 64), {}, ["m to be a multiple of 32", "not 33", "use v3"]),
        ((64, 48, 64), {}, ["n to be a multiple of 32", "not 48", "use v3"]),
        ((32, 64, 64), {"vector": 4}, ["among 4 columns", "use v3"]),
        ((32, 64, 64), {"vector": 48}, ["among 48 columns", "use v3"]),
        ((32, 64, 60), {"density": 1 / 6, "group": 6}, ["256 rows of B", "1:6", "use v3"]),
    ],
    ids=str,
)
def test_what_it_does_not_take_is_named(loaded, sizes, given, words):
    p = on_fake_gpu(operands.problem(*sizes, **({"density": 0.5} | given)))
    says([NAME, *words], lambda: nmsparse.bind(NAME, p, H200))
    assert not loaded


def test_one_vector_of_all_columns_is_taken(loaded):
    assert nmsparse.bind(NAME, on_fake_gpu(operands.problem(32, 64, 64, vector=100)), H200).steps


def test_too_many_elements_for_32_bits_are_refused(loaded):
    """The sizes are checked before anything is copied; C alone has 2^31 elements."""
    p = operands.problem(2**16, 2**15, 32)
    b = nm.random(32, 32, 16, 32, 2**15, 0)
    b = replace(b, n=2**15, val=np.broadcast_to(b.val[:, :1], (16, 2**15)))
    p = replace(p, make_device=lambda: Operands(None, b, None))
    says(["counts elements in 32 bits", "2147483648"], lambda: nmsparse.bind(NAME, p, H200))


def test_another_name_is_refused():
    says(["'nmsparse2'", "choose nmsparse_vw32"], lambda: nmsparse.bind("nmsparse2", None, None))


# ------------------------------------------------------------------------------------- on a GPU


def try_problem(p, device) -> None:
    """C is full of NaN before a launch; two launches give the product twice, exactly."""
    host = p.host()
    exact = host.a.astype(np.float64) @ nm.to_dense(host.b).astype(np.float64)
    stream = device.create_stream()
    bound = room.bind(NAME, p, device)
    bound.result().fill(math.nan)
    device.sync()
    for _ in range(2):
        bound.launch(stream)
        stream.sync()
        wrong = bound.result().get() != exact
        assert not wrong.any(), (
            f"{host.b.keep}:{host.b.group} in vectors of {host.b.vector}: m={p.m}, n={p.n}, k={p.k}, seed {SEED}: "
            f"{wrong.sum()} of {wrong.size} elements are wrong, the first at {tuple(np.argwhere(wrong)[0])}"
        )
    p.release()


@gpu
@pytest.mark.parametrize("keep", [32, 16, 12, 8, 4, 1])
def test_the_papers_patterns(device, keep):
    for m, n, k in ((32, 32, 256), (64, 128, 512), (160, 96, 1024), (512, 512, 512)):
        try_problem(make_problem(m, n, k, keep, 32, 32), device)


@gpu
@pytest.mark.parametrize("k", [1, 31, 32, 33, 127, 128, 129, 255, 257, 500, 1021])
def test_any_k(device, k):
    for keep in (16, 8, 12):
        try_problem(make_problem(64, 96, k, keep, 32, 32), device)


@gpu
@pytest.mark.parametrize(("keep", "group"), [(2, 4), (1, 4), (4, 8), (3, 8), (8, 16), (64, 128)])
def test_other_patterns(device, keep, group):
    for vector in (32, 64, 128):
        try_problem(make_problem(96, 128, 300, keep, group, vector), device)


@gpu
def test_it_passes_the_harness(device):
    stream = device.create_stream()
    for sizes, density in (
        ((512, 512, 512), 0.5),
        ((256, 1024, 1000), 0.375),
        ((1024, 512, 2048), 0.125),
    ):
        p = operands.problem(*sizes, density, SEED)
        bound = room.bind(NAME, p, device)
        assert check.check(bound, p, check.oracle(p), stream).rel_err < 1e-6
        assert 0 < bound.prepare_ms < 10_000


@gpu
def test_nothing_beside_c_is_written(device):
    import cupy

    margin = 4096
    for m, n in ((32, 32), (96, 160)):
        p = make_problem(m, n, 300, 8, 32, 32)
        whole = cupy.full(m * n + 2 * margin, 7, cupy.float32)
        ops = replace(p.device(), c=whole[margin:-margin].reshape((m, n), order="F"))
        try_problem(replace(p, make_device=lambda ops=ops: ops, _device=None), device)
        assert bool((whole[:margin] == 7).all()) and bool((whole[-margin:] == 7).all())


@gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_is_caught(device, monkeypatch, tmp_path, bug):
    """By the check of every record, on the room's own operands."""
    p = operands.problem(96, 160, 600, 0.25, 8)
    reference, stream = check.oracle(p), device.create_stream()
    assert check.check(room.bind(NAME, p, device), p, reference, stream).rel_err < 1e-6
    mutated(monkeypatch, tmp_path, bug)
    with pytest.raises(check.WrongResult):
        check.check(room.bind(NAME, p, device), p, reference, stream)
