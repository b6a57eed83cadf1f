"""NVIDIA's libraries without a GPU: arrays on the CPU that pass for CuPy's, and modules in its place."""

import contextlib
import ctypes
import enum
import sys
import types
import warnings
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np

from artifact.baselines import cusparse
from artifact.measure import bench
from kernels import formats
from kernels.async_sparse import operands as block_operands
from kernels.contract import Operands, Problem
from kernels.formats import bcsr, csr, half, two_four
from kernels.formats.bcsr import Bcsr
from kernels.formats.half import Eight, Half
from kernels.nm_spmm import operands as nm_operands
from kernels.tensor_core_24 import fp8, operands

DEVICE = SimpleNamespace(set_current=lambda: None)
STREAM = SimpleNamespace(handle=7, sync=lambda: None)

#: Members of the libraries' enumerations and of CUDA's.
F32, FP16, BF16, E4M3, COMPUTE_32F, FAST_TF32 = 0, 2, 14, 28, 68, 77
NAME = {BF16: "bfloat16", FP16: "float16", E4M3: "e4m3", F32: "float32"}
STORED = {BF16: np.uint16, FP16: np.uint16, E4M3: np.uint8, F32: np.float32}
Operation = SimpleNamespace(N=0, T=1, NON_TRANSPOSE=0, TRANSPOSE=1)
ComputeType = SimpleNamespace(COMPUTE_32F=COMPUTE_32F, COMPUTE_32F_FAST_TF32=FAST_TF32)
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


#: What makes other operands of them.
MAKING = (
    *((cusparse, name) for name in ("transposed_csr", "csr_of_blocks")),
    *((two_four, "to_dense_bits"), (bcsr, "from_csr"), (half, "to_bits")),
)


class Array(np.ndarray):
    """A NumPy array that has what is used of CuPy's."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data if self.size else 0)

    def get(self, order="C"):
        return np.array(self, order=order, subok=False)


class Refused(Exception):
    """A library's own error."""

    status = 10


class Library(types.ModuleType):
    """A module of `nvmath.bindings`: what it creates is a number, which may be used until it is destroyed.

    log: (call, *arguments); alive: the numbers that were made and not destroyed; refuse: the call that fails.
    """

    def __init__(self, name: str):
        super().__init__(name)
        self.alive, self.made, self.log, self.refuse, self.says = set(), {}, [], "", "not supported.\nAnd more"
        self.cuBLASError = self.cuBLASLtError = self.cuSPARSEError = self.cuSPARSELtError = Refused

    def __getattr__(self, name: str):
        if "destroy" in name:
            return self.unmake
        if name.startswith("_") or not ("create" in name or name.endswith("init")):
            raise AttributeError(name)
        return partial(self.make, name)

    def make(self, call: str, *arguments) -> int:
        self.asked(call, *arguments)
        thing = 1000 + len(self.made)
        self.made[thing] = (call, *arguments)
        self.alive.add(thing)
        return thing

    def unmake(self, thing: int) -> None:
        self.alive.remove(thing)  # twice is a KeyError
        self.log.append(("destroy", thing))

    def asked(self, call: str, *arguments) -> None:
        """Log a call, unless it is refused. What was destroyed is used no more."""
        if call == self.refuse:
            raise Refused(self.says)
        assert not {x for x in arguments if x in self.made} - self.alive, f"{call} uses what was destroyed"
        self.log.append((call, *arguments))

    def set_stream(self, handle, stream):
        self.asked("stream", stream)

    def calls(self, *names: str) -> list[tuple]:
        """What it was asked for, of these calls."""
        return [entry for entry in self.log if entry[0] in names]


def array(shape, dtype) -> Array:
    return np.zeros(shape, dtype).view(Array)


