"""What holds of every library that kernels are compared with: it multiplies the same operands, counts what it makes
of them, refuses in one sentence, and leaves nothing behind."""

import ast
import gc
import weakref
from collections.abc import Callable
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import (
    BF16,
    DEVICE,
    E4M3,
    F32,
    FP16,
    NAME,
    STREAM,
    array,
    bcsr_problem,
    csr_problem,
    eight_problem,
    install_all,
    nm_problem,
    sparse_matrix,
    two_four_problem,
)
from refused import refused

from artifact import registry
from artifact.baselines import (
    cublas,
    cusparse,
    cusparselt,
    triton_bsr,
)
from artifact.measure import bench, verification
from kernels import casper_sparse
from kernels.async_sparse import operands as of_blocks
from kernels.contract import Operands
from kernels.formats import bcsr, half, nm
from kernels.formats.half import Half, array_of
from kernels.nm_spmm import operands as of_nm
from kernels.tensor_core_24 import operands as of_24

runtime = pytest.importorskip("cuda.bindings.runtime")


MODULES = sorted(path.stem for path in (registry.FOLDER.parent / "baselines").glob("[!_]*.py"))
EVERY = [*MODULES, "cublas.lt", "cublas.tensor", "cublas.dense", "cublas.eight", "cusparse.blocks", "cusparse.vectors"]


class Case(NamedTuple):
    prepare: Callable
    problem: Callable[[], Any]
    held: int  #: how many things of the libraries a bound contender holds
    refuse: tuple[str, str]  #: a library and its call whose refusal is the problem's
    nbytes: Callable[[Any], int]  #: of the problem: what is made of the operands, and the workspace


def size(dtype: str) -> int:
    return 2 if dtype in half.DTYPES else 4


def blocks(*sizes, **what) -> Callable:
    return partial(bcsr_problem, *sizes, block=16, **what)


def of_csr(p, dtype: str, ell: bool = False) -> int:
    """Bytes of the blocks of 64 x 64 that an A in CSR becomes, and of the copies of B and C that are whole blocks."""
    made = bcsr.from_csr(p.device().a, dtype="bfloat16" if size(dtype) == 2 else "float32")
    copies = size(dtype) * p.n * (128 + 192) * (p.m != 128)
    return made.nbytes + copies + ell * cusparse.ell_bytes(made)


