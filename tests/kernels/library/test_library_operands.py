"""A as callers bring it: every source gives the same matrix, and nothing is rounded in silence."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from refused import says

from kernels import formats
from kernels.formats import bcsr, csr, nm, two_four, wcsr
from kernels.formats.bcsr import Bcsr
from kernels.formats.csr import Csr
from kernels.formats.nm import Nm
from kernels.library import operands


def sparse(m: int = 50, k: int = 40, density: float = 0.1, seed: int = 0):
    """float32 values that every dtype here holds exactly."""
    a = sp.random(m, k, density, format="csr", random_state=seed)
    a.data = np.random.default_rng(seed).integers(-64, 64, a.nnz) / np.float32(8)
    return a.astype(np.float32)


def dense(m: int = 64, k: int = 96, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((m, k)).astype(np.float32)


class View(sp.csr_matrix):
    """A subclass of another library, as anndata's views are."""


View.__module__ = "anndata"


@pytest.mark.parametrize(
    "given",
    [
        *(sparse().asformat(kind) for kind in ("csr", "csc", "coo", "lil", "dia")),
        View(sparse()),
        # What only knows how to become a matrix of SciPy's.
        SimpleNamespace(tocsr=sparse),
        SimpleNamespace(tocsr=lambda: sparse().tocsc()),
    ],
    ids=lambda a: type(a).__name__,
)
def test_matrices_of_scipys_or_what_becomes_one_become_csr(given):
    made = operands.operand(given)
    assert isinstance(made, Csr) and (formats.to_dense(made) == sparse().toarray()).all()


@pytest.mark.parametrize(("sides", "kind"), [((16, 32), Bcsr), ((64, 64), Bcsr), ((8, 8), Csr), ((5, 4), Csr)])
def test_blocks_stay_blocks_where_the_format_has_their_sides(sides, kind):
    a = sparse(320, 320, 0.005)
    made = operands.operand(a.tobsr(sides))
    assert isinstance(made, kind) and (formats.to_dense(made) == a.toarray()).all()
    assert not isinstance(made, Bcsr) or made.block == sides


OURS = [
    csr.from_scipy(sparse(64, 64)),
    csr.from_scipy(sparse(0, 5)),
    bcsr.from_csr(sparse(70, 90), block=16, dtype="float32"),
    wcsr.from_csr(sparse(70, 90), window=16),
    nm.random(64, 40, 2, 8, 4, 0),
    two_four.random(24, 40, "float16", 1),
]


@pytest.mark.parametrize("a", OURS, ids=lambda a: type(a).__name__)
def test_formats_of_ours_are_taken_as_they_are_and_as_csr_the_same_matrix(a):
    assert operands.operand(a) is a
    assert not isinstance(a, Csr) or operands.operand(replace(a, facts="found before")).facts is None
    dense, made = formats.to_dense(a), csr.validate(operands.as_csr(a))
    assert (formats.to_dense(made) == (dense.T if isinstance(a, Nm) else dense)).all()
    as_it_is = operands.turned(a)
    assert type(as_it_is) is (Bcsr if isinstance(a, Bcsr) else Csr)
    assert np.array_equal(formats.to_dense(as_it_is), formats.to_dense(made).T)
    turned, order = operands.transposed(made)
    assert (formats.to_dense(csr.validate(turned)) == formats.to_dense(made).T).all()
    assert (made.val[order] == turned.val).all()


def test_matrices_along_the_diagonal_are_one_with_its_offsets():
    given = [sp.random(m, k, 0.5, "csr", np.float32, random_state=m) for m, k in ((3, 5), (0, 2), (7, 1), (4, 4))]
    made, rows, columns = operands.block_diagonal([*given[:2], given[2].tocoo(), csr.from_scipy(given[3])])
    assert (formats.to_dense(csr.validate(made)) == sp.block_diag(given).toarray()).all()
    assert (rows.tolist(), columns.tolist()) == ([0, 3, 3, 10, 14], [0, 5, 7, 8, 12])
    assert made.row_ptr.dtype == made.col_idx.dtype == np.int32
    says(["no matrix"], lambda: operands.block_diagonal([]))


