"""cuBLASLt in e4m3 without a GPU: what is asked for, who wins, and that nothing is left behind."""

import enum
import types
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from fake_libraries import (
    COMPUTE_32F,
    DEVICE,
    F32,
    RESULT,
    STREAM,
    Library,
    Timer,
    at,
    eight_problem,
    install,
)

from artifact import registry
from artifact.baselines import cublaslt, cublaslt_eight
from artifact.measure import check
from kernels.formats import eight, half

pytest.importorskip("cuda.bindings.runtime")

M, N, K = 16, 48, 32
BF16, E4M3 = 14, 28
TRANSPOSED, AS_IS = 1, 0
#: What a bound contender holds: a handle, and for each way to add a description, three layouts and a preference.
HELD = 1 + 2 * 5


class Attribute(enum.IntEnum):
    TRANSA, TRANSB, FAST_ACCUM, A_SCALE_POINTER, B_SCALE_POINTER = range(3, 8)


class FakeLibrary(Library):
    """Stands in for nvmath.bindings.cublasLt: multiplies on the CPU, at the addresses it is given.

    It proposes the algorithms 7, 8 and 9; 8 cannot be launched, and 9 needs a workspace.
    """

    class cuBLASLtError(Exception):
        pass

    MatmulDescAttribute = Attribute
    MatmulPreferenceAttribute = SimpleNamespace(MAX_WORKSPACE_BYTES=1)
    matmul_heuristic_result_dtype = RESULT

    def __init__(self):
        super().__init__("cublasLt")
        self.attributes, self.launched, self.ids, self.knows = {}, [], (7, 8, 9), (0, 1)
        self.destroy = self.matmul_desc_destroy = self.unmake
        self.matrix_layout_destroy = self.matmul_preference_destroy = self.unmake

    def create(self):
        return self.make("handle")

    def matmul_desc_create(self, compute, scale):
        assert (compute, scale) == (COMPUTE_32F, F32)
        made = self.make("description")
        self.attributes[made] = {}
        return made

    def matmul_desc_set_attribute(self, description, attribute, address, size):
        self.what(description)
        kind = {1: np.int8, 4: np.int32, 8: np.uint64}[size]
        self.attributes[description][Attribute(attribute)] = int(at(address, (1,), kind)[0])

    def matrix_layout_create(self, kind, rows, columns, leading):
        assert leading == rows, "column-major"
        return self.make("layout", kind, rows, columns)

    def matmul_preference_create(self):
        return self.make("preference")

    def matmul_preference_set_attribute(self, preference, attribute, address, size):
        self.what(preference)
        assert (attribute, size) == (1, 8)
        assert at(address, (1,), np.uint64)[0] == cublaslt.WORKSPACE_BYTES

    def matmul_algo_get_heuristic(self, handle, description, a, b, c, d, preference, most, results, count):
        for thing in (handle, description, a, b, c, d, preference):
            self.what(thing)
        if self.attributes[description][Attribute.FAST_ACCUM] not in self.knows:
            raise self.cuBLASLtError("not supported")
        found = at(results, (most,), RESULT)
        for place, number in enumerate(self.ids):
            found[place]["algo"]["data_"][0] = number
            found[place]["workspace_size"] = 128 * (number == 9)
        at(count, (1,), np.int32)[0] = len(self.ids)

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
        self.what(handle)
        self.what(description)
        said = self.attributes[description]
        chosen = at(algorithm, (1,), RESULT)[0]
        number = int(chosen["algo"]["data_"][0])
        if number == 8:
            raise self.cuBLASLtError("no launch")
        assert size == chosen["workspace_size"] and bool(workspace) == bool(size)
        assert (said[Attribute.TRANSA], said[Attribute.TRANSB]) == (TRANSPOSED, AS_IS)
        assert (at(alpha, (1,), np.float32)[0], at(beta, (1,), np.float32)[0]) == (1, 0)
        assert (c, layout_c) == (d, layout_d)
        factors = [
            at(said[name], (1,), np.float32)[0] for name in (Attribute.A_SCALE_POINTER, Attribute.B_SCALE_POINTER)
        ]
        left, right = (self._columns(*x, E4M3, np.uint8) for x in ((layout_a, a), (layout_b, b)))
        out = self._columns(layout_c, c, BF16, np.uint16)
        product = eight.from_bits(left, "e4m3").T @ eight.from_bits(right, "e4m3")
        out[:] = half.to_bits(product * np.float32(np.prod(factors)), "bfloat16")
        self.launched.append((number, said[Attribute.FAST_ACCUM], stream))

    def _columns(self, layout: int, address: int, kind: int, dtype) -> np.ndarray:
        """The column-major matrix of a layout at an address, to read and to write."""
        known, rows, columns = self.what(layout)
        assert known == kind
        return at(address, (columns, rows), dtype).T