def at(address: int, shape, dtype) -> np.ndarray:
    """The row-major array at an address, to read and to write."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_byte * size).from_address(address), dtype).reshape(shape)


def matrix(address: int, kind: int, rows: int, columns: int, leading: int, by_rows: bool) -> np.ndarray:
    """The matrix of a cudaDataType at an address, without gaps."""
    assert leading == (columns if by_rows else rows)
    return at(address, (rows, columns), STORED[kind]) if by_rows else at(address, (columns, rows), STORED[kind]).T


def numbers(stored: np.ndarray, kind: int) -> np.ndarray:
    """What an array of a cudaDataType stands for."""
    return stored if kind == F32 else half.from_bits(stored, NAME[kind])


def store(out: np.ndarray, product: np.ndarray, kind: int, alpha: int, beta: int, factor=1) -> None:
    assert at(beta, (1,), np.float32)[0] == 0 and at(alpha, (1,), np.float32)[0] == factor
    out[:] = product if kind == F32 else half.to_bits(product, NAME[kind])


def install(monkeypatch, *libraries: types.ModuleType) -> types.ModuleType:
    """Put modules in the place of `nvmath.bindings`', and just enough of CuPy, which is returned."""
    cupy, stream = types.ModuleType("cupy"), SimpleNamespace(ptr=0, synchronize=lambda: None)
    vars(cupy).update(
        uint8=np.uint8,
        empty=array,
        array=lambda x, order: np.array(x, order=order).view(Array),
        full_like=lambda x, value: np.full_like(x, value),
        ascontiguousarray=lambda x: np.ascontiguousarray(x).view(Array),
        cuda=SimpleNamespace(get_current_stream=lambda: stream),
    )
    bindings = types.ModuleType("nvmath.bindings")
    for library in libraries:
        setattr(bindings, library.__name__, library)
        monkeypatch.setitem(sys.modules, f"nvmath.bindings.{library.__name__}", library)
    for name, module in {"cupy": cupy, "nvmath": types.ModuleType("nvmath"), "nvmath.bindings": bindings}.items():
        monkeypatch.setitem(sys.modules, name, module)
    for module, name in MAKING:
        made = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, made=made, **how: on_fake(made(*given, **how)))
    monkeypatch.setattr(cusparse, "free_bytes", lambda: 2**40)
    return cupy


class Cublas(Library):
    """Stands in for nvmath.bindings.cublas: multiplies on the CPU, at the addresses it is given."""

    ComputeType, Operation, GemmAlgo = ComputeType, Operation, SimpleNamespace(DEFAULT=-1)

    def gemm_ex(
        self, handle, op_a, op_b, m, n, k, alpha, a, kind_a, lda, b, kind_b, ldb, beta, c, kind, ldc, compute, how
    ):
        self.asked("gemm", handle, op_a, op_b)
        assert kind_a == kind_b == kind and how == -1 and compute in (COMPUTE_32F, FAST_TF32 if kind == F32 else None)
        left = matrix(a, kind, *((k, m) if op_a else (m, k)), lda, False)
        right = matrix(b, kind, *((n, k) if op_b else (k, n)), ldb, False)
        left, right = numbers(left.T if op_a else left, kind), numbers(right.T if op_b else right, kind)
        store(matrix(c, kind, m, n, ldc, False), left @ right, kind, alpha, beta)