def test_values_that_float32_does_not_hold_need_an_accuracy():
    a = sparse().astype(np.float64)
    assert operands.operand(a).val.dtype == np.float32, "these it holds"
    a.data[4] = np.nan
    assert np.isnan(operands.operand(a).val[4])
    a.data[3] = 0.1
    says(["float64", "0.1", "accuracy='fp32'"], lambda: operands.operand(a))
    assert operands.operand(a, accuracy="fp32").val[3] == np.float32(0.1)
    assert operands.operand(a > 0).val.max() == 1, "a pattern without values"
    says(["complex64"], lambda: operands.operand(a.astype(np.complex64)))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint32])
def test_integers_that_float32_does_not_hold_need_an_accuracy(dtype):
    most = np.iinfo(dtype).max
    for value in (2**24 + 1, 2**53 + 1, most - 1, most):
        if value <= most:
            a = sp.csr_array(np.array([[1, 0], [0, value]], dtype))
            says([np.dtype(dtype).name, str(value)], lambda a=a: operands.operand(a))
            assert operands.operand(a, accuracy="fp32").val[1] == np.float32(value)
    held = [0, 1, 2**24, 2**24 + 2, most // 2 + 1, np.iinfo(dtype).min]
    a = sp.csr_array((np.array(held, dtype), np.arange(6), np.array([0, 6])), shape=(1, 6))
    assert operands.operand(a).val.tolist() == held


@pytest.mark.parametrize("side", [8, 16])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indices": [0, 2**32]}, ["col_idx[1] is 4294967296", "columns of blocks 0 to 1"]),
        ({"indices": [0, 2]}, ["col_idx[1] is 2", "outside the columns of blocks 0 to 1"]),
        ({"indices": [-1, 0]}, ["col_idx[0] is -1", "columns of blocks"]),
        ({"indptr": [0, 2**32, 2]}, ["row_ptr falls from 4294967296 to 2"]),
        ({"indptr": [0, 3, 2]}, ["row_ptr falls from 3 to 2"]),
        ({"indptr": [0, 1, 5]}, ["ends at 5", "2 column indices", "2 blocks"]),
    ],
)
def test_blocks_that_are_nowhere_are_refused_as_blocks(change, words, side):
    blocks = np.ones((2, side, side), np.float32)
    a = sp.bsr_array((blocks, [1, 0], [0, 1, 2]), shape=(2 * side, 2 * side))
    assert operands.operand(a).nnz == blocks.size
    for name, value in change.items():
        setattr(a, name, np.array(value))
    says(["BSR", *words], lambda: operands.operand(a))


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("csr", {"indices": [1]}, ["CSR col_idx[0] is 1", "columns 0 to 0"]),
        ("csr", {"indices": [10**6]}, ["CSR col_idx[0] is 1000000"]),
        ("csr", {"indptr": [0, 5, 1, 1]}, ["CSR row_ptr falls from 5 to 1"]),
        ("csr", {"indptr": [0, 1]}, ["CSR row_ptr has 2 entries", "3 rows need 4"]),
        ("csr", {"indptr": [0, 0, 0, 9]}, ["ends at 9", "1 column"]),
        ("csr", {"indices": np.array([0.0])}, ["CSR col_idx is 1-dimensional float64"]),
        ("csr", {"indices": np.zeros((1, 1), int)}, ["CSR col_idx is 2-dimensional"]),
        ("csr", {"indices": "list"}, ["CSR col_idx is 1-dimensional str"]),
        ("csr", {"data": np.ones(0)}, ["ends at 1", "0 values"]),
        ("csc", {"indices": [3]}, ["CSC row_idx[0] is 3", "rows 0 to 2"]),
        ("csc", {"indices": [-1]}, ["CSC row_idx[0] is -1"]),
        ("csc", {"indices": [10**6]}, ["CSC row_idx[0] is 1000000"]),
        ("csc", {"indptr": [0, 10**6]}, ["CSC col_ptr ends at 1000000"]),
        ("csc", {"indptr": [-(10**6), 1]}, ["CSC col_ptr starts at -1000000"]),
        ("csc", {"indptr": [0]}, ["CSC col_ptr has 1 entries", "1 columns need 2"]),
        ("csc", {"data": np.ones(0)}, ["CSC col_ptr ends at 1", "0 values"]),
        ("coo", {"coords": ([10**8], [0])}, ["COO row_idx[0] is 100000000", "rows 0 to 2"]),
        ("coo", {"coords": ([0], [-1])}, ["COO col_idx[0] is -1", "columns 0 to 0"]),
        ("coo", {"coords": ([0, 1], [0, 0])}, ["COO row_idx has 2 entries", "1 values"]),
        ("bsr", {"indices": [10**8]}, ["BSR col_idx[0] is 100000000"]),
        ("bsr", {"indptr": [0, 1]}, ["BSR row_ptr has 2 entries", "3 rows of blocks need 4"]),
        ("bsr", {"data": np.ones(9)}, ["BSR values have 1 dimensions"]),
        (
            "dia",
            {"data": np.ones((1, 1)), "offsets": [0, 1]},
            ["DIA values are (1, 1)", "2 diagonals"],
        ),
        ("dia", {"data": np.ones(5)}, ["DIA values are (5,)"]),
        ("dia", {"offsets": np.array([0.5])}, ["DIA offsets is 1-dimensional float64"]),
        ("lil", {"data": [[1.0] * 10**6, [], []]}, ["LIL row 0 has 1 columns and 1000000 values"]),
        ("lil", {"data": [[], [], []]}, ["LIL row 0 has 1 columns and 0 values"]),
        ("lil", {"rows": [[0]]}, ["LIL has 1 lists of columns"]),
        ("lil", {"rows": [[10**6], [], []]}, ["CSR col_idx[0] is 1000000"]),
        ("dok", {"_dict": {(10**6, 0): 1.0}}, ["1000000", "3"]),
    ],
)
def test_indices_of_scipys_matrices_are_looked_at_before_they_are_followed(kind, change, words):
    """Each of these ended the process, made another matrix, or said something else."""
    a = sp.coo_array(([1.0], ([0], [0])), shape=(3, 1)).asformat(kind)
    for name, value in change.items():
        if kind == "lil":
            lists = np.empty(len(value), object)
            lists[:] = value
            value = lists
        elif name == "coords":
            value = tuple(np.array(x) for x in value)
        elif name not in ("_dict", "data") and value != "list":
            value = np.asarray(value)
        setattr(a, name, value)
    says(words, lambda: operands.operand(a))
    says(words, lambda: csr.from_scipy(a))


