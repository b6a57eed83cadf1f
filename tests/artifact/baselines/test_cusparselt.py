import enum
import types
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import (
    DEVICE,
    STREAM,
    Library,
    Timer,
    array,
    at,
    eight_problem,
    install,
    two_four_problem,
)

from artifact import registry
from artifact.baselines import cusparselt
from artifact.measure import bench, check
from kernels.contract import Operands
from kernels.formats import eight, half
from kernels.formats.half import Half
from kernels.tensor_core_24 import operands

runtime = pytest.importorskip("cuda.bindings.runtime")

FP16, BF16, E4M3, COLUMN, ROW = 2, 14, 28, 1, 2
NAMES = {BF16: "bfloat16", FP16: "float16", E4M3: "e4m3"}
M, N, K = 16, 24, 32
#: What a bound contender holds: a handle, three matrices, their product, a selection and a plan.
HELD = 7


class SplitKMode(enum.IntEnum):
    INVALID_MODE, ONE_KERNEL, TWO_KERNELS, HEURISTIC, DATAPARALLEL, SPLITK, STREAMK = range(7)


class Attribute(enum.IntEnum):
    CONFIG_ID, CONFIG_MAX_ID, SEARCH_ITERATIONS, SPLIT_K, SPLIT_K_MODE, SPLIT_K_BUFFERS = range(6)


class FakeLibrary(Library):
    """Stands in for nvmath.bindings.cusparseLt: multiplies on the CPU, at the addresses it is given.

    Algorithms 0 to 4, of which 2 cannot be planned and 3 not launched; 4 needs a workspace. The search
    finds 1. Modes as on Hopper.
    """

    class cuSPARSELtError(Exception):
        def __init__(self, status):
            super().__init__(f"cuSPARSELtError ({status})")
            self.status = status

    SplitKMode, MatmulAlgAttribute = SplitKMode, Attribute
    MatmulAlg = SimpleNamespace(DEFAULT=0)
    Sparsity = SimpleNamespace(SPARSITY_50_PERCENT=0)
    ComputeType = SimpleNamespace(COMPUTE_32F=2)

    def __init__(self):
        super().__init__("cusparseLt")
        self.selections, self.planned, self.launched, self.searches = {}, {}, [], 1
        self.refuse = ""
        self.destroy = self.mat_descriptor_destroy = self.matmul_descriptor_destroy = self.unmake
        self.matmul_alg_selection_destroy = self.matmul_plan_destroy = self.unmake

    def get_error_string(self, status):
        return {10: "operation not supported"}[status]

    def _refuses(self, call):
        if call == self.refuse:
            raise self.cuSPARSELtError(10)

    def init(self):
        return self.make("handle")

    def dense_descriptor_init(self, handle, *arguments):
        self.what(handle)
        return self.make("dense", *arguments)

    def structured_descriptor_init(self, handle, *arguments):
        self.what(handle)
        return self.make("structured", *arguments)

    def matmul_descriptor_init(self, handle, *arguments):
        self._refuses("matmul_descriptor_init")
        self.what(handle)
        assert arguments[-1] == 2, "sums in float32"
        return self.make("product", *arguments)

    def matmul_alg_selection_init(self, handle, product, algorithm):
        self.what(product)
        made = self.make("selection")
        self.selections[made] = {
            "CONFIG_ID": algorithm,
            "CONFIG_MAX_ID": 5,
            "SPLIT_K": 1,
            "SPLIT_K_MODE": SplitKMode.HEURISTIC,
        }
        return made

    def matmul_alg_set_attribute(self, handle, selection, attribute, address, size):
        assert size == 4
        self.what(selection)
        value = int(at(address, (1,), np.int32)[0])
        name = Attribute(attribute).name
        if (name == "SPLIT_K" and value not in (1, -1)) or (name == "CONFIG_ID" and value > 4):
            raise self.cuSPARSELtError(10)
        self.selections[selection][name] = value

    def matmul_alg_get_attribute(self, handle, selection, attribute, address, size):
        assert size == 4
        self.what(selection)
        at(address, (1,), np.int32)[0] = self.selections[selection][Attribute(attribute).name]

    def matmul_plan_init(self, handle, product, selection):
        self._refuses("matmul_plan_init")
        self.what(product)
        self.what(selection)
        if self.selections[selection]["CONFIG_ID"] == 2:
            raise self.cuSPARSELtError(10)
        made = self.make("plan")
        self.planned[made] = product, selection
        return made

    def matmul_get_workspace(self, handle, plan):
        self.what(plan)
        return 64 * (self.selections[self.planned[plan][1]]["CONFIG_ID"] == 4)

    def sp_mma_compressed_size2(self, handle, matrix):
        rows, columns = self.what(matrix)[:2]
        return rows * columns * _bits_of(self.what(matrix)[4]).itemsize, 128

    def sp_mma_compress2(self, handle, matrix, of_a, operation, dense, compressed, buffer, stream):
        rows, columns = self.what(matrix)[:2]
        assert (of_a, operation) == (1, 0)
        at(buffer, (128,), np.uint8)[:] = 1
        kind = _bits_of(self.what(matrix)[4])
        at(compressed, (rows, columns), kind)[:] = at(dense, (rows, columns), kind)
        self.log.append(("compress",))

    def matmul(self, handle, plan, alpha, a, b, beta, c, d, workspace, streams, count, name="matmul"):
        self.what(handle)
        self.what(plan)
        product, selection = self.planned[plan]
        op_a, op_b, mat_a, mat_b, mat_c, mat_d, _ = self.what(product)
        chosen = self.selections[selection]
        if chosen["CONFIG_ID"] == 3:
            raise self.cuSPARSELtError(10)
        assert bool(workspace) == (chosen["CONFIG_ID"] == 4) or name == "search"
        assert at(beta, (1,), np.float32)[0] == 0
        assert c == d and mat_c == mat_d and op_a == 0 and count == 1
        matrices = []
        for matrix, address in ((mat_a, a), (mat_b, b)):
            rows, columns, leading, alignment, kind, order = self.what(matrix)[:6]
            assert (leading, alignment, order) == (columns, 16, ROW)
            bits = at(address, (rows, columns), _bits_of(kind))
            matrices.append((eight if kind == E4M3 else half).from_bits(bits, NAMES[kind]))
        left, right = matrices
        factor = at(alpha, (1,), np.float32)[0]
        assert factor == 1 or kind == E4M3
        out = factor * (left @ (right.T if op_b else right))
        rows, columns, leading, alignment, kind, order = self.what(mat_c)[:6]
        assert (leading, alignment) == (columns if order == ROW else rows, 16)
        out = out if order == ROW else out.T
        at(c, out.shape, np.uint16)[:] = half.to_bits(out, NAMES[kind])
        stream = int(at(streams, (1,), np.uintp)[0])
        self.launched.append((chosen["CONFIG_ID"], chosen["SPLIT_K_MODE"], stream))

    def matmul_search(self, handle, plan, *arguments):
        self._refuses("matmul_search")
        selection = self.selections[self.planned[plan][1]]
        assert selection["SEARCH_ITERATIONS"] == cusparselt.SEARCH_ITERATIONS
        assert arguments[6], "the workspace does for every algorithm"
        selection["CONFIG_ID"] = self.searches
        self.matmul(handle, plan, *arguments, name="search")