LAYOUTS, BLOCKED = of_blocks.LAYOUTS, [*product(of_blocks.DTYPES, of_blocks.LAYOUTS)]
WHOLE, RAGGED = (64, 32, 96), (50, 32, 83)
DENSE = {"cublas_dense": (9, ("lt", "matmul"), 128), "cublas_dense_default": (1, ("cublas", "gemm"), 0)}
MULTIPLY, TRITON = ("cusparse", "multiply"), ("torch", "bsr_dense_mm")
#: What multiplies by blocks: name -> its bind, what it holds, who refuses, and bytes beside copies, of whole blocks.
OF_BLOCKS = {
    **{
        f"cusparse_{form}": (
            partial(cusparse.prepare_blocks, form),
            4,
            MULTIPLY,
            lambda p, form=form: 512 + cusparse.ell_bytes(p.device().a) * (form == "bell"),
        )
        for form in cusparse.FORMATS
    },
    **{name: (partial(triton_bsr.prepare, name), 0, TRITON, lambda p: 0) for name in triton_bsr.NAMES},
}
CASES = {
    **{
        f"cusparse_spmv_{algorithm}": Case(
            partial(cusparse.prepare_vector, algorithm),
            partial(csr_problem, 37, 1, 50, dtype="float32"),
            4,
            MULTIPLY,
            lambda _: 512,
        )
        for algorithm in cusparse.VECTOR_ALGORITHMS
    },
    "cublas": Case(
        partial(cublas.prepare, "cublas"), lambda: nm_problem(6, 10, 40), 1, ("cublas", "create"), lambda _: 1600
    ),
    **{
        f"{name} {dtype} {layout}": Case(
            partial(cublas.prepare_dense, name),
            blocks(*RAGGED, dtype=dtype, layout=layout),
            held,
            refuse,
            lambda p, more=more, dtype=dtype: size(dtype) * p.m * p.k + more,
        )
        for (name, (held, refuse, more)), (dtype, layout) in product(DENSE.items(), BLOCKED)
    },
    **{
        f"{name} {vector}": Case(
            partial(cublas.prepare_tensor, name),
            partial(nm_problem, 10, 24, 33, 0.25, dtype=dtype, vector=vector),
            9,
            ("lt", "matmul"),
            lambda p, dtype=dtype: size(dtype) * p.k * p.n + 128,
        )
        for (name, dtype), vector in product(cublas.TENSOR.items(), (1, 32))
    },
    **{
        f"cublaslt {dtype}": Case(
            cublas.prepare_lt,
            partial(two_four_problem, 10, 24, 33, dtype),
            5,
            ("lt", "matmul"),
            lambda p: 2 * p.m * p.k + 128,
        )
        for dtype in half.DTYPES
    },
    **{
        f"cublaslt_eight {n} {orders}": Case(
            cublas.prepare_eight,
            partial(eight_problem, 16, n, 32, orders=orders),
            7,
            ("lt", "matmul_desc_create"),
            lambda p: p.m * p.k,
        )
        for n, orders in ((48, "CC"), (48, "FF"), (7, "FF"))  # one column is as good as another
    },
    **{
        f"cusparselt {algorithm} {dtype} {orders}": Case(
            partial(cusparselt.prepare, algorithm),
            partial(two_four_problem, 16, 24, 32, dtype, orders),
            7,
            ("sparse_lt", "matmul_plan_init"),
            lambda p: 2 * p.m * p.k,
        )
        for algorithm, dtype, orders in product(cusparselt.NAMES, half.DTYPES, of_24.ORDERS)
    },
    "cusparselt e4m3": Case(
        partial(cusparselt.prepare, "best"),
        partial(eight_problem, 16, 32, 32),
        7,
        ("sparse_lt", "matmul_descriptor_init"),
        lambda p: p.m * p.k,
    ),
    **{
        f"cusparse {algorithm} {dtype} {layout}": Case(
            partial(cusparse.prepare, algorithm),
            blocks(*RAGGED, dtype=dtype, layout=layout),
            4,
            MULTIPLY,
            lambda p, dtype=dtype: 512 + 4 * (p.m + 1) + (4 + size(dtype)) * p.nnz,
        )
        for algorithm, (dtype, layout) in product(cusparse.ALGORITHMS, BLOCKED)
    },
    **{
        f"cusparse csr {dtype} {layout}": Case(
            partial(cusparse.prepare, "alg2"),
            partial(csr_problem, 50, 24, 83, layout, dtype=dtype),
            4,
            MULTIPLY,
            lambda p, dtype=dtype: 512 + 2 * p.nnz * (dtype in half.DTYPES),
        )
        for dtype, layout in product(of_blocks.CSR_DTYPES, LAYOUTS)
    },
    **{
        f"cusparse vector {sizes} {layout}": Case(
            partial(cusparse.prepare, "default"),
            blocks(*sizes, density=1.0, layout=layout),
            4,
            MULTIPLY,
            lambda p: 512 + 4 * (p.m + 1) + 6 * p.nnz,
        )
        for sizes, layout in product(((1, 24, 40), (40, 1, 40), (40, 24, 1), (1, 1, 1)), LAYOUTS)
    },
    **{
        f"cublas_dense_default vector {sizes} {layout}": Case(
            partial(cublas.prepare_dense, "cublas_dense_default"),
            blocks(*sizes, density=1.0, layout=layout),
            1,
            ("cublas", "gemm"),
            lambda p: 2 * p.m * p.k,
        )
        for sizes, layout in product(((1, 24, 40), (40, 1, 40), (40, 24, 1)), LAYOUTS)
    },
    "cusparse nm": Case(
        partial(cusparse.prepare, "alg1"),
        lambda: nm_problem(6, 10, 40, 0.25),
        4,
        MULTIPLY,
        lambda p: 512 + cusparse.transposed_csr(p.device().b).nbytes,
    ),
    **{
        f"{name} {kind}{dtype} {layout}": Case(
            prepare,
            blocks(*sizes, dtype=dtype, layout=layout),
            held,
            refuse,
            lambda p, kind=kind, more=more, dtype=dtype: more(p) + bool(kind) * size(dtype) * p.n * (96 + 64),
        )
        for (name, (prepare, held, refuse, more)), (dtype, layout) in product(OF_BLOCKS.items(), BLOCKED)
        for kind, sizes in (("padded ", RAGGED), ("", WHOLE))
    },
    **{
        f"{name} {kind}csr {dtype}": Case(
            prepare,
            partial(csr_problem, *sizes, dtype=dtype),
            held,
            refuse,
            lambda p, name=name, held=held, dtype=dtype: 512 * bool(held) + of_csr(p, dtype, name == "cusparse_bell"),
        )
        for (name, (prepare, held, refuse, _)), dtype in product(OF_BLOCKS.items(), of_blocks.CSR_DTYPES)
        for kind, sizes in (("padded ", (100, 64, 150)), ("", (128, 64, 192)))
    },
}
#: One of each kind, for what does not depend on dtypes and orders.
EACH = {
    " ".join(name.split()[: 2 if name.startswith(("cusparselt", "cusparse ")) else 1]): name
    for name in CASES
    if "padded" not in name and "vector" not in name and not name.startswith(tuple(f"{x} csr" for x in OF_BLOCKS))
}


