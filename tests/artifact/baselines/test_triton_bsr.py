"""PyTorch's Triton kernel: whose stream it runs on, which parameters win, and what it is refused."""

import sys
from types import SimpleNamespace

import pytest
from capturing import check_captured
from fake_libraries import DEVICE, STREAM, Timer, bcsr_problem, install, sparse_matrix

from artifact.baselines import triton_bsr
from artifact.measure import bench, check
from kernels.async_sparse import operands
from kernels.formats import bcsr, half
from kernels.formats.half import Half

NAMES, LAYOUTS = triton_bsr.NAMES, operands.LAYOUTS
WHOLE = (64, 32, 96)  #: in blocks of 16


@pytest.fixture
def torch(libraries):
    return libraries.torch


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("error")
def test_pytorch_s_warnings_are_not_the_reader_s(torch, name):
    assert triton_bsr.bind(name, bcsr_problem(*WHOLE, block=16), DEVICE).name == name and torch.warned


def test_a_launch_goes_to_the_stream_that_is_given(torch):
    bound = triton_bsr.bind("triton_bsr", bcsr_problem(*WHOLE, block=16), DEVICE)
    torch.launched.clear()
    for handle in (11, 11, 22):
        bound.launch(SimpleNamespace(handle=handle))
    assert [stream for stream, _ in torch.launched] == [11, 11, 22] and torch.stream == 0
    assert torch.made == [11, 22], "made where it changes: that takes host time"


def test_the_fastest_wins_and_what_does_not_compile_is_left_out(monkeypatch, torch):
    torch.breaks = lambda meta: meta.get("num_warps") == 8
    timer = Timer(monkeypatch, lambda name, turn: 1.0 if "SPLIT_N 1, " in name else 2.0)
    problem = bcsr_problem(64, 128, 96, block=16)
    bound = triton_bsr.bind("triton_bsr_tuned", problem, DEVICE)
    assert len(timer.seen[0]) == 1 + 2 * 2, "PyTorch's own; two tiles with two pipelines"
    assert bound.choice == "SPLIT_N 1, GROUP_SIZE_ROW 4, num_stages 1, num_warps 4"
    torch.launched.clear()
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)
    assert [meta["SPLIT_N"] for _, meta in torch.launched] == [1]
    Timer(monkeypatch, lambda name, turn: 1.0 if "PyTorch" in name else 2.0)
    bound = triton_bsr.bind("triton_bsr_tuned", problem, DEVICE)
    assert (bound.name, bound.choice) == ("triton_bsr_tuned", "PyTorch's own parameters")


def test_without_pytorch_it_is_a_sentence(monkeypatch):
    install(monkeypatch)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match="triton_bsr needs PyTorch, which cannot be imported here"):
        triton_bsr.bind("triton_bsr", bcsr_problem(*WHOLE, block=16), DEVICE)


@pytest.mark.parametrize("what", ["CUDA", "Triton"])
def test_without_cuda_or_triton_it_is_a_sentence(monkeypatch, torch, what):
    if what == "CUDA":
        torch.cuda.is_available = lambda: False
    else:
        torch._triton_ops = SimpleNamespace()
    message = f"needs PyTorch with {what}, and the one here .version 2.0. is without"
    with pytest.raises(ValueError, match=message):
        triton_bsr.bind("triton_bsr", bcsr_problem(*WHOLE, block=16), DEVICE)


@pytest.mark.parametrize(
    ("n", "block", "takes"),
    [
        (16, 16, True),
        (48, 16, True),
        (40, 16, False),
        (32, 64, True),
        (48, 64, False),
        (96, 64, False),
        (192, 64, True),
        (8, 16, False),
        (1, 16, False),
    ],
)
def test_n_is_a_multiple_of_the_block_or_a_smaller_power_of_two(torch, n, block, takes):
    problem = bcsr_problem(64, n, 128, block=block)
    if takes:
        bound = triton_bsr.bind("triton_bsr", problem, DEVICE)
        check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)
    else:
        with pytest.raises(ValueError, match=f"but n={n}: choose another n"):
            triton_bsr.bind("triton_bsr", problem, DEVICE)


def test_what_32_bits_do_not_count_is_refused(monkeypatch, torch):
    problem = bcsr_problem(64, 16, 96, block=16)
    most = max(64 * 16, 96 * 16, problem.device().a.val.size)
    monkeypatch.setattr(triton_bsr, "MOST_ELEMENTS", most - 1)
    with pytest.raises(ValueError, match=f"offsets in 32 bits, .* a matrix has {most} elements"):
        triton_bsr.bind("triton_bsr", problem, DEVICE)


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def gpu(device):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch is without CUDA")
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", half.DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block", bcsr.SIDES)
def test_triton_is_right_in_every_layout(gpu, block, layout, dtype):
    stream = gpu.create_stream()
    for m, n, k in ((256, 128, 384), (300, 256, 500), (1001, 128, 777)):
        problem = operands.problem(m, n, k, 0.3, block=block, dtype=dtype, layout=layout)
        reference = check.oracle(problem)
        bound = triton_bsr.bind("triton_bsr", problem, gpu)
        for _ in range(2):
            check.check(bound, problem, reference, stream)
        assert isinstance(bound.result(), Half)
        assert (bound.prepare_bytes == 0) == (m % block == 0 and k % block == 0)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", operands.CSR_DTYPES)
def test_triton_is_right_on_a_csr_matrix(gpu, dtype):
    a = sparse_matrix(1000, 777)
    problem = operands.problem_from_csr(a, 128, 1, dtype=dtype, format="csr", reorder="")
    try:
        bound = triton_bsr.bind("triton_bsr", problem, gpu)
    except ValueError as error:  # sums in float64 are too much for the compiler of some versions
        assert "refuses" in str(error) and dtype not in half.DTYPES
        pytest.skip(str(error))
    reference, stream = check.oracle(problem), gpu.create_stream()
    for _ in range(2):
        check.check(bound, problem, reference, stream)
    assert bound.prepare_ms > 0 and bound.prepare_bytes > 0


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_tuned_is_right_and_no_slower(gpu, layout):
    problem = operands.problem(2048, 1024, 2048, 0.1, layout=layout)
    reference, stream = check.oracle(problem), gpu.create_stream()
    bounds = {name: triton_bsr.bind(name, problem, gpu) for name in NAMES}
    for bound in (*bounds.values(), *bounds.values()):
        check.check(bound, problem, reference, stream)
    assert bounds["triton_bsr_tuned"].choice
    timed = bench.time(bounds, gpu)
    ours, tuned = (timed[name].median_us for name in NAMES)
    assert tuned <= 1.1 * ours


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1024, 256, 512), (1000, 256, 500)])
def test_triton_can_be_captured(gpu, shape):
    problem = operands.problem(*shape, 0.2, layout="linear")
    reference = check.oracle(problem)
    bound = triton_bsr.bind("triton_bsr", problem, gpu)
    check_captured(bound, problem, reference, gpu)