def _bits_of(kind: int) -> np.dtype:
    return np.dtype(np.uint8 if kind == E4M3 else np.uint16)


@pytest.fixture
def library(monkeypatch):
    fake, cusparse = FakeLibrary(), types.ModuleType("cusparse")
    cusparse.Order = SimpleNamespace(ROW=ROW, COL=COLUMN)
    cusparse.Operation = SimpleNamespace(NON_TRANSPOSE=0, TRANSPOSE=1)
    install(monkeypatch, fake, cusparse)
    Timer(monkeypatch, lambda name, turn: 1.0)
    return fake


@pytest.fixture
def problem(monkeypatch, library):
    return two_four_problem(monkeypatch, M, N, K)


def number(choice: str) -> int:
    return int(choice.split()[1].rstrip(","))


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("dtype", half.DTYPES)
@pytest.mark.parametrize("algorithm", tuple(cusparselt.NAMES))
@pytest.mark.parametrize("orders", operands.ORDERS)
def test_every_contender_gives_the_product(monkeypatch, library, algorithm, dtype, orders):
    problem = two_four_problem(monkeypatch, M, N, K, dtype, orders)
    bound = cusparselt.bind(algorithm, problem, DEVICE)
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        check.check(bound, problem, reference, STREAM)
    assert bound.result() is problem.device().c and bound.result().dtype == dtype


