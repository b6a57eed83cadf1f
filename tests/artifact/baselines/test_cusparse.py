"""cuSPARSE, cuSPARSELt and PyTorch's Triton kernel: what is made of the operands, how a library is told of orders,
which of its algorithms wins, what it is refused."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from fake_libraries import (
    DEVICE,
    STREAM,
    SplitKMode,
    Timer,
    bcsr_problem,
    csr_problem,
    two_four_problem,
)
from refused import refused

from artifact.baselines import cusparse, cusparselt, triton_bsr
from artifact.measure import verification
from kernels.async_sparse import operands
from kernels.formats import bcsr, csr, half, nm
from kernels.formats.half import Half

FORMATS = cusparse.FORMATS
#: Sizes in whole blocks of 16, and some that are not.
WHOLE, RAGGED = (64, 24, 96), (50, 24, 83)


@pytest.fixture
def library(libraries):
    return libraries.cusparse


@pytest.mark.parametrize("vector", [1, 4, 128])
@pytest.mark.parametrize(
    ("k", "keep", "group", "real"),
    [(64, 8, 32, 16), (45, 16, 32, 29), (33, 2, 32, 3), (7, 4, 4, 7)],
)
def test_the_transpose_is_csr_without_surplus_rows(k, keep, group, real, vector):
    b = nm.random(k, 10, keep, group, vector, 3)
    made = csr.validate(cusparse.transposed_csr(b))
    assert (made.m, made.k, made.nnz) == (10, k, 10 * real) and (csr.to_dense(made) == nm.to_dense(b).T).all()
    ascending = np.diff(made.col_idx.reshape(10, real), axis=1) > 0
    assert ascending.all(), "no column twice, so that no algorithm meets repeated ones"


@pytest.mark.parametrize("dtype", csr.DTYPES)
def test_the_csr_of_blocks_has_the_original_non_zeros_only(dtype):
    matrix = csr.Csr(
        40,
        50,
        np.r_[0, np.full(39, 3), 5].astype(np.int32),
        np.array([49, 3, 17, 2, 44], np.int32),
        np.array([1, -2, 0.5, 4, -1], np.float32),
    )
    made = cusparse.csr_of_blocks(bcsr.from_csr(matrix, block=16, dtype=dtype))
    assert made.nnz == 5 and made.row_ptr.tolist() == matrix.row_ptr.tolist()
    assert made.col_idx.tolist() == [3, 17, 49, 2, 44]
    values = made.val if dtype == "float32" else half.from_bits(made.val, dtype)
    assert values.tolist() == [-2, 0.5, 1, 4, -1]
    assert made.val.dtype == (np.float32 if dtype == "float32" else np.uint16)


@pytest.mark.parametrize(("layout", "transposed"), [("source", 1), ("linear", 0), ("row", 0)])
def test_where_orders_differ_b_is_transposed_or_given_as_it_lies(library, layout, transposed):
    prepare = cusparse.prepare("alg3", bcsr_problem(*RAGGED, block=16, layout=layout), DEVICE).launch
    prepare(STREAM)
    assert library.log[-1][3] == transposed and library.log[-1][-2] == 12
    assert len(library.calls("preprocess")) == 2, "the second is timed"
    assert library.log[-1][2:] == library.calls("preprocess")[-1][2:], "the arguments that were preprocessed"
    library.refuses = lambda b, c, transposed: transposed
    problem = bcsr_problem(*RAGGED, block=16, layout=layout)
    bound = cusparse.prepare_blocks("bsr", problem, DEVICE)
    verification.check(bound, problem, verification.oracle(problem, on="cpu"), STREAM)
    assert library.log[-1][3] == 0 and len(library.calls("preprocess")) == 2, "which does nothing for blocks"


def test_rows_that_repeat_columns_are_not_for_alg3(library):
    problem = csr_problem(8, 24, 64)
    problem.k = 3
    assert cusparse.prepare("alg3", problem, DEVICE)
    problem.k = 2
    assert cusparse.prepare("alg2", problem, DEVICE)
    refused(
        "alg3 fails where a row holds more entries than A has columns, here 3 in 2",
        cusparse.prepare,
        "alg3",
        problem,
        DEVICE,
    )


@pytest.mark.parametrize("dtype", csr.DTYPES)
@pytest.mark.parametrize("shape", [(64, 96), (50, 83), (16, 16)])
def test_blocked_ell_pads_every_row_of_blocks_to_the_longest(shape, dtype):
    a = bcsr.random(*shape, 0.4, 3, block=16, dtype=dtype)
    columns, values = cusparse.blocked_ell(a)
    lengths = np.diff(a.row_ptr)
    assert columns.shape == (a.block_rows, lengths.max()) and columns.dtype == np.int32
    assert values.shape == (16 * a.block_rows, 16 * lengths.max()) and values.dtype == a.val.dtype
    assert columns.nbytes + values.nbytes == cusparse.ell_bytes(a)
    assert ((columns >= 0).sum(axis=1) == lengths).all()
    for row, length in enumerate(lengths):
        first = a.row_ptr[row]
        assert (columns[row, :length] == a.col_idx[first : first + length]).all()
        assert (columns[row, length:] == -1).all()
        cells = values[16 * row : 16 * row + 16].reshape(16, -1, 16).transpose(1, 0, 2)
        assert (cells[:length] == a.val[first : first + length]).all() and not cells[length:].any()


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
@pytest.mark.parametrize("layout", operands.LAYOUTS)
def test_whole_operands_are_shared_and_others_padded(layout, dtype):
    problem = bcsr_problem(*WHOLE, block=16, layout=layout, dtype=dtype)
    given = problem.device()
    whole, output = cusparse.padded(given)
    assert whole.b is given.b and whole.c is given.c and output is given.c
    problem = bcsr_problem(*RAGGED, block=16, layout=layout, dtype=dtype)
    given = problem.device()
    whole, output = cusparse.padded(given)
    assert (whole.a.m, whole.a.k, whole.b.shape, whole.c.shape) == (64, 96, (96, 24), (64, 24))
    b, c = map(cusparse.array_of, (whole.b, whole.c))
    assert (b[:83] == cusparse.array_of(given.b)).all() and not b[83:].any()
    for ours, theirs in ((b, given.b), (c, given.c)):
        assert ours.flags.c_contiguous == cusparse.array_of(theirs).flags.c_contiguous
    assert output.shape == (50, 24) and np.shares_memory(cusparse.array_of(output), c)
    assert isinstance(output, Half) == (dtype == "bfloat16")


def test_padding_beyond_the_memory_is_refused_with_its_bytes(monkeypatch, library):
    problem = bcsr_problem(*WHOLE, block=16)
    need = cusparse.ell_bytes(problem.device().a)
    monkeypatch.setattr(cusparse, "free_bytes", lambda: need - 1)
    refused(f"takes {need} bytes for m=64, k=96, and {need - 1} are", cusparse.prepare_blocks, "bell", problem, DEVICE)
    monkeypatch.setattr(cusparse, "free_bytes", lambda: need)
    assert cusparse.prepare_blocks("bell", problem, DEVICE).name == "cusparse_bell"


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_the_csr_of_blocks_is_the_same_on_the_gpu(device):
    a = bcsr.random(300, 500, 0.3, 1, block=32)
    ours, theirs = cusparse.csr_of_blocks(a), cusparse.csr_of_blocks(bcsr.to_device(a))
    for name in ("row_ptr", "col_idx", "val"):
        assert (getattr(ours, name) == getattr(theirs, name).get()).all()


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
def test_empty_rows_and_one_long_row_are_right(device, format):
    problem = operands.problem(640, 64, 512, 0.2, layout="linear")
    a = bcsr.to_host(problem.device().a)
    row_ptr = np.array([0, 8, *[8] * 8, 9], np.int32)  # all columns, nothing eight times, one
    columns = np.array([*range(8), 3], np.int32)
    val = np.resize(a.val, (9, 64, 64))
    made = replace(a, row_ptr=row_ptr, col_idx=columns, val=val, nnz=val.size)
    problem.device().a = bcsr.to_device(bcsr.validate(made))
    problem.host().a = made
    bound = cusparse.prepare_blocks(format, problem, device)
    verification.check(bound, problem, verification.oracle(problem), device.create_stream())


@pytest.mark.gpu
def test_the_memory_that_is_free_is_the_gpus(device):
    import cupy

    assert 0 < cusparse.free_bytes() <= cupy.cuda.runtime.memGetInfo()[1]


# ---------------------------------------------------------------- cuSPARSELt


M, N, K = 16, 24, 32


@pytest.fixture
def lt(libraries):
    return libraries.sparse_lt


@pytest.fixture
def given(lt):
    return two_four_problem(M, N, K)


def number(choice: str) -> int:
    return int(choice.split()[1].rstrip(","))


# ---------------------------------------------------------------- what is computed


def test_the_library_compresses_and_the_second_time_counts(monkeypatch, lt, given):
    clock = iter((10.0, 10.25))  # the first time is not looked at
    monkeypatch.setattr("kernels.contract.time.perf_counter", lambda: next(clock))
    bound = cusparselt.prepare("best", given, DEVICE)
    assert len(lt.calls("compress")) == 2 and bound.prepare_ms == 250
    assert bound.prepare_bytes == 2 * M * K, "compressed A; algorithm 0 needs no workspace"


# ---------------------------------------------------------------- which algorithm


def test_the_default_is_algorithm_0_and_nothing_is_timed(monkeypatch, lt, given):
    timer = Timer(monkeypatch, lambda name, turn: 1.0)
    bound = cusparselt.prepare("default", given, DEVICE)
    assert bound.name == "cusparselt_default" and bound.choice.startswith("algorithm 0, split-K 1")
    assert not timer.seen and not lt.launched


def test_the_fastest_is_kept_whatever_the_search_finds(monkeypatch, lt, given):
    timer = Timer(monkeypatch, lambda name, turn: {0: 3.0, 1: 2.0, 4: 1.0}[number(name)])
    bound = cusparselt.prepare("best", given, DEVICE)
    # 2 cannot be planned, 3 not launched, 5 is none.
    assert {number(name) for name in timer.seen[0]} == {0, 1, 4}
    assert bound.name == "cusparselt" and bound.choice == "algorithm 4, split-K 1, HEURISTIC"
    bound.launch(SimpleNamespace(handle=11))
    assert lt.launched[-1] == (4, SplitKMode.HEURISTIC, 11)


@pytest.mark.parametrize(("finds", "more"), [(1, 0), (4, 64)])
def test_what_the_search_finds_is_a_candidate_with_a_workspace_of_its_own(monkeypatch, lt, given, finds, more):
    lt.searches = finds
    Timer(monkeypatch, lambda name, turn: 1.0 if "search" in name else 2.0)
    bound = cusparselt.prepare("best", given, DEVICE)
    assert bound.choice == f"algorithm {finds}, split-K 1, HEURISTIC, as the library's search left it"
    assert bound.prepare_bytes == 2 * M * K + more
    verification.check(bound, given, verification.oracle(given, on="cpu"), STREAM)
    assert lt.launched[-1][0] == finds


def test_a_search_that_fails_leaves_the_others(monkeypatch, lt, given):
    lt.refuse = "search"
    timer = Timer(monkeypatch, lambda name, turn: float(number(name)))
    bound = cusparselt.prepare("best", given, DEVICE)
    assert number(bound.choice) == 0 and len(timer.seen[0]) == 3
    assert len(lt.alive) == 7, "a handle, three matrices, their product, a selection and a plan"


def test_ways_to_split_k_are_tried_on_the_fastest(monkeypatch, lt, given):
    us = {0: 3.0, 1: 2.0, 4: 9.0}
    timer = Timer(
        monkeypatch,
        lambda name, turn: 1.0 if "0, split-K -1, STREAMK" in name else us[number(name)],
    )
    bound = cusparselt.prepare("best", given, DEVICE)
    assert bound.choice == "algorithm 0, split-K -1, STREAMK"
    assert not any("STREAMK" in name for name in timer.seen[0])
    # Of the three that lead, two are algorithm 1. Each of both has seven more ways on Hopper.
    assert len(timer.seen[2]) == 3 + 2 * 7
    bound.launch(STREAM)
    assert lt.launched[-1][1] == SplitKMode.STREAMK


def test_only_those_that_lead_are_timed_again_and_then_that_counts(monkeypatch):
    rough = dict(zip("abcde", (5, 1, 2, 3, 4), strict=True))
    timer = Timer(monkeypatch, lambda name, turn: rough[name] if turn == 0 else -rough[name])
    contenders = {name: SimpleNamespace(launch=lambda stream: None) for name in rough}
    assert cusparselt.fastest(contenders, DEVICE) == ["d", "c", "b"]
    assert [sorted(seen) for seen in timer.seen] == [list("abcde"), list("bcd")]


# ---------------------------------------------------------------- on a GPU


# ---------------------------------------------------------------- PyTorch's Triton kernel


@pytest.fixture
def torch(libraries):
    return libraries.torch


@pytest.mark.parametrize("name", triton_bsr.NAMES)
@pytest.mark.filterwarnings("error")
def test_pytorch_s_warnings_are_not_the_reader_s(torch, name):
    assert triton_bsr.prepare(name, bcsr_problem(64, 32, 96, block=16), DEVICE).name == name and torch.warned


def test_a_launch_goes_to_the_stream_that_is_given(torch):
    bound = triton_bsr.prepare("triton_bsr", bcsr_problem(64, 32, 96, block=16), DEVICE)
    torch.launched.clear()
    for handle in (11, 11, 22):
        bound.launch(SimpleNamespace(handle=handle))
    assert [stream for stream, _ in torch.launched] == [11, 11, 22] and torch.stream == 0
    assert torch.made == [11, 22], "made where it changes: that takes host time"


def test_the_fastest_wins_and_what_does_not_compile_is_left_out(monkeypatch, torch):
    torch.breaks = lambda meta: meta.get("num_warps") == 8
    timer = Timer(monkeypatch, lambda name, turn: 1.0 if "SPLIT_N 1, " in name else 2.0)
    problem = bcsr_problem(64, 128, 96, block=16)
    bound = triton_bsr.prepare("triton_bsr_tuned", problem, DEVICE)
    assert len(timer.seen[0]) == 1 + 2 * 2, "PyTorch's own; two tiles with two pipelines"
    assert bound.choice == "SPLIT_N 1, GROUP_SIZE_ROW 4, num_stages 1, num_warps 4"
    torch.launched.clear()
    verification.check(bound, problem, verification.oracle(problem, on="cpu"), STREAM)
    assert [meta["SPLIT_N"] for _, meta in torch.launched] == [1]
    Timer(monkeypatch, lambda name, turn: 1.0 if "PyTorch" in name else 2.0)
    bound = triton_bsr.prepare("triton_bsr_tuned", problem, DEVICE)
    assert (bound.name, bound.choice) == ("triton_bsr_tuned", "PyTorch's own parameters")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda torch: sys.modules.update(torch=None), "PyTorch, which cannot be imported here"),
        (lambda torch: setattr(torch.cuda, "is_available", lambda: False), "PyTorch with CUDA, and the one here .*2.0"),
        (lambda torch: setattr(torch, "_triton_ops", SimpleNamespace()), "PyTorch with Triton, and the one here .*2.0"),
    ],
)
def test_without_pytorch_its_cuda_or_triton_it_is_a_sentence(torch, spoil, says):
    spoil(torch)
    refused(f"triton_bsr needs {says}", triton_bsr.prepare, "triton_bsr", bcsr_problem(64, 32, 96, block=16), DEVICE)


@pytest.mark.parametrize(("block", "takes", "others"), [(16, (16, 48), (40, 8, 1)), (64, (32, 192), (48, 96))], ids=str)
def test_n_is_a_multiple_of_the_block_or_a_smaller_power_of_two(torch, block, takes, others):
    for n in takes:
        problem = bcsr_problem(64, n, 128, block=block)
        bound = triton_bsr.prepare("triton_bsr", problem, DEVICE)
        verification.check(bound, problem, verification.oracle(problem, on="cpu"), STREAM)
    for n in others:
        refused(
            f"but n={n}: choose another n",
            triton_bsr.prepare,
            "triton_bsr",
            bcsr_problem(64, n, 128, block=block),
            DEVICE,
        )


def test_what_32_bits_do_not_count_is_refused(monkeypatch, torch):
    problem = bcsr_problem(64, 16, 96, block=16)
    most = max(64 * 16, 96 * 16, problem.device().a.val.size)
    monkeypatch.setattr(triton_bsr, "MOST_ELEMENTS", most - 1)
    refused(f"offsets in 32 bits, .* a matrix has {most} elements", triton_bsr.prepare, "triton_bsr", problem, DEVICE)