def test_arrays_longer_than_their_pointers_say_are_cut():
    a = sparse()
    a.indices, a.data = (np.append(x, x[:9] * 0 + 10**6) for x in (a.indices, a.data))
    right = sparse().toarray()
    for given in (a, sp.csc_array((a.data, a.indices, a.indptr), shape=a.shape[::-1]).T):
        assert (formats.to_dense(operands.operand(given)) == right).all()
    blocks = sp.bsr_array(np.kron(np.eye(3), np.ones((16, 16))), blocksize=(16, 16))
    right = blocks.toarray()
    blocks.indices, blocks.data = (
        np.append(blocks.indices, 99),
        np.append(blocks.data, blocks.data[:1], 0),
    )
    assert (formats.to_dense(operands.operand(blocks)) == right).all()


def test_what_is_checked_already_is_not_checked_again(monkeypatch):
    monkeypatch.setattr(formats, "validate", lambda a: pytest.fail("checked"))
    a = sparse()
    assert (formats.to_dense(operands.operand(a, check=False)) == a.toarray()).all()


# ---------------------------------------------------------------- dtypes by name


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        (
            "float32",
            ["float32", "float", "fp32", "F32", "torch.float32", "np.float32", "<f4", "single"],
        ),
        ("float32", [np.float32, np.dtype(np.float32), np.dtype("f")]),
        (
            "float16",
            ["half", "fp16", "torch.half", "float16", "torch.float16", np.float16, np.dtype("e")],
        ),
        ("bfloat16", ["bfloat16", "bf16", "torch.bfloat16", "jnp.bfloat16", "BF16"]),
        ("float64", ["double", np.float64, float, "float64"]),
        (None, [None]),
    ],
)
def test_a_dtype_has_many_spellings(name, spellings):
    for spelling in spellings:
        assert operands.dtype_name(spelling) == name