@pytest.mark.parametrize("algorithm", tuple(cusparselt.NAMES))
def test_e4m3_is_multiplied_from_b_as_it_lies_and_scaled_by_alpha(monkeypatch, library, algorithm):
    problem = eight_problem(monkeypatch, M, 2 * M, K)
    bound = cusparselt.bind(algorithm, problem, DEVICE)
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)
    assert [entry for entry in library.log if entry[0] in ("structured", "dense")] == [
        ("structured", M, K, K, 16, E4M3, ROW, 0),
        ("dense", 2 * M, K, K, 16, E4M3, ROW),
        ("dense", M, 2 * M, 2 * M, 16, BF16, ROW),
    ]
    assert bound.prepare_bytes == M * K, "B is not copied"
    bound.close()
    assert not library.alive


@pytest.mark.parametrize(
    ("n", "what", "words"),
    [
        (24, {}, "multiples of 16 only, as 8-bit rows"),
        (32, {"scale": "vectors"}, "with one scale each"),
        (32, {"out": "e4m3"}, "takes a bfloat16 C of e4m3 here"),
    ],
)
def test_what_e4m3_is_not_taken_is_one_sentence(monkeypatch, library, n, what, words):
    with pytest.raises(ValueError, match=words):
        cusparselt.bind("best", eight_problem(monkeypatch, M, n, K, **what), DEVICE)
    assert not library.alive


def test_a_launch_that_does_nothing_is_caught(library, problem):
    bound = cusparselt.bind("best", problem, DEVICE)
    library.matmul = lambda *arguments: None
    with pytest.raises(check.WrongResult, match="384 of 384 elements unwritten"):
        check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)


@pytest.mark.parametrize("column_major_b", [False, True])
def test_the_matrices_are_described_as_they_lie(monkeypatch, library, column_major_b):
    cusparselt.bind("default", two_four_problem(monkeypatch, M, N, K, orders="FC" if column_major_b else "CC"), DEVICE)
    described = [entry for entry in library.log if entry[0] in ("structured", "dense")]
    b = (N, K, K) if column_major_b else (K, N, N)
    assert described == [
        ("structured", M, K, K, 16, BF16, ROW, 0),
        ("dense", *b, 16, BF16, ROW),
        ("dense", M, N, N, 16, BF16, ROW),
    ]
    product = next(entry for entry in library.log if entry[0] == "product")
    assert product[1:3] == (0, int(column_major_b)), "a transposed B is the column-major one"


def test_the_library_compresses_and_the_second_time_counts(monkeypatch, library, problem):
    clock = iter((10.0, 10.25))  # the first time is not looked at
    monkeypatch.setattr("kernels.contract.time.perf_counter", lambda: next(clock))
    bound = cusparselt.bind("best", problem, DEVICE)
    assert library.count("compress") == 2
    assert bound.prepare_ms == 250
    assert bound.prepare_bytes == 2 * M * K, "compressed A; algorithm 0 needs no workspace"


def test_a_workspace_is_memory_too(monkeypatch, library, problem):
    Timer(monkeypatch, lambda name, turn: 0.5 if number(name) == 4 else 1.0)
    bound = cusparselt.bind("best", problem, DEVICE)
    assert number(bound.choice) == 4
    assert bound.prepare_bytes == 2 * M * K + 64


def test_the_file_that_was_chosen_is_the_library(monkeypatch, library, problem):
    asked = []
    monkeypatch.setattr(cusparselt.device_, "cusparselt", lambda: asked.append(1) or library)
    cusparselt.bind("default", problem, DEVICE)
    assert asked == [1] and library.count("compress") == 2


# ---------------------------------------------------------------- which algorithm


def test_the_default_is_algorithm_0_and_nothing_is_timed(monkeypatch, library, problem):
    timer = Timer(monkeypatch, lambda name, turn: 1.0)
    bound = cusparselt.bind("default", problem, DEVICE)
    assert bound.name == "cusparselt_default" and bound.choice.startswith("algorithm 0, split-K 1")
    assert not timer.seen and not library.launched


