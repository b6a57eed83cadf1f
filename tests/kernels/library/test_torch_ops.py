"""The operators of PyTorch with tensors on the host in the place of a plan, and on a GPU."""

import copy
import gc
from types import SimpleNamespace

import numpy as np
import pytest
import racing
import scipy.sparse as sp
from copied import close, twins
from given import LIMITS, of_format
from products import SEED
from refused import says

import kernels
from kernels import formats
from kernels.formats import bcsr, csr, nm, two_four
from kernels.formats.csr import Csr
from kernels.library import Sampled, dense, plans, torch_ops
from kernels.library.dense import Dense

torch = pytest.importorskip("torch")
M, K, N = 7, 5, 4


class OnHost(torch_ops.SparseMatrix):
    """A matrix whose products PyTorch makes on the host."""

    def __init__(self, a, called=""):
        self.a, self.device, self.called = a, None, called
        self._enter()

    @property
    def row(self):
        return torch.tensor(csr.rows(self.a)).long()

    @property
    def column(self):
        return torch.tensor(self.a.col_idx).long()

    def multiply(self, b, values, transposed):
        dense = torch.zeros(self.shape, dtype=b.dtype)
        values = torch.tensor(self.a.val, dtype=b.dtype) if values is None else values
        dense.index_put_((self.row, self.column), values.detach(), accumulate=True)
        with torch.autocast("cpu", enabled=False):
            return (dense.t() if transposed else dense) @ b.detach()

    def sample(self, g, b):
        return (g.detach()[self.row] * b.detach()[self.column]).sum(1)


@pytest.fixture
def matrix() -> OnHost:
    """Places repeat, and rows and columns are empty."""
    row_ptr, col_idx = np.array([0, 3, 3, 5, 9, 9, 9, 10], np.int32), np.array([3, 3, 1, 1, 1, 0, 1, 3, 3, 2], np.int32)
    return OnHost(csr.validate(csr.Csr(M, K, row_ptr, col_idx, np.arange(1, 11, dtype=np.float32))))


def tensors(matrix):
    torch.manual_seed(0)
    b = torch.randn(K, N, dtype=torch.float64, requires_grad=True)
    return b, torch.randn(matrix.a.nnz, dtype=torch.float64, requires_grad=True)


def test_gradients_of_b_and_of_values_are_right_and_so_are_theirs(matrix):
    b, values = tensors(matrix)
    assert torch.autograd.gradcheck(lambda x: matrix @ x, (b,))
    assert torch.autograd.gradcheck(matrix.matmul, (b, values))
    assert torch.autograd.gradgradcheck(matrix.matmul, (b, values))
    x, dense = torch.randn(N, M, dtype=torch.float64, requires_grad=True), torch.tensor(formats.to_dense(matrix.a))
    assert torch.allclose(x @ matrix, x @ dense.double()) and torch.autograd.gradcheck(lambda x: x @ matrix, (x,))
    assert torch.allclose(x[0] @ matrix, x[0] @ dense.double())
    assert torch.autograd.gradcheck(lambda x, w: matrix.matmul(x.T, w, transpose=True), (x, values))


@pytest.mark.parametrize("transposed", [False, True])
def test_the_operators_are_what_pytorch_asks_of_one(matrix, transposed):
    b, values = tensors(matrix)
    g = torch.randn(M, N, dtype=torch.float64, requires_grad=True)
    op = torch.ops.sparsity_on_trial
    left, rows = (g, K) if transposed else (b, M)
    for given in (None, values):
        torch.library.opcheck(op.spmm.default, (left, given, matrix.number, transposed, rows))
    pair = (b, g) if transposed else (g, b)
    torch.library.opcheck(op.sddmm.default, (*pair, matrix.number, transposed, matrix.a.nnz))


def test_a_layer_is_compiled_as_one_graph(matrix):
    given = tensors(matrix)

    def layer(x, w):
        return torch.relu(matrix.matmul(x, values=w)).sum()

    made, right = (f(*given) for f in (torch.compile(layer, backend="aot_eager", fullgraph=True), layer))
    found, expected = ((y, *torch.autograd.grad(y, given)) for y in (made, right))
    assert all(torch.allclose(*pair) for pair in zip(found, expected, strict=True))