@pytest.mark.parametrize("dtype", ["quad precision", 3, ">f4", object(), ""])
def test_what_is_no_dtype_is_refused(dtype):
    says(
        ["dtype is ", "float32, bfloat16, float16"],
        lambda: operands.resolved(None, operands.dtype_name(dtype)),
    )


# ---------------------------------------------------------------- pruning


@pytest.mark.parametrize(
    ("how", "right"),
    [
        ({"prune": "2:4"}, lambda x: nm.compress(x.T, 2, 4, 1, prune=True)),
        ({"prune": "2:4", "dtype": "fp16"}, lambda x: two_four.compress(x, "float16", prune=True)),
        ({"prune": "nm", "density": 0.25, "vector": 16}, lambda x: nm.compress(x.T, 8, 32, 16, prune=True)),
        (
            {"prune": "block", "density": 0.25, "block": 16},
            lambda x: bcsr.from_dense(x, block=16, dtype="float32", density=0.25),
        ),
        ({"prune": "block", "dtype": np.float16}, lambda x: bcsr.from_dense(x, dtype="float16")),
    ],
)
def test_a_dense_array_is_pruned_as_its_format_prunes(how, right):
    x = dense().astype(np.float16).astype(np.float32)
    made, right = operands.operand(x, **how), right(x)
    assert type(made) is type(right) and operands.size_of(made) == x.shape
    assert (formats.to_dense(made) == formats.to_dense(right)).all() and made.nnz == right.nnz


@pytest.mark.parametrize(
    ("words", "a", "how"),
    [
        (["numpy.ndarray", "prune="], dense(), {}),
        (["builtins.int", "SciPy"], 3, {}),
        (["prune="], np.ones((2, 2), "U1"), {}),
        (["SimpleNamespace", "SciPy"], SimpleNamespace(tocsr=lambda: "nothing"), {}),
        (["col_idx[0] is 5"], Csr(2, 2, np.array([0, 1, 1], "i4"), np.array([5], "i4"), np.ones(1, "f4")), {}),
        (["'unstructured'", "2:4"], dense(), {"prune": "unstructured"}),
        (["needs a density"], dense(), {"prune": "nm"}),
        (["0.4", "half"], dense(), {"prune": "2:4", "density": 0.4}),
        (["1.5"], dense(), {"prune": "block", "density": 1.5}),
        (["density is 'x'"], dense(), {"prune": "block", "density": "x"}),
        (["A is 0 x 96", "prune='2:4'"], dense()[:0], {"prune": "2:4"}),
        (["A is 64 x 0"], dense()[:, :0], {"prune": "nm", "density": 0.25}),
        (["sparse already"], sparse(), {"prune": "2:4"}),
        (["nothing is pruned"], sparse(), {"density": 0.5}),
        (["accuracy='bf16'"], dense(), {"prune": "2:4", "dtype": "bfloat16"}),
        (["1 dimensions"], dense()[0], {"prune": "2:4"}),
        (["builtins.int", "array of NumPy"], 3, {"prune": "2:4"}),
    ],
)
def test_what_is_no_matrix_or_pattern_is_one_sentence(words, a, how):
    says(words, lambda: operands.operand(a, **how))