def test_the_fastest_is_kept_whatever_the_search_finds(monkeypatch, library, problem):
    timer = Timer(monkeypatch, lambda name, turn: {0: 3.0, 1: 2.0, 4: 1.0}[number(name)])
    bound = cusparselt.bind("best", problem, DEVICE)
    # 2 cannot be planned, 3 not launched, 5 is none.
    assert {number(name) for name in timer.seen[0]} == {0, 1, 4}
    assert bound.name == "cusparselt" and bound.choice == "algorithm 4, split-K 1, HEURISTIC"
    bound.launch(SimpleNamespace(handle=11))
    assert library.launched[-1] == (4, SplitKMode.HEURISTIC, 11)


def test_what_the_search_finds_is_a_candidate(monkeypatch, library, problem):
    Timer(monkeypatch, lambda name, turn: 1.0 if "search" in name else 2.0)
    bound = cusparselt.bind("best", problem, DEVICE)
    assert bound.choice == "algorithm 1, split-K 1, HEURISTIC, as the library's search left it"
    bound.launch(SimpleNamespace(handle=11))
    assert library.launched[-1][0] == 1


def test_a_search_that_ends_at_a_larger_workspace_gets_it(monkeypatch, library, problem):
    library.searches = 4
    Timer(monkeypatch, lambda name, turn: 1.0 if "search" in name else 2.0)
    bound = cusparselt.bind("best", problem, DEVICE)
    assert bound.prepare_bytes == 2 * M * K + 64
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)


def test_a_search_that_fails_leaves_the_others(monkeypatch, library, problem):
    library.refuse = "matmul_search"
    timer = Timer(monkeypatch, lambda name, turn: float(number(name)))
    bound = cusparselt.bind("best", problem, DEVICE)
    assert number(bound.choice) == 0 and len(timer.seen[0]) == 3
    assert len(library.alive) == HELD


def test_ways_to_split_k_are_tried_on_the_fastest(monkeypatch, library, problem):
    us = {0: 3.0, 1: 2.0, 4: 9.0}
    timer = Timer(
        monkeypatch,
        lambda name, turn: 1.0 if "0, split-K -1, STREAMK" in name else us[number(name)],
    )
    bound = cusparselt.bind("best", problem, DEVICE)
    assert bound.choice == "algorithm 0, split-K -1, STREAMK"
    assert not any("STREAMK" in name for name in timer.seen[0])
    # Of the three that lead, two are algorithm 1. Each of both has seven more ways on Hopper.
    assert len(timer.seen[2]) == 3 + 2 * 7
    bound.launch(STREAM)
    assert library.launched[-1][1] == SplitKMode.STREAMK


def test_only_those_that_lead_are_timed_again_and_then_that_counts(monkeypatch):
    rough = dict(zip("abcde", (5, 1, 2, 3, 4), strict=True))
    timer = Timer(monkeypatch, lambda name, turn: rough[name] if turn == 0 else -rough[name])
    contenders = {name: SimpleNamespace(launch=lambda stream: None) for name in rough}
    assert cusparselt.fastest(contenders, DEVICE) == ["d", "c", "b"]
    assert [sorted(seen) for seen in timer.seen] == [list("abcde"), list("bcd")]


# ---------------------------------------------------------------- life and errors


@pytest.mark.parametrize("algorithm", tuple(cusparselt.NAMES))
def test_what_loses_is_destroyed_at_once_and_the_rest_with_the_bound(library, problem, algorithm):
    operands = weakref.ref(problem.device())
    bound = cusparselt.bind(algorithm, problem, DEVICE)
    bound.launch(STREAM)
    assert len(library.alive) == HELD
    problem.make_device = problem.make_host = None
    problem.release()
    assert operands() is not None, "the library still holds their addresses"
    del bound
    assert not library.alive and operands() is None
    destroyed = [library.made[thing][0] for kind, *(thing, *_) in _destroyed(library)]
    assert destroyed[-HELD:] == [
        "plan",
        "selection",
        "product",
        "dense",
        "dense",
        "structured",
        "handle",
    ]


def _destroyed(library):
    return [entry for entry in library.log if entry[0] == "destroy"]


def test_close_releases_early_and_once(library, problem):
    bound = cusparselt.bind("best", problem, DEVICE)
    bound.close()
    assert not library.alive
    bound.close()
    del bound


@pytest.mark.parametrize("call", ["matmul_descriptor_init", "matmul_plan_init"])
@pytest.mark.parametrize("algorithm", tuple(cusparselt.NAMES))
def test_a_refusal_is_one_sentence_and_leaves_nothing_behind(library, problem, algorithm, call):
    library.refuse = call
    says = "refuses m=16, n=24, k=32 in bfloat16: operation not supported"
    with pytest.raises(ValueError, match=says):
        cusparselt.bind(algorithm, problem, DEVICE)
    assert not library.alive