@pytest.mark.parametrize("name", CASES)
def test_the_product_is_that_of_the_same_operands(libraries, name):
    problem = CASES[name].problem()
    bound, reference = CASES[name].prepare(problem, DEVICE), verification.oracle(problem, on="cpu")
    for _ in range(2):
        verification.check(bound, problem, reference, STREAM)
    assert (bound.result() is problem.device().c) == ("padded" not in name) and bound.prepare_ms > 0
    assert bound.prepare_bytes == CASES[name].nbytes(problem)


@pytest.mark.parametrize("name", EACH.values())
def test_everything_is_released_with_the_last_reference(libraries, name):
    problem = CASES[name].problem()
    root = array_of(problem.device().c)
    while root.base is not None:
        root = root.base
    c, early = weakref.ref(root), CASES[name].prepare(problem, DEVICE)
    del root
    early.close()
    early.close()
    assert not libraries.alive()
    bound = CASES[name].prepare(problem, DEVICE)
    assert len(libraries.alive()) == CASES[name].held
    problem.make_device = problem.make_host = early = None
    problem.release()
    assert c() is not None, "the library still holds its address"
    bound.launch(STREAM)
    del bound
    gc.collect(0)
    assert not libraries.alive() and c() is None


@pytest.mark.parametrize("name", EACH.values())
def test_a_refusal_is_one_sentence_and_leaves_nothing_behind(libraries, name):
    library, call = CASES[name].refuse
    getattr(libraries, library).refuse = call
    refused(r"refuses .*m=\d+, n=\d+, k=\d+.*: .*not supported", CASES[name].prepare, CASES[name].problem(), DEVICE)
    assert not libraries.alive()


@pytest.mark.parametrize("name", ["cublas_dense", "cublas_tf32", "cublaslt", "cublaslt_eight", "cusparselt best"])
def test_a_prepare_that_fails_elsewhere_leaves_nothing_behind(libraries, monkeypatch, name):
    monkeypatch.setattr(bench, "time", lambda *_, **__: 1 / 0)
    refused("division by zero", CASES[EACH[name]].prepare, CASES[EACH[name]].problem(), DEVICE, kind=ZeroDivisionError)
    assert not libraries.alive()