# ---------------------------------------------------------------- accuracy


@pytest.mark.parametrize(
    ("accuracy", "dtype", "is_"),
    [
        (None, "float32", "fp32"),
        (None, "bfloat16", "bf16"),
        (None, "float16", "fp16"),
        ("tf32", "float32", "tf32"),
        ("bf16", "float32", "bf16"),
        ("bf16", "bfloat16", "bf16"),
        ("fp32", "bfloat16", ["'fp32'", "bfloat16"]),
        ("tf32", "float16", ["'tf32'", "float16"]),
        ("fp16", "bfloat16", ["'fp16'"]),
        ("int8", "float32", ["'int8'", "tf32"]),
        (None, "float64", ["float64", "float32"]),
    ],
)
def test_the_default_accuracy_is_what_the_dtype_holds_and_more_is_refused(accuracy, dtype, is_):
    if isinstance(is_, str):
        assert operands.resolved(accuracy, dtype) == is_
    else:
        says(is_, lambda: operands.resolved(accuracy, dtype))


# ---------------------------------------------------------------- PyTorch's


LAYOUTS = ("coo", "csr", "csc", "bsr", "bsc")
WHERE = (("cpu", ()), ("cuda", pytest.mark.gpu))


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def remade(torch, x, layout: str, side: int = 16, **changes):
    """A dense tensor in a sparse layout, some of whose parts are changed to what these functions make of them; nothing
    looks at them."""
    there = getattr(x.float(), f"to_sparse_{layout}")(*[(side, side)] * (layout in ("bsr", "bsc")))
    if layout == "coo":
        parts, make = {"indices": there._indices(), "values": there._values()}, torch.sparse_coo_tensor
    else:
        rows, make = layout in ("csr", "bsr"), getattr(torch, f"sparse_{layout}_tensor")
        pointers = there.crow_indices() if rows else there.ccol_indices()
        indices = there.col_indices() if rows else there.row_indices()
        parts = {"pointers": pointers, "indices": indices, "values": there.values()}
    parts = [changes[name](part.clone()) if name in changes else part for name, part in parts.items()]
    return make(*parts, there.shape, check_invariants=False)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "device"),
    [(dtype, "cpu") for dtype in ("float64", "float8_e4m3fn", "float8_e5m2", "int32", "int64", "uint8", "bool")]
    + [pytest.param(dtype, where, marks=marks) for dtype in operands.DTYPES for where, marks in WHERE],
)
def test_torch_matrices_of_any_layout_and_dtype_are_the_same(layout, dtype, device, torch):
    x = torch.tensor(np.abs(np.round(sparse(64, 96).toarray())), device=device).to(getattr(torch, dtype))
    made = formats.to_host(operands.operand(remade(torch, x, layout, values=lambda val: val.to(x.dtype))))
    assert (formats.to_dense(made) == x.float().cpu().numpy()).all()
    if layout in ("bsr", "bsc"):
        assert isinstance(made, Bcsr) and made.dtype == (dtype if dtype in operands.DTYPES else "float32")


@pytest.mark.parametrize("device", [pytest.param(where, marks=marks) for where, marks in WHERE])
@pytest.mark.parametrize("index", [9, 10**6, -1, 2**40])
@pytest.mark.parametrize(
    ("layout", "axis", "name"),
    [(x, None, "col_idx" if x in ("csr", "bsr") else "row_idx") for x in LAYOUTS[1:]]
    + [("coo", 0, "row_idx"), ("coo", 1, "col_idx")],
)
def test_torch_indices_that_are_nowhere_are_refused_before_they_are_followed(layout, axis, name, index, device, torch):
    def spoilt(indices):
        (indices if axis is None else indices[axis])[1] = index
        return indices

    spoiled = remade(torch, torch.eye(6, device=device), layout, 2, indices=spoilt)
    says([layout.upper(), f"{name}[1] is {index}"], lambda: operands.operand(spoiled))
    assert torch.ones(3, device=device).sum().item() == 3, "the GPU works on"