def test_a_bind_that_fails_elsewhere_leaves_nothing_behind(monkeypatch, library, problem):
    def fails(*arguments, **budget):
        raise MemoryError

    monkeypatch.setattr(bench, "time", fails)
    with pytest.raises(MemoryError):
        cusparselt.bind("best", problem, DEVICE)
    assert not library.alive


@pytest.mark.parametrize("shape", [(12, 24, 32), (16, 20, 32), (16, 24, 36)])
def test_sizes_that_no_row_can_be_aligned_with_are_refused(shape):
    with pytest.raises(ValueError, match="takes multiples of 8 only.*m={}, n={}, k={}".format(*shape)):
        cusparselt.bind("best", operands.problem(*shape), DEVICE)


def test_other_operands_are_refused(problem):
    problem._device = Operands(problem.device().a, array((K, N), np.float32), problem.device().c)
    with pytest.raises(ValueError, match="cuSPARSELt takes a 2:4 A .*tensor_core_24 has something"):
        cusparselt.bind("best", problem, DEVICE)


def test_contenders_have_the_names_of_the_records(library, problem):
    names = ["cusparselt_default", "cusparselt"]
    assert list(registry.contenders(["cusparselt"], None)) == names
    for name, make in cusparselt.contenders(DEVICE).items():
        assert make(problem).name == name


def test_the_names_exist_in_the_library():
    bindings = pytest.importorskip("nvmath.bindings.cusparseLt")
    dense = pytest.importorskip("nvmath.bindings.cusparse")
    assert {m.name: int(m) for m in bindings.SplitKMode} == {m.name: int(m) for m in SplitKMode}
    assert {m.name: int(m) for m in bindings.MatmulAlgAttribute} == {m.name: int(m) for m in Attribute}
    assert bindings.ComputeType.COMPUTE_32F == 2 and bindings.Sparsity.SPARSITY_50_PERCENT == 0
    assert (dense.Order.ROW, dense.Order.COL) == (ROW, COLUMN) and dense.Operation.TRANSPOSE == 1
    assert bindings.get_matmul_alg_attribute_dtype(Attribute.SPLIT_K_MODE) == np.int32
    for name in vars(FakeLibrary):
        if not name.startswith("_"):
            assert hasattr(bindings, name), name


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def gpu(device):
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", half.DTYPES)
@pytest.mark.parametrize("shape", [(64, 64, 64), (256, 128, 512), (384, 192, 1024)])
def test_cusparselt_is_right(gpu, shape, dtype):
    problem = operands.problem(*shape, dtype=dtype)
    reference = check.oracle(problem)
    stream = gpu.create_stream()
    for name, make in cusparselt.contenders(gpu).items():
        bound = make(problem)
        assert bound.name == name and isinstance(bound.result(), Half)
        for _ in range(2):
            assert check.check(bound, problem, reference, stream).rel_err > 0, "rounded once"
        # 9/16 of the dense bytes: the values, and two bits for each of them.
        assert bound.prepare_bytes >= 2 * problem.m * problem.k * 9 // 16
        assert bound.prepare_ms > 0


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", tuple(cusparselt.NAMES))
def test_cusparselt_can_be_captured(gpu, algorithm):
    problem = operands.problem(512, 256, 1024)
    reference = check.oracle(problem)
    bound = cusparselt.bind(algorithm, problem, gpu)
    check_captured(bound, problem, reference, gpu)


@pytest.mark.gpu
def test_contenders_on_one_problem_do_not_disturb_each_other(gpu):
    problem = operands.problem(512, 512, 512)
    reference = check.oracle(problem)
    bounds = [make(problem) for make in cusparselt.contenders(gpu).values()]
    stream = gpu.create_stream()
    for bound in bounds + bounds[::-1]:
        check.check(bound, problem, reference, stream)


@pytest.mark.gpu
@pytest.mark.alone
def test_the_best_is_not_slower_than_the_default(gpu):
    problem = operands.problem(2048, 2048, 2048)
    bounds = {name: make(problem) for name, make in cusparselt.contenders(gpu).items()}
    times = {name: t.median_us for name, t in bench.time(bounds, gpu).items()}
    assert times["cusparselt"] < 1.05 * times["cusparselt_default"], times