@pytest.fixture
def as_if_on_a_gpu(pretended, monkeypatch):
    """A GPU that is not there, on which tensors of the host are."""

    def describe(x, name):
        if not isinstance(x, torch.Tensor):
            return Dense(x.data.ptr, x.shape, tuple(step // x.itemsize for step in x.strides), x.dtype.name, 0)
        return Dense(x.data_ptr(), tuple(x.shape), x.stride(), str(x.dtype).removeprefix("torch."), 0)

    monkeypatch.setattr(dense, "describe", describe)
    monkeypatch.setattr(dense, "place", lambda x, name: (describe(x, name).ptr, describe(x, name)[1:]))
    monkeypatch.setattr(dense, "current", lambda like, gpu: 0)
    monkeypatch.setattr(dense, "empty", lambda like, shape, dtype, *_: torch.empty(shape, dtype=getattr(torch, dtype)))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return pretended(racing.H200)


def test_each_gradient_is_a_launch_on_the_tensors_themselves(as_if_on_a_gpu):
    launched = as_if_on_a_gpu.launched
    made = torch_ops.SparseMatrix(sp.random(M, K, 0.5, random_state=0, dtype="float32"), tune=False)
    assert repr(made).startswith(f"SparseMatrix({M} x {K}, Csr, ")
    b, values, g = torch.randn(K, N, requires_grad=True), torch.randn(made.a.nnz, requires_grad=True), torch.randn(M, N)
    out = made.matmul(b, values)
    out.backward(g)
    assert out.shape == (M, N) and b.grad.shape == (K, N) and values.grad.shape == values.shape
    made.matmul(b.detach())
    assert [step[2].partition(":")[0] for step in launched] == ["split_rows", "split_rows", "sddmm", "subwarp"]
    forward, backward, sampled, _ = ([x for x in step[3:] if type(x) is int] for step in launched)
    assert {b.data_ptr(), values.data_ptr(), out.data_ptr()} <= set(forward)
    assert g.data_ptr() in backward and values.data_ptr() not in backward, "Aᵀ has them in another order"
    assert sampled[2:4] == [g.data_ptr(), b.data_ptr()]


@pytest.mark.parametrize(("n", "longest", "kernel"), [(4, 9, "direct"), (3, 9, "split_rows"), (4, 2**15, "split_rows")])
def test_values_of_16_bits_are_multiplied_as_they_lie_where_a_kernel_takes_them(
    as_if_on_a_gpu, monkeypatch, n, longest, kernel
):
    monkeypatch.setattr(torch_ops.intake, "facts_of", lambda a: SimpleNamespace(longest=longest))
    made = torch_ops.SparseMatrix(sp.random(M, K, 0.5, random_state=0, dtype="float32"), tune=False)
    b, values = (torch.randn(*x).bfloat16().requires_grad_() for x in ((K, n), (made.a.nnz,)))
    made.matmul(b, values).backward(torch.randn(M, n).bfloat16())
    entries = [step[2].partition(": ")[2] for step in as_if_on_a_gpu.launched]
    assert [x.partition("<")[0] for x in entries] == [kernel, kernel, "sddmm"] and "<BF16, BF16, " in entries[-1]
    assert b.grad.dtype == values.grad.dtype == torch.bfloat16
    says(["float32", "bfloat16", "one dtype"], lambda: made.matmul(b, values.float()))


def test_blocks_are_transposed_as_blocks(as_if_on_a_gpu):
    made = torch_ops.SparseMatrix(bcsr.random(128, 192, 0.6, 0, block=(64, 32)), tune=False)
    b = torch.randn(192, 16).bfloat16().requires_grad_()
    made.matmul(b).backward(torch.randn(128, 16).bfloat16())
    kinds = {key[0]: found.a for key, found in made._plans.items()}
    assert (kinds[False].block, kinds[True].block) == ((64, 32), (32, 64))
    assert b.grad.shape == (192, 16)
    assert (formats.to_dense(kinds[True]) == formats.to_dense(kinds[False]).T).all()


B64, W64 = torch.ones(K, N).double(), torch.ones(10).double()


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (["B is 9 x 2", f"{K} columns"], lambda a: a @ torch.ones(9, 2)),
        (["B is 9", f"{K} columns"], lambda a: a @ torch.ones(9)),
        (["0 dimensions"], lambda a: a @ torch.ones(())),
        (["3 dimensions"], lambda a: a @ torch.ones(K, 2, 2)),
        (["3 dimensions"], lambda a: a @ torch.ones(2, K, 4)),
        (["numpy.ndarray", "tensors of PyTorch"], lambda a: a.matmul(np.ones((K, 2)))),
        (["builtins.list", "tensors of PyTorch"], lambda a: a @ [[1.0]] * K),
        (["torch.Tensor", "dense tensors"], lambda a: a @ torch.eye(K).to_sparse()),
        (["NoneType"], lambda a: a @ None),
        (["forward derivative"], lambda a: torch.func.jvp(a.matmul, (B64,), (B64,))),
        (["forward derivative"], lambda a: torch.func.jvp(lambda w: a.matmul(B64, w), (W64,), (W64,))),
    ],
)
def test_what_is_no_matrix_of_the_right_size_or_carries_a_derivative_is_one_sentence(matrix, words, work):
    says(words, lambda: work(matrix))


