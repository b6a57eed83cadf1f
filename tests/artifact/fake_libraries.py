"""NVIDIA's libraries without a GPU: arrays on the CPU that pass for CuPy's, and modules in its place."""

import ctypes
import sys
import types
from types import SimpleNamespace

import numpy as np

from artifact.measure import bench
from kernels.async_sparse import operands as block_operands
from kernels.contract import Operands, Problem
from kernels.formats import bcsr, csr, half, two_four, two_four_eight
from kernels.formats.bcsr import Bcsr
from kernels.formats.eight import Eight
from kernels.formats.half import Half
from kernels.formats.nm import Nm
from kernels.formats.two_four import TwoFour
from kernels.formats.two_four_eight import TwoFourEight
from kernels.nm_spmm import operands as nm_operands
from kernels.tensor_core_24 import fp8_operands, operands

DEVICE = SimpleNamespace(set_current=lambda: None)
STREAM = SimpleNamespace(handle=7, sync=lambda: None)

#: Members of cuBLASLt's and CUDA's enumerations.
F32, COMPUTE_32F, FAST_TF32 = 0, 68, 77
NAME = {14: "bfloat16", 2: "float16", F32: "float32"}
ORDER, ORDERS = 1, {"COL": 0, "ROW": 1}
#: cublasLtMatmulHeuristicResult_t, as nvmath has it.
RESULT = np.dtype(
    [
        ("algo", [("data_", "<u8", (8,))]),
        ("workspace_size", "<u8"),
        ("state", "<i4"),
        ("waves_count", "<f4"),
        ("reserved", "<i4", (4,)),
    ]
)
BFLOAT16 = np.int16  # stands for the dtype that ml_dtypes adds


class Array(np.ndarray):
    """A NumPy array that has what is used of CuPy's."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data if self.size else 0)

    def get(self, order="C"):
        return np.array(self, order=order, subok=False)


class Library(types.ModuleType):
    """A module of `nvmath.bindings` that hands out numbers and logs what it is asked.

    log: (kind, *arguments); alive: the numbers that were made and not destroyed.
    """

    def __init__(self, name: str):
        super().__init__(name)
        self.alive, self.made, self.log = set(), {}, []

    def make(self, kind: str, *arguments) -> int:
        thing = len(self.made) + 1
        self.made[thing] = (kind, *arguments)
        self.alive.add(thing)
        self.log.append((kind, *arguments))
        return thing

    def unmake(self, thing: int) -> None:
        self.alive.remove(thing)  # twice is a KeyError
        self.log.append(("destroy", thing))

    def what(self, thing: int) -> tuple:
        """The arguments that a thing which is still there was made with."""
        assert thing in self.alive, f"{self.made[thing]} was destroyed before it was used"
        return self.made[thing][1:]

    def count(self, kind: str) -> int:
        return sum(entry[0] == kind for entry in self.log)


def array(shape, dtype) -> Array:
    return np.zeros(shape, dtype).view(Array)


def at(address: int, shape, dtype) -> np.ndarray:
    """The row-major array at an address, to read and to write."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_byte * size).from_address(address), dtype).reshape(shape)


def install(monkeypatch, *libraries: types.ModuleType) -> types.ModuleType:
    """Put modules in the place of `nvmath.bindings`', and just enough of CuPy, which is returned."""
    cupy = types.ModuleType("cupy")
    cupy.uint8 = np.uint8
    cupy.empty = array
    cupy.array = lambda x, order: np.array(x, order=order).view(Array)
    cupy.full_like = lambda x, value: np.full_like(x, value)
    cupy.ascontiguousarray = lambda x: np.ascontiguousarray(x).view(Array)
    stream = SimpleNamespace(ptr=0, synchronize=lambda: None)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: stream)
    bindings = types.ModuleType("nvmath.bindings")
    for library in libraries:
        setattr(bindings, library.__name__, library)
        monkeypatch.setitem(sys.modules, f"nvmath.bindings.{library.__name__}", library)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "nvmath", types.ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)
    return cupy