class Cusparse(Library):
    """Stands in for nvmath.bindings.cusparse: multiplies on the CPU, at the addresses it is given.

    refuses(order of B, order of C, whether B is transposed): what it does not take.
    """

    SpMMAlg = dict(DEFAULT=0, CSR_ALG1=4, CSR_ALG2=6, CSR_ALG3=12, BLOCKED_ELL_ALG1=13, BSR_ALG1=14)
    SpMVAlg = dict(CSR_ALG1=2, CSR_ALG2=3)
    IndexType, IndexBase = SimpleNamespace(INDEX_32I=2), SimpleNamespace(ZERO=0)
    Order, Operation = SimpleNamespace(COL=1, ROW=2), Operation
    #: Kind of a sparse matrix -> the algorithms for it.
    TAKES = {"create_csr": (0, 4, 6, 12), "create_blocked_ell": (13,), "create_bsr": (14,)}

    def __init__(self):
        super().__init__("cusparse")
        self.refuses = lambda b, c, transposed: False

    def sp_mm_buffer_size(self, *arguments):
        return 512

    def sp_mm_preprocess(self, *arguments):
        self.asked("preprocess", *arguments)

    sp_mv_buffer_size, sp_mv_preprocess = sp_mm_buffer_size, sp_mm_preprocess

    def sp_mv(self, handle, op, alpha, a, x, beta, y, compute, algorithm, buffer):
        self.asked("multiply", handle, op, alpha, a, x, beta, y, compute, algorithm, buffer)
        assert op == Operation.NON_TRANSPOSE and compute == F32 and algorithm in (2, 3) and buffer
        given, out = (at(address, (size,), np.float32) for _, size, address, _ in (self.made[x], self.made[y]))
        store(out, self._create_csr(*self.made[a][1:])[0] @ given, F32, alpha, beta)

    def sp_mm(self, handle, op_a, op_b, alpha, a, b, beta, c, compute, algorithm, buffer):
        self.asked("multiply", handle, op_a, op_b, alpha, a, b, beta, c, compute, algorithm, buffer)
        kind, transposed = self.made[a][0], op_b == Operation.TRANSPOSE
        assert op_a == Operation.NON_TRANSPOSE and compute == F32 and algorithm in self.TAKES[kind] and buffer
        if self.refuses(self.made[b][6], self.made[c][6], transposed):
            raise Refused("NOT_SUPPORTED")
        left, data = getattr(self, f"_{kind}")(*self.made[a][1:])
        (right, data_b), (out, data_c) = self._dense(*self.made[b][1:]), self._dense(*self.made[c][1:])
        assert data == data_b == data_c
        store(out, left @ numbers(right.T if transposed else right, data), data, alpha, beta)

    def _dense(self, rows, columns, leading, address, data, order):
        return matrix(address, data, rows, columns, leading, order == self.Order.ROW), data

    def _create_csr(self, rows, columns, nnz, row_ptr, col_idx, val, index, offsets, base, data):
        assert (index, offsets, base) == (2, 2, 0)
        val = numbers(at(val, (nnz,), STORED[data]), data)
        row_ptr, col_idx = at(row_ptr, (rows + 1,), np.int32), at(col_idx, (nnz,), np.int32)
        return csr.to_dense(csr.Csr(rows, columns, row_ptr, col_idx, val)), data

    def _create_bsr(
        self, rows, columns, blocks, b_row, b_col, row_ptr, col_idx, val, index, offsets, base, data, order
    ):
        assert (index, offsets, base, order) == (2, 2, 0, self.Order.ROW)
        parts = at(row_ptr, (rows + 1,), np.int32), at(col_idx, (blocks,), np.int32)
        val = at(val, (blocks, b_row, b_col), STORED[data])
        return bcsr.to_dense(Bcsr(rows * b_row, columns * b_col, NAME[data], *parts, val, 0)), data

    def _create_blocked_ell(self, rows, columns, block, width, col_idx, val, index, base, data):
        assert (index, base) == (2, 0) and not rows % block and not columns % block
        col_idx = at(col_idx, (rows // block, width // block), np.int32)
        val = numbers(at(val, (rows, width), STORED[data]), data)
        dense = np.zeros((rows // block, block, columns // block, block), np.float32)
        for row, slot in zip(*np.nonzero(col_idx >= 0), strict=True):
            dense[row, :, col_idx[row, slot]] = val[row * block :][:block, slot * block :][:, :block]
        return dense.reshape(rows, columns), data


class CublasLt(Library):
    """Stands in for nvmath.bindings.cublasLt: multiplies on the CPU, at the addresses it is given.

    It proposes the algorithms `ids`; 8 cannot be launched, and 9 needs a workspace. knows: ways to add sums of e4m3.
    """

    Order, MatrixLayoutAttribute = SimpleNamespace(COL=0, ROW=1), SimpleNamespace(ORDER=1)
    MatmulDescAttribute = SimpleNamespace(TRANSA=3, TRANSB=4, FAST_ACCUM=5, A_SCALE_POINTER=6, B_SCALE_POINTER=7)
    MatmulPreferenceAttribute = SimpleNamespace(MAX_WORKSPACE_BYTES=1)
    matmul_heuristic_result_dtype = RESULT

    def __init__(self):
        super().__init__("cublasLt")
        self.attributes, self.launched, self.ids, self.knows, self.broken = {}, [], (7, 8, 9), (0, 1), ()

    def matmul_desc_set_attribute(self, thing, attribute, address, size):
        self.asked("attribute", thing)
        self.attributes[thing, attribute] = int(at(address, (1,), {1: np.int8, 4: np.int32, 8: np.uint64}[size])[0])

    matrix_layout_set_attribute = matmul_preference_set_attribute = matmul_desc_set_attribute

    def matmul_algo_get_heuristic(self, handle, description, a, b, c, d, preference, most, results, count):
        self.asked("heuristic", handle, description, a, b, c, d, preference)
        assert self.attributes[preference, 1] >= 2**20
        if self.attributes[description, 5] not in self.knows:
            raise Refused("not supported")
        for place, number in enumerate(self.ids):
            at(results, (most,), RESULT)[place] = algorithm(number)[0]
        at(count, (1,), np.int32)[0] = len(self.ids)

    def matmul(self, handle, description, alpha, a, la, b, lb, beta, c, lc, d, ld, chosen, workspace, size, stream):
        self.asked("matmul", handle, description, la, lb, lc)
        said, chosen = partial(self.attributes.get), at(chosen, (1,), RESULT)[0]
        number = int(chosen["algo"]["data_"][0])
        if number in self.broken:
            raise Refused("no launch")
        kind = self.made[la][1]
        assert self.made[description][1:] == (FAST_TF32 if kind == F32 else COMPUTE_32F, F32)
        assert size == chosen["workspace_size"] and bool(workspace) == bool(size) and (c, lc) == (d, ld)
        left, right, out = (self._matrix(*x) for x in ((la, a), (lb, b), (lc, c)))
        left, right = left.T if said((description, 3)) else left, right.T if said((description, 4)) else right
        scales = [at(said((description, x)), (1,), np.float32)[0] for x in (6, 7) if kind == E4M3]
        store(
            out,
            np.float32(np.prod(scales)) * (numbers(left, kind) @ numbers(right, kind)),
            self.made[lc][1],
            alpha,
            beta,
        )
        self.launched.append((number, said((lb, 1)), said((description, 5)), stream))

    def _matrix(self, layout: int, address: int) -> np.ndarray:
        kind, *sizes = self.made[layout][1:]
        return matrix(address, kind, *sizes, self.attributes.get((layout, 1)) == 1)


class Matmul:
    """Stands in for nvmath.linalg.advanced.Matmul: plans `ids`, and tuning turns them around.

    calls: what it was asked for, "matmul" with the dtype, the compute type, and the strides in
    elements of A and B, and of a C to add zero times.
    """

    def __init__(self, library: CublasLt):
        self.library, self.ids, self.refuse, self.calls, self.open = library, [7, 8, 9], None, [], 0

    def __call__(self, a, b, c=None, *, beta=None, options):
        assert a.dtype == b.dtype and a.shape[1] == b.shape[0] and beta == (None if c is None else 0)
        self.library.asked("planned", options["handle"])
        strides = tuple(stride // x.itemsize for x in (a, b, c) if x is not None for stride in x.strides)
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
        self.algorithms = [
            SimpleNamespace(algorithm_id=i, split_k=1, custom_option=0, as_numpy=partial(algorithm, i))
            for i in self.ids
        ]

    def autotune(self, iterations, prune):
        self.calls.append(("autotune", iterations, prune))
        self.algorithms = self.algorithms[::-1][:prune]


def algorithm(number: int) -> np.ndarray:
    """What the library says of an algorithm."""
    result = np.zeros(1, RESULT)
    result["algo"]["data_"][0, 0], result["workspace_size"] = number, 128 * (number == 9)
    return result


class SplitKMode(enum.IntEnum):
    INVALID_MODE, ONE_KERNEL, TWO_KERNELS, HEURISTIC, DATAPARALLEL, SPLITK, STREAMK = range(7)


class Attribute(enum.IntEnum):
    CONFIG_ID, CONFIG_MAX_ID, SEARCH_ITERATIONS, SPLIT_K, SPLIT_K_MODE, SPLIT_K_BUFFERS = range(6)


class CusparseLt(Library):
    """Stands in for nvmath.bindings.cusparseLt: multiplies on the CPU, at the addresses it is given.

    Algorithms 0 to 4, of which 2 cannot be planned and 3 not launched; 4 needs a workspace. The search
    finds `searches`. Modes as on Hopper.
    """

    SplitKMode, MatmulAlgAttribute, MatmulAlg = SplitKMode, Attribute, SimpleNamespace(DEFAULT=0)
    Sparsity, ComputeType = SimpleNamespace(SPARSITY_50_PERCENT=0), SimpleNamespace(COMPUTE_32F=2)

    def __init__(self):
        super().__init__("cusparseLt")
        self.selections, self.launched, self.searches = {}, [], 1

    def get_error_string(self, status):
        return {10: "operation not supported"}[status]

    def matmul_alg_selection_init(self, handle, product, algorithm):
        made = self.make("selection", handle, product)
        attributes = {"CONFIG_ID": algorithm, "CONFIG_MAX_ID": 5, "SPLIT_K": 1, "SPLIT_K_MODE": SplitKMode.HEURISTIC}
        self.selections[made] = attributes
        return made

    def matmul_alg_set_attribute(self, handle, selection, attribute, address, size):
        self.asked("attribute", handle, selection)
        value, name = int(at(address, (size // 4,), np.int32)[0]), Attribute(attribute).name
        if (name == "SPLIT_K" and value not in (1, -1)) or (name == "CONFIG_ID" and value > 4):
            raise Refused
        self.selections[selection][name] = value

    def matmul_alg_get_attribute(self, handle, selection, attribute, address, size):
        self.asked("attribute", handle, selection)
        at(address, (size // 4,), np.int32)[0] = self.selections[selection][Attribute(attribute).name]

    def matmul_plan_init(self, handle, product, selection):
        if self.selections[selection]["CONFIG_ID"] == 2:
            raise Refused
        return self.make("matmul_plan_init", handle, product, selection)

    def matmul_get_workspace(self, handle, plan):
        self.asked("workspace", handle, plan)
        return 64 * (self.selections[self.made[plan][3]]["CONFIG_ID"] == 4)

    def sp_mma_compressed_size2(self, handle, matrix):
        rows, columns, _, _, kind = self.made[matrix][2:7]
        return rows * columns * np.dtype(STORED[kind]).itemsize, 128

    def sp_mma_compress2(self, handle, matrix, of_a, operation, dense, compressed, buffer, stream):
        self.asked("compress", handle, matrix)
        rows, columns, _, _, kind = self.made[matrix][2:7]
        assert (of_a, operation) == (1, 0)
        at(buffer, (128,), np.uint8)[:] = 1
        at(compressed, (rows, columns), STORED[kind])[:] = at(dense, (rows, columns), STORED[kind])

    def matmul(self, handle, plan, alpha, a, b, beta, c, d, workspace, streams, count, search=False):
        self.asked("matmul", handle, plan)
        _, op_a, op_b, mat_a, mat_b, mat_c, mat_d, sums = self.made[self.made[plan][2]][1:]
        chosen = self.selections[self.made[plan][3]]
        if chosen["CONFIG_ID"] == 3:
            raise Refused
        assert bool(workspace) == (chosen["CONFIG_ID"] == 4) or search
        assert c == d and mat_c == mat_d and op_a == 0 and count == 1 and sums == 2
        (left, kind), (right, _), (out, kind_c) = (self._matrix(*x) for x in ((mat_a, a), (mat_b, b), (mat_c, c)))
        factor = at(alpha, (1,), np.float32)[0]
        assert factor == 1 or kind == E4M3
        product = numbers(left, kind) @ numbers(right.T if op_b else right, kind)
        store(out, factor * product, kind_c, alpha, beta, factor)
        self.launched.append((chosen["CONFIG_ID"], chosen["SPLIT_K_MODE"], int(at(streams, (1,), np.uintp)[0])))

    def _matrix(self, descriptor: int, address: int) -> tuple[np.ndarray, int]:
        rows, columns, leading, alignment, kind, order = self.made[descriptor][2:8]
        assert alignment == 16
        return matrix(address, kind, rows, columns, leading, order == Cusparse.Order.ROW), kind

    def matmul_search(self, handle, plan, *arguments):
        self.asked("search", handle, plan)
        selection = self.selections[self.made[plan][3]]
        assert selection["SEARCH_ITERATIONS"] and arguments[6], "the workspace does for every algorithm"
        selection["CONFIG_ID"] = self.searches
        self.matmul(handle, plan, *arguments, search=True)


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

    launched: (stream, parameters) of each multiplication; refuse: the call that fails; breaks(parameters): whether
    they do not compile.
    """

    __version__ = "2.0"
    bfloat16, float16 = half.DTYPES
    float32 = "float32"

    def __init__(self):
        super().__init__("torch")
        self.stream, self.launched, self.made, self.warned = 0, [], [], False
        self.refuse, self.breaks, self._triton_ops = "", lambda meta: False, self
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
        if self.refuse or self.breaks(meta):
            raise RuntimeError("not supported.\nAnd more")
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


def install_all(monkeypatch) -> SimpleNamespace:
    """All libraries, and what plans for cuBLASLt, in the place of nvmath's; whatever is timed takes as long."""
    made = SimpleNamespace(cublas=Cublas("cublas"), lt=CublasLt(), cusparse=Cusparse(), sparse_lt=CusparseLt())
    every = list(vars(made).values())
    made.planner, made.alive = Matmul(made.lt), lambda: set().union(*(library.alive for library in every))
    install(monkeypatch, *every)
    for name, members in (("nvmath.linalg", {}), ("nvmath.linalg.advanced", {"Matmul": made.planner})):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        vars(sys.modules[name]).update(members)
    made.torch = Torch()
    ml_dtypes = SimpleNamespace(bfloat16=BFLOAT16)
    for name, module in {"ml_dtypes": ml_dtypes, "torch": made.torch, "torch.sparse": made.torch}.items():
        monkeypatch.setitem(sys.modules, name, module)
    Timer(monkeypatch, lambda name, turn: 1.0)
    return made


# ---------------------------------------------------------------- problems on the fake GPU


def on_fake(x):
    """An operand whose arrays pass for CuPy's."""
    if isinstance(x, np.ndarray):
        return x.view(Array)
    return replace(x, **{name: array.view(Array) for name, array in x.arrays.items()})


def pretended(problem: Problem, order: str, out: str = "") -> Problem:
    """The problem with its operands on the fake GPU, and a C in a memory order; out: C's dtype, by default that of the
    dense operand."""
    a, b = problem.host().a, problem.host().b
    dtype = out or str((b if formats.is_sparse(a) else a).dtype)
    number = {"float32": np.float32, "e4m3": np.uint8}.get(dtype, np.uint16)
    c = np.zeros((problem.m, problem.n), number, order).view(Array)
    if number is not np.float32:
        c = Half(dtype, c) if number is np.uint16 else Eight(dtype, c, np.ones((1, 1), np.float32))
    problem._device = Operands(on_fake(a), on_fake(b), c)
    return problem


def nm_problem(m, n, k, density=0.5, **what) -> Problem:
    return pretended(nm_operands.problem(m, n, k, density, seed=1, **what), "F")


def bcsr_problem(m, n, k, density=0.3, layout="source", **what) -> Problem:
    problem = block_operands.problem(m, n, k, density, seed=1, layout=layout, **what)
    return pretended(problem, block_operands.LAYOUTS[layout][1])


def sparse_matrix(m: int, k: int, each: int = 3) -> csr.Csr:
    """A matrix on the host with so many entries in each row, some of them at one place."""
    row_ptr = np.arange(0, each * m + 1, each, dtype=np.int32)
    col_idx = np.random.default_rng(3).integers(0, k, each * m).astype(np.int32)
    return csr.Csr(m, k, row_ptr, col_idx, np.ones(each * m, np.float32))


def csr_problem(m, n, k, layout="row", **what) -> Problem:
    """The same as `bcsr_problem` with an A in CSR."""
    a = sparse_matrix(m, k)
    problem = block_operands.problem_from_csr(a, n, 1, layout=layout, format="csr", reorder="", **what)
    return pretended(problem, block_operands.LAYOUTS[layout][1])


def two_four_problem(m, n, k, dtype="bfloat16", orders="CC") -> Problem:
    problem = pretended(operands.problem(m, n, k, seed=1, dtype=dtype, orders=orders), orders[1])
    b = problem.device().b
    problem.device().b = Half(dtype, np.asarray(b.bits, order=orders[0]).view(Array))
    return problem


def eight_problem(m, n, k, **what) -> Problem:
    """The same in e4m3; what: for `fp8.problem`."""
    made = fp8.problem(m, n, k, seed=1, **what)
    return pretended(made, made.orders[1], what.get("out", "bfloat16"))


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