@pytest.mark.parametrize("name", ["cublas", "cublas_dense_default", "cusparse alg1", "cusparse_bsr"])
def test_a_launch_only_multiplies_and_sets_the_stream_where_it_changes(libraries, name):
    case = CASES[EACH[name]]
    bound, library = case.prepare(case.problem(), DEVICE), getattr(libraries, case.refuse[0])
    library.log.clear()
    for handle in (11, 11, 22, 11):
        bound.launch(SimpleNamespace(handle=handle))
    once = library.log[1][0][0]
    asked = [entry[1] if entry[0] == "stream" else entry[0][0] for entry in library.log]
    assert asked == [11, once, once, 22, once, 11, once]


# ---------------------------------------------------------------- what is refused


def changed(made: Callable, **operands) -> Callable:
    """A problem of which operands are others: name -> what makes one of the operands."""

    def problem():
        found = made()
        given = found.device()
        found._device = Operands(*(operands.get(x, lambda o, x=x: getattr(o, x))(given) for x in "abc"))
        return found

    return problem


def off(operand: str, made: Callable) -> Callable:
    """A problem of which one value is not what its dtype holds."""

    def problem():
        found = made()
        x = getattr(found.device(), operand)
        getattr(x, "val", x)[1, 2] = np.float32(1 / 3)
        return found

    return problem


ANY, BLOCKS, NM = blocks(*WHOLE), blocks(*RAGGED), partial(nm_problem, 6, 10, 40)
TF32, NM_BF16 = partial(nm_problem, 10, 24, 33, dtype="tf32"), partial(nm_problem, 6, 10, 40, dtype="bfloat16")
TWO_FOUR, OTHER = partial(two_four_problem, 16, 24, 32), {"b": lambda o: Half("float16", o.b.bits)}


@pytest.mark.parametrize(
    ("prepare", "problem", "says"),
    [
        (partial(cublas.prepare, "cublas"), NM_BF16, "takes A as a float32 array .* nm_spmm has it otherwise"),
        (
            partial(cublas.prepare, "cublas"),
            changed(NM, c=lambda o: np.zeros((6, 10), np.float32)),
            "takes C as a float32 array in Fortran",
        ),
        (partial(cusparse.prepare, "alg1"), NM_BF16, "cuSPARSE takes A as a float32 array .*nm_spmm has it"),
        (partial(cusparse.prepare, "alg1"), changed(BLOCKS, **OTHER), "takes a BCSR A with a B and a C of its dtype"),
        (partial(cusparse.prepare, "alg1"), blocks(*WHOLE, density=0), "nothing to multiply"),
        (partial(cusparse.prepare_blocks, "bsr"), NM, "cusparse_bsr takes a BCSR A .*nm_spmm has something"),
        (partial(cusparse.prepare_blocks, "bsr"), blocks(*WHOLE, density=0), "nothing to multiply"),
        (partial(cusparse.prepare_blocks, "bell"), changed(ANY, **OTHER), "a B and a C of its dtype, without gaps"),
        (
            partial(cusparse.prepare_blocks, "bell"),
            changed(ANY, b=lambda o: Half("bfloat16", np.zeros((96, 64), np.uint16)[:, ::2])),
            "a B and a C of its dtype, without gaps",
        ),
        (
            partial(cusparse.prepare_blocks, "bell"),
            lambda: bcsr_problem(*WHOLE, block=(16, 32)),
            "square blocks only, and here they are 16 x 32",
        ),
        (partial(cublas.prepare_dense, "cublas_dense"), NM, "cublas_dense takes a BCSR A .*nm_spmm has something"),
        (partial(cublas.prepare_dense, "cublas_dense"), blocks(1, 24, 40, density=1.0), "one is a vector.*_default"),
        (
            partial(cublas.prepare_dense, "cublas_dense"),
            off("b", blocks(*RAGGED, dtype="tf32")),
            "that tf32 holds exactly",
        ),
        (partial(cublas.prepare_tensor, "cublas_bf16"), TF32, "cublas_bf16 takes .* nm_spmm has"),
        (partial(cublas.prepare_tensor, "cublas_tf32"), off("a", TF32), "takes values of A that tf32 holds exactly"),
        (partial(cublas.prepare_tensor, "cublas_tf32"), off("b", TF32), "takes values of B that tf32 holds exactly"),
        (
            partial(cublas.prepare_tensor, "cublas_tf32"),
            changed(TF32, b=lambda o: nm.to_dense(o.b)),
            "an N:M B with a column-major A and C in tf32",
        ),
        (
            partial(cublas.prepare_tensor, "cublas_tf32"),
            lambda: of_nm.problem(1, 24, 32, 1.0, dtype="tf32"),
            "one is a vector",
        ),
        (cublas.prepare_lt, lambda: of_24.problem(16, 1, 32), "one is a vector"),
        (cublas.prepare_lt, changed(TWO_FOUR, b=lambda o: array((32, 24), np.float32)), "cuBLASLt takes a 2:4 A"),
        (partial(cusparselt.prepare, "best"), lambda: of_24.problem(16, 20, 32), "multiples of 8 only.*n=20"),
        (
            partial(cusparselt.prepare, "best"),
            changed(TWO_FOUR, b=lambda o: array((32, 24), np.float32)),
            "takes a 2:4 A",
        ),
        *(
            (prepare, partial(eight_problem, 16, n, 32, **what), says)
            for prepare in (partial(cusparselt.prepare, "best"), cublas.prepare_eight)
            for n, what, says in (
                (24, {}, "multiples of 16 only"),
                (32, {"scale": "vectors"}, "with one scale each"),
                (32, {"out": "e4m3"}, "takes a bfloat16 C"),
            )
        ),
    ],
)
def test_other_operands_are_refused_in_one_sentence(libraries, prepare, problem, says):
    refused(says, prepare, problem(), DEVICE)
    assert not libraries.alive()