def test_under_autocast_changing_values_are_multiplied_in_its_dtype(matrix):
    b, values = (x.detach().float().requires_grad_() for x in tensors(matrix))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = matrix.matmul(b, values)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert b.grad.dtype == values.grad.dtype == torch.float32
    assert matrix.matmul(b, values).dtype == torch.float32


def test_a_gradient_that_would_be_lost_is_one_sentence(as_if_on_a_gpu):
    x = torch.ones(3, requires_grad=True)
    says(["out requires grad", "SparseMatrix"], lambda: dense.require_no_grad(x, "out"))
    for kept in (x.detach(), np.ones(3), object()):
        dense.require_no_grad(kept, "B")
    with torch.no_grad():
        dense.require_no_grad(x, "B")
    a = csr.from_scipy(sp.eye(3, format="csr", dtype=np.float32))
    made = Sampled(formats.to_device(a), as_if_on_a_gpu)
    g = torch.ones(3, 2)
    says(["G requires grad"], lambda: made(g.clone().requires_grad_(), g))
    says(["B requires grad"], lambda: made(g, g.clone().requires_grad_()))
    a = torch.eye(4).to_sparse_csr().requires_grad_()
    says(["A requires grad", "values="], lambda: torch_ops.SparseMatrix(a))
    with torch.no_grad():
        assert torch_ops.SparseMatrix(a).a.nnz == torch_ops.SparseMatrix(a.detach()).a.nnz == 4


# ---------------------------------------------------------------- copied and kept


class Layer(torch.nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.adjacency, self.linear = matrix, torch.nn.Linear(N, N).double()

    def forward(self, x):
        return torch.relu(self.adjacency @ self.linear(x))


def test_a_copied_module_multiplies_by_a_matrix_of_its_own(matrix):
    layer, (b, _) = Layer(matrix), tensors(matrix)
    layer.adjacency.called = ["a list"]
    right = layer(b), *torch.autograd.grad(layer(b).sum(), b)
    made = twins(layer)
    assert len({x.adjacency.number for x in (layer, *made.values())}) == 1 + len(made)
    matrix.a.val[:] = np.nan
    assert all(x.adjacency.called == ["a list"] and x.adjacency.called is not matrix.called for x in made.values())
    del layer, matrix
    gc.collect()
    for how, twin in made.items():
        compiled = torch.compile(twin, backend="aot_eager")
        assert torch.equal(twin(b), right[0]) and torch.equal(compiled(b), right[0]), how
        assert torch.equal(*torch.autograd.grad(twin(b).sum(), b), right[1]), how


def test_a_copy_plans_anew_where_b_is_and_reads_its_own_arrays(as_if_on_a_gpu):
    made = torch_ops.SparseMatrix(sp.eye(K, dtype="float32"), tune=False, accuracy="fp32", deterministic=False)
    b, values = torch.randn(K, N, requires_grad=True), torch.randn(K, requires_grad=True)
    out = made.matmul(b, values)
    out.sum().backward()
    assert made._plans and "_transpose" in vars(made) and "_sampled" in vars(made)
    for how, twin in twins(made).items():
        assert not twin._plans and not {"_transpose", "_sampled"} & set(vars(twin)) and twin.device is None, how
        assert (twin.accuracy, twin.tune, twin.deterministic) == ("fp32", False, False) and repr(twin) == repr(made)
        twin.a.val[:] += 1
        assert twin.matmul(b.detach(), values.detach()).shape == out.shape and twin.device is as_if_on_a_gpu, how
        ((key, plan),) = twin._plans.items()
        assert plan is not made._plans[key] and (plan.a.val == 2).all() and (made.a.val == 1).all(), how


def test_b_on_another_gpu_is_one_sentence(as_if_on_a_gpu, monkeypatch):
    made = torch_ops.SparseMatrix(sp.eye(K, dtype="float32", format="csr"), tune=False)
    there = dense.describe
    monkeypatch.setattr(dense, "describe", lambda x, name: there(x, name)._replace(device=1))
    says(["B is on GPU 1", "A on GPU 0"], lambda: made.matmul(torch.ones(K, N)))


# ---------------------------------------------------------------- what is kept, and asked for


@pytest.mark.parametrize("kind", ["nm", "2:4"])
def test_a_dense_transpose_is_kept_once_and_in_the_dtype_of_b(kind, as_if_on_a_gpu):
    a = nm.random(64, 32, 8, 32, 16, 0) if kind == "nm" else two_four.random(32, 64, "bfloat16", 0)
    made, dtype = torch_ops.SparseMatrix(a, tune=False), torch.float32 if kind == "nm" else torch.bfloat16
    b, g = (torch.randn(rows, 16).to(dtype) for rows in (64, 32))
    right = torch.tensor(formats.to_dense(a)).to(dtype)
    right = (right if kind == "nm" else right.T) @ g
    kept = set()
    for _ in range(2):
        out = made.matmul(b.requires_grad_())
        with torch.autocast("cpu", dtype=torch.float16):
            (of_b,) = torch.autograd.grad(out, b, g)
        assert of_b.dtype == dtype and torch.equal(of_b, right)
        kept |= {x.data_ptr() for x in made._dense.values()}
    assert len(kept) == 1 and not copy.deepcopy(made)._dense
    says(["values", type(a).__name__, "CSR"], lambda: made.matmul(b, torch.ones(3)))


@pytest.mark.parametrize("own", [None, False, True])
def test_the_same_bits_are_asked_for_by_the_matrix_or_else_by_pytorch(own, as_if_on_a_gpu, monkeypatch):
    asked, b = [], torch.ones(K, N, requires_grad=True)

    def plan(a, n, *, deterministic, **options):
        asked.append(deterministic)
        return lambda b, out, values=None: out.zero_()

    monkeypatch.setattr(plans, "plan", plan)
    made = torch_ops.SparseMatrix(sp.eye(K, dtype="float32", format="csr"), deterministic=own)
    for of_torch in (False, True):
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda now=of_torch: now)
        made.matmul(b).sum().backward()
    assert asked == ([False, False, True, True] if own is None else [own] * 2)