@pytest.mark.parametrize(
    ("pointers", "words"),
    [
        ([0, 5, 2, 3], ["falls from 5 to 2"]),
        ([1, 1, 2, 3], ["starts at 1"]),
        ([0, 1, 2, 9], ["ends at 9"]),
        ([0, 1, 2, 2], ["ends at 2", "3"]),
        ([0, 1, 2], ["has 3 entries"]),
        ([0, 10**9, 2, 3], ["falls from 1000000000"]),
        ([0, 1, 2, -7], ["-7"]),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_torch_pointers_that_are_wrong_are_refused(layout, pointers, words, torch):
    whole = torch.eye(3) if layout in ("csr", "csc") else torch.kron(torch.eye(3), torch.ones(2, 2))
    spoiled = remade(torch, whole, layout, 2, pointers=lambda _: torch.tensor(pointers))
    says(words, lambda: operands.operand(spoiled))
    longer = remade(torch, whole, layout, 2, values=lambda val: torch.cat([val, val[:1]]))
    says(["4"], lambda: operands.operand(longer))


def test_torch_coordinates_that_repeat_or_only_say_that_they_are_in_order(torch):
    indices, values = torch.tensor([[2, 0, 2, 0], [1, 3, 1, 0]]), torch.tensor([1.0, 2.0, 4.0, 8.0])
    right = torch.sparse_coo_tensor(indices, values, (3, 4)).to_dense().numpy()
    for said in (False, True):
        there = torch.sparse_coo_tensor(indices, values, (3, 4), is_coalesced=said)
        assert (formats.to_dense(operands.operand(there)) == right).all()
    ones = torch.ones(300, dtype=torch.bfloat16)
    many = torch.sparse_coo_tensor(torch.zeros(2, 300, dtype=torch.int64), ones + 2, (1, 1))
    assert operands.operand(many).val[0] == 900, "summed in float32: bfloat16 has no 900"


def test_hybrid_torch_tensors_and_other_dimensions_are_refused(torch):
    layer = torch.nn.Embedding(5, 3, sparse=True)
    layer(torch.tensor([1, 3])).sum().backward()
    for given, words in (
        (layer.weight.grad, ["hybrid COO", "to_dense().to_sparse()"]),
        (torch.ones(2, 2, 2).to_sparse(), ["3 dimensions"]),
        (torch.ones(2, 2, 2).to_sparse_csr(), ["3 dimensions"]),
        (torch.sparse_coo_tensor(size=(3, 3), device="meta"), ["tensor on meta"]),
    ):
        says(words, lambda given=given: operands.operand(given))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torch_blocks_in_any_order_are_sorted(dtype, torch):
    values = torch.arange(3 * 256).reshape(3, 16, 16).to(getattr(torch, dtype))
    pointers, indices = torch.tensor([0, 2, 3]), torch.tensor([2, 0, 1])
    there = torch.sparse_bsr_tensor(pointers, indices, values, (32, 48), check_invariants=False)
    made = operands.operand(there)
    assert isinstance(made, Bcsr) and made.dtype == dtype and list(made.col_idx) == [0, 2, 1]
    assert (formats.to_dense(made) == there.to_dense().float().numpy()).all()


def test_torch_dense_tensors_are_pruned_with_or_without_a_gradient(torch):
    x = torch.tensor(dense())
    same = operands.operand(x.numpy(), prune="block", density=0.5, block=16)
    for given in (x, torch.nn.Parameter(x)):
        assert (operands.operand(given, prune="block", density=0.5, block=16).val == same.val).all()