# ---------------------------------------------------------------- names


def test_contenders_have_the_names_of_the_records():
    every = [list(registry.contenders([module], None)) for module in EVERY]
    names = [name for own in every for name in own]
    assert all(every) and len(set(names)) == len(names), "a part of a module has contenders of its own"
    assert all(name.startswith(registry.PREFIXES) for name in names), names
    assert list(registry.contenders(("cusparse.blocks", "cublas"), None))[-1] == "cublas"
    refused("no baseline 'mkl'; known: cpu, cublas", registry.contenders, ("cublas", "mkl"), None)


@pytest.mark.parametrize("name", ["cublas", "cublasLt", "cusparse", "cusparseLt"])
def test_what_is_asked_of_a_library_is_in_it(monkeypatch, name):
    bindings = pytest.importorskip(f"nvmath.bindings.{name}")
    word = "library" if name == "cusparseLt" else name
    trees = [ast.parse(path.read_text()) for path in (registry.FOLDER.parent / "baselines").glob("*.py")]
    used = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    asked = {node.attr for node in used if word in (getattr(node.value, "id", ""), getattr(node.value, "attr", ""))}
    assert asked and not [x for x in asked if not hasattr(bindings, x)]
    fake = getattr(install_all(monkeypatch), {"cublasLt": "lt", "cusparseLt": "sparse_lt"}.get(name, name))
    kinds = ("Order", "Operation", "ComputeType", "SpMMAlg", "GemmAlgo", "SplitKMode", "MatmulAlgAttribute")
    for kind in {*kinds} & {*vars(type(fake))}:
        here, there = getattr(fake, kind), getattr(bindings, kind).__members__
        known = getattr(here, "__members__", here if isinstance(here, dict) else vars(here))
        assert all(there[member] == value for member, value in known.items() if member in there), kind
    for number, type_ in NAME.items():
        cuda = {F32: "CUDA_R_32F", FP16: "CUDA_R_16F", BF16: "CUDA_R_16BF", E4M3: "CUDA_R_8F_E4M3"}[number]
        assert int(getattr(runtime.cudaDataType, cuda)) == number, type_


# ---------------------------------------------------------------- on a GPU