class Cusparse(Library):
    """Stands in for nvmath.bindings.cusparse: multiplies on the CPU, at the addresses it is given.

    refuses(order of B, order of C, whether B is transposed): what it does not take.
    """

    class cuSPARSEError(Exception):
        pass

    SpMMAlg = {
        "DEFAULT": 0,
        "CSR_ALG1": 4,
        "CSR_ALG2": 6,
        "CSR_ALG3": 12,
        "BLOCKED_ELL_ALG1": 13,
        "BSR_ALG1": 14,
    }
    IndexType = SimpleNamespace(INDEX_32I=2)
    IndexBase = SimpleNamespace(ZERO=0)
    Order = SimpleNamespace(COL=1, ROW=2)
    Operation = SimpleNamespace(NON_TRANSPOSE=0, TRANSPOSE=1)
    #: Kind of a sparse matrix -> the algorithms for it.
    TAKES = {"csr": (0, 4, 6, 12), "blocked_ell": (13,), "bsr": (14,)}

    def __init__(self):
        super().__init__("cusparse")
        self.refuses, self.launched = lambda b, c, transposed: False, []
        self.destroy = self.destroy_sp_mat = self.destroy_dn_mat = self.unmake

    def create(self):
        return self.make("handle")

    def set_stream(self, handle, stream):
        self.what(handle)

    def create_csr(self, *arguments):
        return self.make("csr", *arguments)

    def create_bsr(self, *arguments):
        return self.make("bsr", *arguments)

    def create_blocked_ell(self, *arguments):
        return self.make("blocked_ell", *arguments)

    def create_dn_mat(self, *arguments):
        return self.make("dense", *arguments)

    def sp_mm_buffer_size(self, *arguments):
        return 512

    def sp_mm_preprocess(self, *arguments):
        self.log.append(("preprocess", arguments[-2]))

    def sp_mm(self, handle, op_a, op_b, alpha, a, b, beta, c, compute, algorithm, buffer):
        self.what(handle)
        kind, transposed = self.made[a][0], op_b == self.Operation.TRANSPOSE
        assert op_a == self.Operation.NON_TRANSPOSE and compute == F32
        assert algorithm in self.TAKES[kind] and buffer
        assert (at(alpha, (1,), np.float32)[0], at(beta, (1,), np.float32)[0]) == (1, 0)
        if self.refuses(self.what(b)[5], self.what(c)[5], transposed):
            raise self.cuSPARSEError("NOT_SUPPORTED")
        left, data = getattr(self, f"_{kind}")(*self.what(a))
        (right, data_b), (out, data_c) = self._dense(*self.what(b)), self._dense(*self.what(c))
        assert data == data_b == data_c
        right = _numbers(right.T if transposed else right, data)
        product = left @ right
        out[:] = product if data == F32 else half.to_bits(product, NAME[data])
        self.launched.append((kind, algorithm, transposed))

    def _dense(self, rows, columns, leading, address, data, order):
        by_rows = order == self.Order.ROW
        assert leading == (columns if by_rows else rows)
        shape = (rows, columns) if by_rows else (columns, rows)
        array = at(address, shape, _storage(data))
        return (array if by_rows else array.T), data

    def _csr(self, rows, columns, nnz, row_ptr, col_idx, val, *types):
        assert types[:3] == (2, 2, 0)
        val = _numbers(at(val, (nnz,), _storage(types[3])), types[3])
        row_ptr, col_idx = at(row_ptr, (rows + 1,), np.int32), at(col_idx, (nnz,), np.int32)
        return csr.to_dense(csr.Csr(rows, columns, row_ptr, col_idx, val)), types[3]

    def _bsr(self, rows, columns, blocks, b_row, b_col, row_ptr, col_idx, val, *types):
        assert types[:3] == (2, 2, 0) and types[4] == self.Order.ROW
        data, dense = types[3], np.zeros((rows, b_row, columns, b_col), np.float32)
        val = _numbers(at(val, (blocks, b_row, b_col), _storage(data)), data)
        row_ptr, col_idx = at(row_ptr, (rows + 1,), np.int32), at(col_idx, (blocks,), np.int32)
        for row in range(rows):
            for i in range(row_ptr[row], row_ptr[row + 1]):
                dense[row, :, col_idx[i]] = val[i]
        return dense.reshape(rows * b_row, columns * b_col), data

    def _blocked_ell(self, rows, columns, block, width, col_idx, val, index, base, data):
        assert (index, base) == (2, 0) and not rows % block and not columns % block
        col_idx = at(col_idx, (rows // block, width // block), np.int32)
        val = _numbers(at(val, (rows, width), _storage(data)), data)
        dense = np.zeros((rows, columns), np.float32)
        for row, slot in zip(*np.nonzero(col_idx >= 0), strict=True):
            down, right = row * block, col_idx[row, slot] * block
            cell = val[down : down + block, slot * block : (slot + 1) * block]
            dense[down : down + block, right : right + block] = cell
        return dense, data


def _storage(data: int):
    return np.float32 if data == F32 else np.uint16


def _numbers(array: np.ndarray, data: int) -> np.ndarray:
    """What an array of a cudaDataType stands for."""
    return array if data == F32 else half.from_bits(array, NAME[data])


class CublasLt(Library):
    """Stands in for nvmath.bindings.cublasLt: multiplies on the CPU, at the addresses it is given."""

    class cuBLASLtError(Exception):
        pass

    Order = SimpleNamespace(**ORDERS)
    MatrixLayoutAttribute = SimpleNamespace(ORDER=ORDER)

    def __init__(self):
        super().__init__("cublasLt")
        self.orders, self.launched, self.refuse = {}, [], None
        self.destroy = self.matmul_desc_destroy = self.matrix_layout_destroy = self.unmake

    def create(self):
        return self.make("handle")

    def matmul_desc_create(self, compute, scale):
        assert scale == F32
        return self.make("description", compute)

    def matrix_layout_create(self, kind, rows, columns, leading):
        return self.make("layout", kind, rows, columns, leading)

    def matrix_layout_set_attribute(self, layout, attribute, address, size):
        assert (attribute, size) == (ORDER, 4)
        self.orders[layout] = int(at(address, (1,), np.int32)[0])

    def matmul(
        self,
        handle,
        description,
        alpha,
        a,
        layout_a,
        b,
        layout_b,
        beta,
        c,
        layout_c,
        d,
        layout_d,
        algorithm,
        workspace,
        size,
        stream,
    ):
        if self.refuse:
            raise self.cuBLASLtError(self.refuse)
        self.what(handle)
        kinds = {self.what(layout)[0] for layout in (layout_a, layout_b, layout_c)}
        # In COMPUTE_32F float32 is not multiplied by tensor cores.
        assert self.what(description) == (FAST_TF32 if kinds == {F32} else COMPUTE_32F,)
        assert (at(alpha, (1,), np.float32)[0], at(beta, (1,), np.float32)[0]) == (1, 0)
        assert (c, layout_c) == (d, layout_d) and len(kinds) == 1
        chosen = at(algorithm, (1,), RESULT)[0]
        assert size == chosen["workspace_size"] and bool(workspace) == bool(size)
        (name,) = (NAME[kind] for kind in kinds)
        left, right, out = (self._matrix(*x) for x in ((layout_a, a), (layout_b, b), (layout_c, c)))
        if name == "float32":
            out[:] = left @ right
        else:
            product = half.from_bits(left, name) @ half.from_bits(right, name)
            out[:] = half.to_bits(product, name)
        self.launched.append((int(chosen["algo"]["data_"][0]), self.orders[layout_b], stream))

    def _matrix(self, layout: int, address: int) -> np.ndarray:
        """The matrix of a layout at an address, to read and to write."""
        kind, rows, columns, leading = self.what(layout)
        dtype = np.float32 if kind == F32 else np.uint16
        if self.orders[layout] == ORDERS["ROW"]:
            assert leading == columns
            return at(address, (rows, columns), dtype)
        assert leading == rows
        return at(address, (columns, rows), dtype).T


class Matmul:
    """Stands in for nvmath.linalg.advanced.Matmul: plans `ids`, and tuning turns them around.

    calls: what it was asked for, "matmul" with the dtype, the compute type, and the strides in
    elements of A and B, and of a C to add zero times.
    """

    def __init__(self, library: CublasLt):
        self.library, self.ids, self.refuse, self.calls, self.open = library, [7, 8, 9], None, [], 0

    def __call__(self, a, b, c=None, *, beta=None, options):
        assert a.dtype == b.dtype and a.shape[1] == b.shape[0]
        assert beta == (None if c is None else 0)
        self.library.what(options["handle"])
        matrices = (a, b) if c is None else (a, b, c)
        strides = tuple(stride // a.itemsize for x in matrices for stride in x.strides)
        self.calls.append(("matmul", a.dtype, options["compute_type"], strides))
        return self

    def __enter__(self):
        self.open += 1
        return self

    def __exit__(self, *error):
        self.open -= 1

    def plan(self, preferences):
        if self.refuse:
            raise RuntimeError(self.refuse)
        self.calls.append(("plan", preferences["limit"]))
        self.algorithms = [_algorithm(number) for number in self.ids]

    def autotune(self, iterations, prune):
        self.calls.append(("autotune", iterations, prune))
        self.algorithms = self.algorithms[::-1][:prune]


def _algorithm(number: int) -> SimpleNamespace:
    def as_numpy():
        result = np.zeros(1, RESULT)
        result["algo"]["data_"][0, 0] = number
        result["workspace_size"] = 128 * (number == 9)
        return result

    return SimpleNamespace(algorithm_id=number, split_k=1, custom_option=0, as_numpy=as_numpy)


def install_cublaslt(monkeypatch) -> CublasLt:
    """cuBLASLt and what `Matmul` needs, in the place of nvmath's; `matmul_of_nvmath` is the latter."""
    fake, cublas = CublasLt(), types.ModuleType("cublas")
    cublas.ComputeType = SimpleNamespace(COMPUTE_32F=COMPUTE_32F, COMPUTE_32F_FAST_TF32=FAST_TF32)
    install(monkeypatch, fake, cublas)
    advanced, ml_dtypes = (types.ModuleType(x) for x in ("nvmath.linalg.advanced", "ml_dtypes"))
    fake.matmul_of_nvmath = advanced.Matmul = Matmul(fake)
    ml_dtypes.bfloat16 = BFLOAT16
    monkeypatch.setitem(sys.modules, "nvmath.linalg", types.ModuleType("nvmath.linalg"))
    monkeypatch.setitem(sys.modules, "nvmath.linalg.advanced", advanced)
    monkeypatch.setitem(sys.modules, "ml_dtypes", ml_dtypes)
    return fake


def nm_problem(m, n, k, density=0.5, **what) -> Problem:
    """A problem of the room nm_spmm whose device operands are arrays of the fake CuPy."""
    problem = nm_operands.problem(m, n, k, density, seed=1, **what)
    host = problem.host()
    a, b = host.a, host.b
    if isinstance(a, Half):
        a, c = Half(a.dtype, a.bits.view(Array)), Half(a.dtype, array((n, m), np.uint16).T)
    else:
        a, c = a.view(Array), array((n, m), np.float32).T
    b = Nm(b.k, b.n, b.keep, b.group, b.vector, b.val.view(Array), b.index.view(Array))
    problem._device = Operands(a, b, c)
    return problem


def bcsr_problem(m, n, k, density=0.3, **what) -> Problem:
    """A problem of the room async_sparse whose device operands are arrays of the fake CuPy."""
    problem = block_operands.problem(m, n, k, density, seed=1, **what)
    a = problem.host().a
    arrays = (x.view(Array) for x in (a.row_ptr, a.col_idx, a.val))
    made = Bcsr(a.m, a.k, a.dtype, *arrays, a.nnz)
    problem._device = _with_dense(problem, made, what.get("layout", "source"))
    return problem


def sparse_matrix(m: int, k: int, each: int = 3) -> csr.Csr:
    """A matrix on the host with so many entries in each row, some of them at one place."""
    row_ptr = np.arange(0, each * m + 1, each, dtype=np.int32)
    col_idx = np.random.default_rng(3).integers(0, k, each * m).astype(np.int32)
    return csr.Csr(m, k, row_ptr, col_idx, np.ones(each * m, np.float32))


def csr_problem(m, n, k, layout="row", **what) -> Problem:
    """The same as `bcsr_problem` with an A in CSR."""
    a = sparse_matrix(m, k)
    problem = block_operands.problem_from_csr(a, n, 1, layout=layout, format="csr", reorder="", **what)
    a = problem.host().a
    arrays = (x.view(Array) for x in (a.row_ptr, a.col_idx, a.val))
    problem._device = _with_dense(problem, csr.Csr(m, k, *arrays), layout)
    return problem


def _with_dense(problem: Problem, a, layout: str) -> Operands:
    """Operands on the fake GPU around an A that is there."""
    b, shape = problem.host().b, (problem.m, problem.n)
    order = block_operands.LAYOUTS[layout][1]
    if isinstance(b, Half):
        c = Half(b.dtype, np.zeros(shape, np.uint16, order).view(Array))
        return Operands(a, Half(b.dtype, b.bits.view(Array)), c)
    return Operands(a, b.view(Array), np.zeros(shape, np.float32, order).view(Array))


def blocks_with_addresses(monkeypatch) -> None:
    """`bcsr.from_csr` gives arrays of the fake CuPy."""
    convert = bcsr.from_csr

    def converted(a, **how):
        x = convert(a, **how)
        arrays = (np.asarray(y).view(Array) for y in (x.row_ptr, x.col_idx, x.val))
        return Bcsr(x.m, x.k, x.dtype, *arrays, x.nnz)

    monkeypatch.setattr(bcsr, "from_csr", converted)


def two_four_problem(monkeypatch, m, n, k, dtype="bfloat16", orders="CC") -> Problem:
    """A problem of the room tensor_core_24 whose device operands are arrays of the fake CuPy."""
    problem = operands.problem(m, n, k, seed=1, dtype=dtype, orders=orders)
    host = problem.host()
    a, b = host.a, host.b
    bits, c = b.bits.view(Array), array((m, n), np.uint16)
    problem._device = Operands(
        TwoFour(m, k, dtype, a.val.view(Array), a.meta.view(Array)),
        Half(dtype, bits if orders[0] == "C" else bits.T.copy().T),
        Half(dtype, c if orders[1] == "C" else array((n, m), np.uint16).T),
    )
    expand = two_four.to_dense_bits
    monkeypatch.setattr(two_four, "to_dense_bits", lambda a: expand(a).view(Array))
    return problem


def eight_problem(monkeypatch, m, n, k, **what) -> Problem:
    """The same in e4m3; what: for `fp8_operands.problem`."""
    problem = fp8_operands.problem(m, n, k, seed=1, **what)
    host = problem.host()
    a, b = host.a, host.b
    c = Half("bfloat16", array((m, n), np.uint16))
    if what.get("out") == "e4m3":
        c = Eight("e4m3", array((m, n), np.uint8), np.ones((1, 1), np.float32))
    problem._device = Operands(
        TwoFourEight(m, k, "e4m3", *(x.view(Array) for x in (a.val, a.meta, a.scale))),
        Eight("e4m3", b.bits.T.view(Array).T, b.scale.view(Array)),
        c,
    )
    expand = two_four_eight.to_dense_bits
    monkeypatch.setattr(two_four_eight, "to_dense_bits", lambda a: expand(a).view(Array))
    return problem


class Timer:
    """Takes the place of `bench.time`: launches each contender once; its time is what one says.

    us(name, round) gives microseconds; seen: the names of each round.
    """

    def __init__(self, monkeypatch, us):
        self.us, self.seen = us, []
        monkeypatch.setattr(bench, "time", self)

    def __call__(self, contenders, device, **budget):
        assert device is DEVICE
        self.seen.append(list(contenders))
        for contender in contenders.values():
            contender.launch(STREAM)
        time = {name: self.us(name, len(self.seen) - 1) for name in contenders}
        return {name: SimpleNamespace(median_us=us) for name, us in time.items()}