@pytest.fixture
def library(monkeypatch):
    fake, cublas = FakeLibrary(), types.ModuleType("cublas")
    cublas.ComputeType = SimpleNamespace(COMPUTE_32F=COMPUTE_32F)
    cublas.Operation = SimpleNamespace(N=AS_IS, T=TRANSPOSED)
    install(monkeypatch, fake, cublas)
    Timer(monkeypatch, lambda name, turn: 1.0)
    return fake


@pytest.fixture
def problem(monkeypatch, library):
    return eight_problem(monkeypatch, M, N, K)


def test_the_product_is_that_of_the_same_operands_and_scales(library, problem):
    bound = cublaslt_eight.bind(problem, DEVICE)
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        check.check(bound, problem, reference, STREAM)
    assert bound.name == "cublaslt_eight" and bound.result() is problem.device().c
    assert bound.prepare_ms > 0 and bound.prepare_bytes == M * K, "the dense A"


def test_a_launch_that_does_nothing_is_caught(library, problem):
    bound = cublaslt_eight.bind(problem, DEVICE)
    bound.call = lambda stream: None
    with pytest.raises(check.WrongResult, match="unwritten"):
        check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)


def test_both_ways_to_add_are_tried_and_the_timer_decides(monkeypatch, library, problem):
    timer = Timer(monkeypatch, lambda name, turn: 1.0 if "place 3" in name and "promoted" in name else 2.0)
    bound = cublaslt_eight.bind(problem, DEVICE)
    # Algorithm 8, at place 2, cannot be launched.
    assert sorted(timer.seen[0]) == [
        f"place {place} of the library's proposals, sums {sums}" for place in (1, 3) for sums in ("fast", "promoted")
    ]
    assert bound.choice == "place 3 of the library's proposals, sums promoted"
    assert bound.prepare_bytes == M * K + 128
    bound.launch(SimpleNamespace(handle=11))
    assert library.launched[-1] == (9, 0, 11)


def test_one_way_to_add_is_enough(library, problem):
    library.knows = (1,)
    assert cublaslt_eight.bind(problem, DEVICE).choice.endswith("sums fast")


@pytest.mark.parametrize("change", [{"knows": ()}, {"ids": (8,)}, {"ids": ()}])
def test_without_an_algorithm_it_is_refused_in_one_sentence(library, problem, change):
    vars(library).update(change)
    with pytest.raises(ValueError, match=f"cuBLASLt refuses m={M}, n={N}, k={K} in e4m3: it knows"):
        cublaslt_eight.bind(problem, DEVICE)
    assert not library.alive


@pytest.mark.parametrize(
    ("n", "what", "words"),
    [
        (24, {}, "multiples of 16 only, but m=16, n=24, k=32"),
        (32, {"scale": "vectors"}, "with one scale each"),
        (32, {"out": "e4m3"}, "takes a bfloat16 C"),
    ],
)
def test_what_is_not_taken_is_one_sentence(monkeypatch, library, n, what, words):
    with pytest.raises(ValueError, match=words):
        cublaslt_eight.bind(eight_problem(monkeypatch, M, n, K, **what), DEVICE)
    assert not library.made


def test_everything_is_released_with_the_last_reference(library, problem):
    operands = weakref.ref(problem.device())
    bound = cublaslt_eight.bind(problem, DEVICE)
    assert len(library.alive) == HELD
    problem.make_device = problem.make_host = None
    problem.release()
    assert operands() is not None, "the library still holds their addresses"
    bound.launch(STREAM)
    del bound
    assert not library.alive and operands() is None
    assert library.made[library.log[-1][1]][0] == "handle", "the last to go"


def test_it_is_offered_by_its_name():
    assert set(registry.contenders(("cublaslt_eight",), None)) == {"cublaslt_eight"}