def signed(problem):
    """Of 1 and -1: sums are exact, also where a library rounds to 16 bits on the way, as cuSPARSE does for rows of
    many non-zeros."""
    a, b = problem.device().a, problem.device().b
    for bits, dtype in ((a.val, a.dtype), (b.bits, b.dtype)) if isinstance(b, Half) else ():
        one = half.to_bits(np.ones(1, np.float32), dtype)[0]
        bits[...] = (bits & 0x8000 | one) * (bits != 0)
    return problem


def on_blocks(*shape: int, **what) -> Callable:
    return lambda: signed(of_blocks.problem(*shape, 0.3, **what))


on_csr = partial(of_blocks.problem_from_csr, sparse_matrix(1000, 777), 128, 1, format="csr", reorder="")
ON_GPU = [
    *((f"cusparse_{a}", partial(of_nm.problem, 130, 100, 45, 0.5), 1e-6) for a in cusparse.ALGORITHMS),
    *(
        (f"cusparse_{a}", partial(casper_sparse.problem, m=513, n=n, k=300, density=0.05, seed=n), 1e-6)
        for a, n in product(cusparse.ALGORITHMS, (1, 3, 4, 5, 128, 257))
    ),
    *(
        (f"cusparse_spmv_{a}", partial(casper_sparse.problem, m=513, n=1, k=300, density=0.05, seed=1), 1e-6)
        for a in cusparse.VECTOR_ALGORITHMS
    ),
    *(("cublas", partial(of_nm.problem, *shape), 1e-6) for shape in ((1, 33, 64, 0.5), (130, 100, 45, 0.5))),
    *(
        (name, partial(of_nm.problem, *shape, dtype=dtype), 0.0)
        for name, dtype in cublas.TENSOR.items()
        for shape in ((256, 128, 512, 0.25), (101, 60, 301, 0.5))
    ),
    *(
        (name, partial(of_24.problem, *shape, dtype=dtype), 0.0)
        for name in ("cublaslt", "cusparselt", "cusparselt_default")
        for dtype, shape in product(half.DTYPES, ((64, 64, 64), (256, 128, 512)))
    ),
    *(
        (name, on_blocks(*shape, dtype=dtype, layout=layout), 0.0)
        for name in ("cublas_dense", "cublas_dense_default", "cusparse_alg2", "cusparse_bell", "cusparse_bsr")
        for dtype, layout in BLOCKED
        for shape in ((300, 40, 500), *((256, 64, 384),) * name.startswith("cusparse_b"))
    ),
    *(
        ("triton_bsr", on_blocks(*shape, dtype=dtype, layout=layout, block=block), 0.0)
        for dtype, layout, block in product(half.DTYPES, LAYOUTS, bcsr.SIDES)
        for shape in ((256, 128, 384), (300, 256, 500), (1001, 128, 777))
    ),
    *(
        (name, partial(on_csr, dtype=dtype), 0.0)
        for name, dtype in product(("cusparse_bell", "cusparse_bsr", "triton_bsr"), of_blocks.CSR_DTYPES)
        if (name, dtype) != ("cusparse_bell", "float32")  # which multiplies in TF32
    ),
]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "made", "most"), [pytest.param(*x, marks=pytest.mark.xdist_group(x[0])) for x in ON_GPU]
)
def test_a_library_is_right_on_a_gpu_also_from_a_graph(device, name, made, most):
    problem = made()
    try:
        bound = registry.contenders(EVERY, device)[name](problem)
    except ValueError as error:
        # Block formats take B and C in one order only; sums in float64 are too much for some versions of the compiler.
        assert name.startswith(("cusparse_b", "triton"))
        assert str(error).startswith(("cuSPARSE refuses", "triton_bsr needs PyTorch", "PyTorch's bsr_dense_mm refuses"))
        pytest.skip(str(error))
    reference, stream = verification.oracle(problem), device.create_stream()
    for _ in range(2):
        errors = verification.check(bound, problem, reference, stream)
        assert not most or errors.rel_err < most
    assert bound.prepare_ms >= 0 and bound.prepare_bytes >= 0 and bound.name == name
    check_captured(bound, problem, reference, device)
