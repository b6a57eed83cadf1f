"""PyTorch's Triton kernel: whose stream it runs on, which parameters win, and what it is refused."""

import sys
from types import SimpleNamespace

import pytest
from contenders import refused
from fake_libraries import DEVICE, STREAM, Timer, bcsr_problem

from artifact.baselines import triton_bsr
from artifact.measure import bench, verification
from kernels.async_sparse import operands

NAMES = triton_bsr.NAMES
WHOLE = (64, 32, 96)  #: in blocks of 16


@pytest.fixture
def torch(libraries):
    return libraries.torch


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("error")
def test_pytorch_s_warnings_are_not_the_reader_s(torch, name):
    assert triton_bsr.prepare(name, bcsr_problem(*WHOLE, block=16), DEVICE).name == name and torch.warned


def test_a_launch_goes_to_the_stream_that_is_given(torch):
    bound = triton_bsr.prepare("triton_bsr", bcsr_problem(*WHOLE, block=16), DEVICE)
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
    refused(f"triton_bsr needs {says}", triton_bsr.prepare, "triton_bsr", bcsr_problem(*WHOLE, block=16), DEVICE)


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


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("layout", operands.LAYOUTS)
def test_what_is_tuned_is_right_and_no_slower(device, layout):
    problem = operands.problem(2048, 1024, 2048, 0.1, layout=layout)
    try:
        bounds = {name: triton_bsr.prepare(name, problem, device) for name in NAMES}
    except ValueError as error:
        assert "needs PyTorch" in str(error)
        pytest.skip(str(error))
    reference, stream = verification.oracle(problem), device.create_stream()
    for bound in (*bounds.values(), *bounds.values()):
        verification.check(bound, problem, reference, stream)
    ours, tuned = (timing.median_us for timing in bench.time(bounds, device).values())
    assert bounds["triton_bsr_tuned"].choice and tuned <= 1.1 * ours