def test_a_matrix_that_is_gone_is_said():
    made = OnHost(csr.from_scipy(sp.eye(3)))
    number = made.number
    assert torch_ops.matrix_of(number) is made
    del made
    gc.collect()
    says([f"number {number} is gone"], lambda: torch_ops.matrix_of(number))


# ---------------------------------------------------------------- on a GPU, against float64

TALL, WIDE = 129, 200


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(SEED)


def repeated(m: int = TALL, k: int = WIDE) -> Csr:
    """CSR with repeated columns, and with empty rows and columns, among them the first and the last."""
    rng = np.random.default_rng(SEED)
    lengths = rng.integers(0, 12, m)
    lengths[[0, m // 2, m - 1]] = 0
    lengths[1] = 150
    columns = rng.integers(1, k - 1, lengths.sum()).astype(np.int32)
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return csr.validate(Csr(m, k, row_ptr, columns, rng.standard_normal(len(columns)).astype("f4")))


def derived(product, x, w, g, h, u) -> list:
    """A product, its gradients, and theirs."""
    y = product(x, w)
    first = torch.autograd.grad(y, (x, w), g.to(y.dtype), create_graph=True)
    return [y, *first, *torch.autograd.grad((first[0] * h).sum() + (first[1] * u).sum(), (x, w))]


@pytest.mark.gpu
@pytest.mark.usefixtures("open_gpu")
@pytest.mark.parametrize("n", [1, 16, 33, 128])
@pytest.mark.parametrize(("dtype", "limit"), [("float32", 2e-5), ("bfloat16", 2e-2), ("float16", 4e-3)])
def test_gradients_hold_where_places_repeat_and_rows_and_columns_are_empty(n, dtype, limit):
    a = repeated()
    rows, columns = (torch.tensor(x, device="cuda").long() for x in (csr.rows(a), a.col_idx))
    shapes = (WIDE, n), (a.nnz,), (TALL, n), (WIDE, n), (a.nnz,)
    like = {"device": "cuda", "dtype": getattr(torch, dtype)}
    given = [torch.randn(*shape, **like, requires_grad=i < 2) for i, shape in enumerate(shapes)]
    wide = [x.detach().double().requires_grad_(x.requires_grad) for x in given]

    def right(x, w):
        return x.new_zeros(TALL, WIDE).index_put((rows, columns), w, accumulate=True) @ x

    ours, theirs = derived(kernels.SparseMatrix(a, tune=False).matmul, *given), derived(right, *wide)
    for found, expected in zip(ours, theirs, strict=True):
        close(found.detach(), expected.detach(), limit)


@pytest.mark.gpu
@pytest.mark.usefixtures("open_gpu")
@pytest.mark.parametrize("kind", ["csr", "bcsr64 bfloat16", "2:4 bfloat16", "nm"])
def test_a_vector_and_no_columns_at_all_on_another_stream(kind):
    (a, right), name = of_format(kind, 192, 256), kind.partition(" ")[2] or "float32"
    matrix, stream, right = kernels.SparseMatrix(a, tune=False), torch.cuda.Stream(), torch.tensor(right).cuda()
    x, g = (torch.randn(size, device="cuda").to(getattr(torch, name)) for size in (256, 192))
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = matrix @ x.requires_grad_()
        y.backward(g)
    stream.synchronize()
    close(y.detach(), right @ x.detach().double(), LIMITS[name])
    close(x.grad, right.t() @ g.double(), LIMITS[name])
    nothing = torch.empty(256, 0, device="cuda", dtype=x.dtype, requires_grad=True)
    (matrix @ nothing).sum().backward()
    assert nothing.grad.shape == nothing.shape
