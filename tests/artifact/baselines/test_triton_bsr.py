import contextlib
import sys
import types
import warnings
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import (
    DEVICE,
    STREAM,
    Timer,
    bcsr_problem,
    blocks_with_addresses,
    csr_problem,
    install,
    sparse_matrix,
)

from artifact.baselines import triton_bsr
from artifact.measure import bench, check
from kernels.async_sparse import operands
from kernels.formats import bcsr, half
from kernels.formats.half import Half

NAMES = triton_bsr.NAMES
#: Sizes in whole blocks of 16, and some that are not.
WHOLE, RAGGED = (64, 32, 96), (50, 32, 83)
LAYOUTS, DTYPES = operands.LAYOUTS, operands.DTYPES


class Tensor:
    """A tensor on the memory of an array: int16 ones become bfloat16 or float16 by `view`, float32 stays."""

    def __init__(self, array, dtype=None):
        self.array, self.dtype = array, dtype or array.dtype.name

    def view(self, dtype):
        assert self.dtype == "int16" and dtype in half.DTYPES
        return Tensor(self.array.view(np.uint16), dtype)

    def numbers(self):
        return self.array if self.dtype == "float32" else half.from_bits(self.array, self.dtype)


class Torch(types.ModuleType):
    """Stands in for torch and for torch.sparse._triton_ops: multiplies on the CPU.

    launched: (stream, parameters) of each multiplication; refuse(parameters): what it says, or None.
    """

    __version__ = "2.0"
    bfloat16, float16 = half.DTYPES
    float32 = "float32"

    def __init__(self):
        super().__init__("torch")
        self.stream, self.launched, self.made, self.warned = 0, [], [], False
        self.refuse = lambda meta: None
        self.cuda = SimpleNamespace(
            is_available=lambda: True, synchronize=lambda: None, stream=self.on, ExternalStream=self.external
        )

    @contextlib.contextmanager
    def on(self, stream):
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    def external(self, handle):
        self.made.append(handle)
        return handle

    def from_dlpack(self, array):
        return Tensor(array)

    def sparse_bsr_tensor(self, row_ptr, col_idx, values, size, check_invariants):
        warnings.warn("in beta state", UserWarning, stacklevel=2)
        assert row_ptr.dtype == col_idx.dtype == "int32" and not check_invariants
        return SimpleNamespace(row_ptr=row_ptr, col_idx=col_idx, values=values, size=size)

    def bsr_dense_mm(self, bsr, dense, out):
        tile = dense.array.shape[1] // max(dense.array.shape[1] // bsr.values.array.shape[1], 1)
        meta = {"SPLIT_N": dense.array.shape[1] // tile}
        return self.bsr_dense_addmm(out, bsr, dense, beta=0, alpha=1, out=out, meta=meta)

    def bsr_dense_addmm(self, given, bsr, dense, *, beta, alpha, out, meta):
        if not self.warned:  # once, as PyTorch does
            self.warned = True
            warnings.warn("non-optimal triton kernel parameters", UserWarning, stacklevel=2)
        if self.refuse(meta):
            raise RuntimeError(self.refuse(meta))
        assert given is out and (beta, alpha) == (0, 1)
        assert bsr.values.dtype == dense.dtype == out.dtype
        (m, k), n = bsr.size, dense.array.shape[1]
        b_row, b_col = bsr.values.array.shape[1:]
        # What its views into tiles ask for, and Triton of a tile.
        assert not m % b_row and not k % b_col and dense.array.shape == (k, n)
        tile, rest = divmod(n, meta["SPLIT_N"])
        assert not rest and tile >= 16 and not tile & (tile - 1)
        assert out.array.flags.c_contiguous or out.array.flags.f_contiguous
        a = bcsr.Bcsr(m, k, bsr.values.dtype, bsr.row_ptr.array, bsr.col_idx.array, bsr.values.array, 0)
        product = bcsr.to_dense(a) @ dense.numbers()
        out.array[:] = product if out.dtype == "float32" else half.to_bits(product, out.dtype)
        self.launched.append((self.stream, meta))


@pytest.fixture
def torch(monkeypatch):
    fake = Torch()
    install(monkeypatch)
    sparse = types.ModuleType("torch.sparse")
    sparse._triton_ops = fake
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setitem(sys.modules, "torch.sparse", sparse)
    Timer(monkeypatch, lambda name, turn: 1.0)
    return fake


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("shape", [WHOLE, RAGGED])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("error")
def test_the_product_is_that_of_the_same_operands(torch, name, dtype, layout, shape):
    problem = bcsr_problem(*shape, block=16, dtype=dtype, layout=layout)
    bound = triton_bsr.bind(name, problem, DEVICE)
    assert bound.name == name and bound.prepare_ms > 0
    assert (bound.result() is problem.device().c) == (shape == WHOLE)
    size = 4 if dtype == "tf32" else 2
    assert bound.prepare_bytes == (0 if shape == WHOLE else size * 32 * (64 + 96))
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        check.check(bound, problem, reference, STREAM)


@pytest.mark.parametrize("dtype", operands.CSR_DTYPES)
@pytest.mark.parametrize("m, n, k", [(128, 64, 192), (100, 64, 150)])
def test_a_csr_matrix_is_made_blocks_first(monkeypatch, torch, dtype, m, n, k):
    blocks_with_addresses(monkeypatch)
    problem = csr_problem(m, n, k, dtype=dtype)
    bound = triton_bsr.bind("triton_bsr", problem, DEVICE)
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)
    size = 2 if dtype in half.DTYPES else 4
    blocks = bcsr.from_csr(problem.device().a, dtype="bfloat16" if size == 2 else "float32")
    copies = size * n * (128 + 192) * (m != 128)
    assert bound.prepare_bytes == blocks.nbytes + copies and bound.prepare_ms > 0
    assert (bound.result() is problem.device().c) == (m == 128)


def test_a_launch_goes_to_the_stream_that_is_given(torch):
    bound = triton_bsr.bind("triton_bsr", bcsr_problem(*WHOLE, block=16), DEVICE)
    torch.launched.clear()
    for handle in (11, 11, 22):
        bound.launch(SimpleNamespace(handle=handle))
    assert [stream for stream, _ in torch.launched] == [11, 11, 22] and torch.stream == 0
    assert torch.made == [11, 22], "made where it changes: that takes host time"


def test_the_fastest_wins_and_what_does_not_compile_is_left_out(monkeypatch, torch):
    torch.refuse = lambda meta: "out of resource" if meta.get("num_warps") == 8 else None
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


# ---------------------------------------------------------------- what is refused, and life


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
        monkeypatch.setattr(Torch, "bsr_dense_mm", None)
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


@pytest.mark.parametrize("name", NAMES)
def test_operands_live_as_long_as_the_contender(torch, name):
    problem = bcsr_problem(*WHOLE, block=16)
    seen = [weakref.ref(x) for x in (problem.device().a.val, problem.device().b.bits)]
    bound = triton_bsr.bind(name, problem, DEVICE)
    problem.make_device = problem.make_host = None
    problem.release()
    bound.launch(STREAM)
    assert all(x() is not None for x in seen)
    del bound
    assert not any(x() is not None for x in seen)


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
