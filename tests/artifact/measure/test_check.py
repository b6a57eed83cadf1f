import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.measure import check
from kernels import async_sparse, formats
from kernels.contract import Operands, Problem
from kernels.formats import bcsr, csr, eight, half, nm, two_four
from kernels.formats.half import Half
from kernels.tuning import probe


def make_problem(m=7, n=5, k=6, nnz=20, seed=0, signed=True, **changes) -> Problem:
    """A host problem whose columns repeat and come in any order, with some empty rows."""
    generator = np.random.default_rng(seed)
    rows = np.sort(generator.integers(0, m, nnz)) if m else np.empty(0, int)
    row_ptr = np.searchsorted(rows, np.arange(m + 1)).astype(np.int32)
    low = -1.0 if signed else 0.0
    a = csr.validate(
        csr.Csr(
            m,
            k,
            row_ptr,
            generator.integers(0, k, nnz).astype(np.int32),
            generator.uniform(low, 1, nnz).astype(np.float32),
        )
    )
    b = generator.uniform(low, 1, (k, n)).astype(np.float32)
    problem = Problem(
        room="test",
        label="",
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=nnz / (m * k) if m * k else 0.0,
        seed=seed,
        useful_flops=2 * nnz * n,
        flops_def="2·nnz·N",
        least_bytes=1,
        requested_bytes=1,
        make_host=lambda: Operands(a, b),
        make_device=lambda: pytest.fail("no GPU was asked for"),
    )
    return replace(problem, **changes)


class OnCpu:
    """A contender on the CPU whose launch writes `work(a, b)` into its output."""

    prepare_ms = 0.0
    prepare_bytes = 0

    def __init__(self, problem, work, name="on_cpu", dtype=np.float32):
        self.name, self.work, self.problem = name, work, problem
        self.output = np.zeros((problem.m, problem.n), dtype)

    def launch(self, stream):
        operands = self.problem.host()
        self.output[...] = self.work(operands.a, operands.b)

    def result(self):
        return self.output


def product(a, b):
    return csr.to_dense(a) @ b


def test_errors_are_what_the_module_says_they_are():
    exact = np.array([[1.0, -2.0], [1e-9, 4.0]])
    out = (exact * (1 + np.array([[1e-6, 2e-6], [0, 3e-6]]))).astype(np.float32)
    out[1, 0] = 1e-6
    off = np.abs(out.astype(float) - exact)
    rms = math.sqrt((exact**2).mean())
    errors = check.compare(out, check.reference(exact))
    assert errors.rel_err == pytest.approx(np.linalg.norm(off) / np.linalg.norm(exact))
    assert errors.max_err == pytest.approx((off / np.maximum(np.abs(exact), rms)).max())


def lose_one(a, b):
    out = product(a, b)
    out[a.m // 2] -= a.val[a.row_ptr[a.m // 2]] * b[a.col_idx[a.row_ptr[a.m // 2]]]
    return out


def repeat_one(a, b):
    out = product(a, b)
    out[a.m // 2] += a.val[a.row_ptr[a.m // 2]] * b[a.col_idx[a.row_ptr[a.m // 2]]]
    return out


def shifted(a, b):
    return np.roll(product(a, b), 1, axis=0)


def without_duplicates(a, b):
    dense = np.zeros((a.m, a.k), np.float32)
    dense[np.repeat(np.arange(a.m), np.diff(a.row_ptr)), a.col_idx] = a.val
    return dense @ b


def in_half(a, b):
    return csr.to_dense(a).astype(np.float16).astype(np.float32) @ b


def infinite(a, b):
    out = product(a, b)
    out[0, 0] = np.inf
    return out


@pytest.mark.parametrize("wrong", [lose_one, repeat_one, shifted, without_duplicates, in_half, infinite])
def test_a_kernel_that_is_wrong_on_purpose_is_caught(wrong):
    problem = make_problem(m=200, n=64, k=100, nnz=4000, signed=False)
    reference = check.oracle(problem, on="cpu")
    with pytest.raises(check.WrongResult, match="is wrong") as caught:
        check.check(OnCpu(problem, wrong, name=wrong.__name__), problem, reference)
    message = str(caught.value)
    assert message.startswith(f"{wrong.__name__} at m=200, n=64, k=100")
    assert "but at most" in message and "float32" in message and "\n" not in message


def test_a_result_of_another_shape_is_refused():
    problem = make_problem()
    bound = OnCpu(problem, product)
    bound.output = np.zeros((5, 7), np.float32)
    with pytest.raises(check.WrongResult, match=r"shape \(5, 7\).*\(7, 5\)"):
        check.check(bound, problem, check.oracle(problem, on="cpu"))


def test_a_launch_that_fails_says_who_and_where():
    def broken(a, b):
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

    problem = make_problem(label="cage4")
    with pytest.raises(check.WrongResult, match="broken at cage4, m=7.*ILLEGAL_ADDRESS"):
        check.check(OnCpu(problem, broken, name="broken"), problem, check.oracle(problem, on="cpu"))


def test_a_launch_may_be_made_in_another_way():
    problem = make_problem()
    reference = check.oracle(problem, on="cpu")
    right, wrong = OnCpu(problem, product), OnCpu(problem, shifted, name="replayed")
    assert check.check(right, problem, reference, launch=lambda: right.launch(None)).rel_err < 1e-6
    with pytest.raises(check.WrongResult, match="^replayed after timing at m=7.* is wrong"):
        launch = lambda: wrong.launch(None)  # noqa: E731
        check.check(wrong, problem, reference, launch=launch, when="after timing")
    with pytest.raises(check.WrongResult, match="leaves 35 of 35 elements unwritten"):
        check.check(right, problem, reference, launch=lambda: None)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reference_that_is_no_number_agrees_with_nothing(value):
    """Whatever comes out, an error that is NaN is not below a limit."""
    exact = np.array([[1.0, 2.0], [3.0, value]])
    for out in (np.array([[1, 2], [3, 4]], np.float32), exact.astype(np.float32)):
        with pytest.raises(check.WrongResult), np.errstate(invalid="ignore"):
            check.compare(out, check.reference(exact))


def test_an_empty_matrix_must_give_zeros():
    problem = make_problem(nnz=0)
    reference = check.oracle(problem, on="cpu")
    errors = check.check(OnCpu(problem, product), problem, reference)
    assert errors == check.Errors(0.0, 0.0, 0.0)
    with pytest.raises(check.WrongResult, match="is wrong"):
        check.check(OnCpu(problem, lambda a, b: 1e-30), problem, reference)


def test_a_problem_may_name_the_limit_of_its_results():
    """Sums that are cut off, in a tensor core, say: wrong for float32, right where the problem says so."""

    def cut(a, b):
        return product(a, b) * np.float32(1 - 5e-5)

    problem = make_problem(m=60, n=33, k=1000, nnz=54_000, signed=False)
    reference = check.oracle(problem, on="cpu")
    with pytest.raises(check.WrongResult, match="at most 1e-05 for float32; the first such element"):
        check.check(OnCpu(problem, cut), problem, reference)
    problem = replace(problem, limit="tf32")
    assert check.check(OnCpu(problem, cut), problem, reference).rel_err == pytest.approx(5e-5, 0.1)
    for wrong in (lose_one, repeat_one, shifted):
        with pytest.raises(check.WrongResult, match="for tf32; the first such element"):
            check.check(OnCpu(problem, wrong), problem, reference)
    problem = replace(problem, limit="fp4")
    with pytest.raises(ValueError, match="is fp4, for which there is no error limit"):
        check.check(OnCpu(problem, product), problem, reference)


# ---------------------------------------------------------------- the oracle is confirmed


def operands_of(kind):
    """A, B and their product, of 40 x 60 and 60 x 30."""
    if kind == "csr":
        operands = make_problem(m=40, n=30, k=60, nnz=700).host()
        return operands.a, operands.b, check.sparse_product(operands.a, operands.b)
    problem = make_half_problem(40, 30, 60) if kind == "half" else make_nm_problem(40, 30, 60)
    a, b = (formats.to_dense(x) for x in (problem.host().a, problem.host().b))
    exact = a.astype(float) @ b.astype(float)
    return (a, problem.host().b, exact) if kind == "half" else (a, b, exact)


@pytest.mark.parametrize("kind", ["csr", "dense", "half"])
def test_a_product_is_confirmed_or_refused(monkeypatch, kind):
    monkeypatch.setattr(check, "COMPARE_ELEMENTS", 100)  # in many parts
    a, b, exact = operands_of(kind)
    check.confirm(exact, a, b, "here")
    check.confirm(exact.astype(np.float64, order="F"), a, b, "here")
    off = np.zeros_like(exact)
    off[17, 3] = check.LIMITS["float32"].max_err / 10 * math.sqrt((exact**2).mean())
    swapped = exact[:, [1, 0, *range(2, 30)]]
    lost = np.where(np.arange(40)[:, None] == 39, np.nan, exact)
    for wrong, row in ((exact + off, 17), (swapped, None), (lost, None), (np.roll(exact, 1, 0), 0)):
        with pytest.raises(check.WrongResult, match="is itself wrong at here: row") as caught:
            check.confirm(wrong, a, b, "here")
        assert row is None or f"row {row} is off by" in str(caught.value)


@pytest.mark.parametrize("kind", ["csr", "nm", "half"])
def test_a_large_product_of_the_gpu_s_is_confirmed(monkeypatch, kind):
    """Here NumPy stands for the GPU: a library that multiplies wrongly, in float64 too, is found out."""
    problem = of_kind(kind, 40, 30, 60)
    problem = replace(problem, make_device=problem.make_host)
    monkeypatch.setattr(check, "CPU_WORK", 0)
    name = "sparse_product" if kind == "csr" else "dense_product"
    multiply = check.sparse_product if kind == "csr" else check.dense_product
    monkeypatch.setattr(check, name, multiply)
    right = check.oracle(problem, on="gpu").values
    np.testing.assert_allclose(right, check.oracle(problem, on="cpu").values, rtol=1e-12, atol=1e-12)

    def without_the_last_row(a, b):
        out = multiply(a, b)
        out[-1] = 0
        return out

    monkeypatch.setattr(check, name, without_the_last_row)
    with pytest.raises(check.WrongResult, match="itself wrong at m=40, n=30, k=60, .*: row 39"):
        check.oracle(problem, on="gpu")


# ---------------------------------------------------------------- the formats, by other means


# ---------------------------------------------------------------- other operands and orders


def make_nm_problem(m=7, n=10, k=9, vector=1, **changes) -> Problem:
    """A is dense with both signs, B is 2:4; column-major, as the report has it."""
    generator = np.random.default_rng([m, n, k])
    a = np.asfortranarray(generator.uniform(-1, 1, (m, k)).astype(np.float32))
    b = nm.random(k, n, 2, 4, vector, 0)
    problem = make_problem(m, n, k, nnz=0)
    return replace(problem, nnz=b.nnz, make_host=lambda: Operands(a, b), **changes)


@pytest.mark.parametrize("elements", [1, 7, 30, 2**24])
@pytest.mark.parametrize("out_order", ["C", "F"])
@pytest.mark.parametrize("reference_order", ["C", "F"])
def test_memory_order_changes_nothing(monkeypatch, elements, out_order, reference_order):
    exact = np.random.default_rng(0).uniform(-1, 1, (11, 5))
    plain = check.compare(exact.astype(np.float32), check.reference(exact))
    monkeypatch.setattr(check, "COMPARE_ELEMENTS", elements)
    out = np.array(exact.astype(np.float32), order=out_order)
    reference = check.reference(np.array(exact, order=reference_order))
    assert reference.norm == pytest.approx(np.linalg.norm(exact))
    errors = check.compare(out, reference)
    assert errors.rel_err == pytest.approx(plain.rel_err) and errors.max_err == plain.max_err
    out[3, 2] *= 1.001
    with pytest.raises(check.WrongResult, match="is wrong"):
        check.compare(out, reference)
    out[[3, 7], [2, 1]] = np.nan
    with pytest.raises(check.WrongResult, match="leaves 2 of 55 .* at row 3, column 2"):
        check.compare(out, reference)


def test_an_output_without_elements_is_right():
    for shape in ((0, 4), (4, 0)):
        out = np.zeros(shape, np.float32, order="F")
        assert check.compare(out, check.reference(np.zeros(shape))) == check.Errors(0.0, 0.0)


# ---------------------------------------------------------------- 16-bit operands and outputs


def make_half_problem(m=60, n=33, k=50, dtype="bfloat16", **changes) -> Problem:
    """A is 2:4 and B dense, both 16-bit floats."""
    generator = np.random.default_rng([m, n, k])
    a = two_four.random(m, k, dtype, 0)
    b = half.from_dense(generator.uniform(-1, 1, (k, n)).astype(np.float32), dtype)
    problem = make_problem(m, n, k, nnz=0)
    return replace(problem, nnz=a.nnz, make_host=lambda: Operands(a, b), **changes)


def of_kind(kind, m, n, k) -> Problem:
    make = {"csr": lambda *sizes: make_problem(*sizes, nnz=3 * m * k), "nm": make_nm_problem, "half": make_half_problem}
    return make[kind](m, n, k)


def exact_of(problem) -> np.ndarray:
    """The product by dense matrices, in float64."""
    a, b = problem.host().a, formats.to_dense(problem.host().b).astype(float)
    if not isinstance(a, csr.Csr):
        return formats.to_dense(a).astype(float) @ b
    dense = np.zeros((a.m, a.k))
    np.add.at(dense, (csr.rows(a), a.col_idx), a.val.astype(float))
    return dense @ b


@given(
    kind=st.sampled_from(["csr", "nm", "half"]),
    m=st.integers(1, 9),
    n=st.integers(1, 9),
    k=st.integers(1, 40),
    panel=st.integers(1, 200),
)
@settings(max_examples=60, deadline=None)
def test_the_oracle_of_every_format_is_the_dense_product_in_panels(kind, m, n, k, panel):
    problem = of_kind(kind, m, n, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "PANEL_ELEMENTS", panel)
        reference = check.oracle(problem, on="cpu")
    assert reference.values.dtype == np.float64 and reference.values.flags.c_contiguous
    np.testing.assert_allclose(reference.values, exact_of(problem), rtol=1e-12, atol=1e-12)
    assert reference.norm == pytest.approx(np.linalg.norm(reference.values))


class InHalf:
    """A contender on the CPU whose output is a `Half`: launch writes `work(bits)` into it."""

    prepare_ms = 0.0
    prepare_bytes = 0

    def __init__(self, problem, name="in_half", dtype="bfloat16", work=lambda bits: bits):
        self.name, self.work = name, work
        self.right = half.to_bits(exact_of(problem).astype(np.float32), dtype)
        self.output = Half(dtype, np.zeros_like(self.right))

    def launch(self, stream):
        self.output.bits[...] = self.work(self.right.copy())

    def result(self):
        return self.output


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_a_wrong_16_bit_output_is_caught(dtype):
    problem = make_half_problem(dtype=dtype)
    reference = check.oracle(problem, on="cpu")
    row, column = np.unravel_index(np.abs(reference.values).argmax(), (60, 33))

    def one_bit_up(bits):
        """One element, by 1/16 or 1/8: two bits above what rounding moves."""
        bits[row, column] ^= {"bfloat16": 1 << 3, "float16": 1 << 6}[dtype]
        return bits

    def truncated(bits):
        return bits & {"bfloat16": 0xFFFE, "float16": 0xFFFC}[dtype]

    def shifted(bits):
        return np.roll(bits, 1, axis=1)

    for wrong in (one_bit_up, truncated, shifted):
        bound = InHalf(problem, wrong.__name__, dtype, wrong)
        says = f"^{wrong.__name__} at .* is wrong.*{dtype}; the "
        with pytest.raises(check.WrongResult, match=says) as caught:
            check.check(bound, problem, reference)
        if wrong is one_bit_up:
            assert f"first such element, at row {row}, column {column}, is " in str(caught.value)


# ---------------------------------------------------------------- on a GPU


def on_gpu(problem):
    """The same problem with its host operands copied to the GPU."""

    def make_device():
        import cupy

        host = problem.host()
        out = cupy.empty((problem.m, problem.n), cupy.float32)
        return Operands(csr.to_device(host.a), cupy.asarray(host.b), out)

    return replace(problem, make_device=make_device)


@pytest.fixture(scope="module")
def gpu(device):
    return device


TO_GPU = {"csr": lambda p: on_gpu(p), "nm": lambda p: nm_on_gpu(p), "half": lambda p: half_on_gpu(p)}


@pytest.mark.gpu
@pytest.mark.parametrize("panel", [check.PANEL_ELEMENTS, 5000])
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 130, 57)])
@pytest.mark.parametrize("kind", TO_GPU)
def test_both_oracles_agree(gpu, monkeypatch, kind, shape, panel):
    """Of CSR the matrices have repeated and unsorted columns."""
    import cupy

    problem = TO_GPU[kind](of_kind(kind, *shape))
    exact, small = check.oracle(problem, on="cpu"), check.oracle(problem, on="gpu")
    monkeypatch.setattr(check, "CPU_WORK", 0)
    monkeypatch.setattr(check, "PANEL_ELEMENTS", panel)
    for other in (small, check.oracle(problem, on="gpu")):
        assert isinstance(other.values, cupy.ndarray) and other.values.flags.c_contiguous
        np.testing.assert_allclose(other.values.get(), exact.values, rtol=1e-12, atol=1e-12)
        assert other.norm == pytest.approx(exact.norm)


@pytest.mark.gpu
def test_a_wrong_kernel_on_the_gpu_is_caught(gpu):
    problem = on_gpu(make_problem(m=300, n=64, k=200, nnz=9000, signed=False))
    reference = check.oracle(problem, on="gpu")
    exact = reference.values.astype("float32")

    class Wrong(OnCpu):
        rows = 300

        def __init__(self):
            self.name, self.output = "wrong_on_purpose", problem.device().c

        def launch(self, stream):
            gpu.sync()
            self.output[: self.rows] = exact[: self.rows] * self.factor
            gpu.sync()

        factor = 1.0

    stream = gpu.create_stream()
    bound = Wrong()
    assert check.check(bound, problem, reference, stream).rel_err < 1e-7
    bound.factor = 1.001
    with pytest.raises(check.WrongResult, match="wrong_on_purpose.*is wrong"):
        check.check(bound, problem, reference, stream)
    bound.factor, bound.rows = 1.0, 299
    with pytest.raises(check.WrongResult, match="leaves 64 of 19200 elements.*row 299"):
        check.check(bound, problem, reference, stream)


def nm_on_gpu(problem):
    def make_device():
        import cupy

        host = problem.host()
        c = cupy.empty((problem.m, problem.n), cupy.float32, order="F")
        return Operands(cupy.asarray(host.a, order="F"), nm.to_device(host.b), c)

    return replace(problem, make_device=make_device)


@pytest.mark.gpu
@pytest.mark.parametrize("elements", [check.COMPARE_ELEMENTS, 100, 7])
def test_a_column_major_output_on_the_gpu_is_compared_by_row_and_column(gpu, monkeypatch, elements):
    import cupy

    monkeypatch.setattr(check, "COMPARE_ELEMENTS", elements)
    exact = np.random.default_rng(0).uniform(-1, 1, (40, 30))
    reference = check.reference(cupy.asarray(exact))
    assert reference.norm == pytest.approx(np.linalg.norm(exact))
    out = cupy.asarray(exact.astype(np.float32), order="F")
    plain = check.compare(exact.astype(np.float32), check.reference(exact))
    for mine, other in ((out, reference), (out, check.reference(exact)), (out.get(), reference)):
        assert check.compare(mine, other).max_err == pytest.approx(plain.max_err)
    out[13, 29] = math.nan
    out[14, 2] = math.nan
    for mine in (out, out.get(order="F")):
        with pytest.raises(check.WrongResult, match="leaves 2 of 1200 .* at row 13, column 29"):
            check.compare(mine, reference)


def half_on_gpu(problem):
    def make_device():
        import cupy

        host = problem.host()
        c = Half(host.a.dtype, cupy.empty((problem.m, problem.n), cupy.uint16))
        return Operands(two_four.to_device(host.a), half.to_device(host.b), c)

    return replace(problem, make_device=make_device)


# ----------------------------------------------------- what an element may be off by


def heavy_and_light(heavy: float, signed: bool = True, long: int = 3000, seed: int = 0, dtype="float32", m=60, n=16):
    """Row 0 has `long` products, `heavy` times as large as the five of each other row."""
    rng = np.random.default_rng(seed)
    k = 4000
    lengths = np.append(long, np.full(m - 1, 5))
    row_ptr = np.append(0, np.cumsum(lengths)).astype(np.int32)
    col = np.concatenate([rng.choice(k, x, replace=False) for x in lengths]).astype(np.int32)
    val = rng.uniform(0.2, 1, col.size).astype(np.float32)
    val[:long] *= heavy
    if signed:
        val *= rng.choice(np.float32([-1, 1]), val.size)
    b = rng.uniform(0.2, 1, (k, n)).astype(np.float32)
    if dtype != "float32":
        val = half.from_bits(half.to_bits(val, dtype), dtype)
        b = half.from_dense(b, dtype)
    operands = Operands(csr.Csr(m, k, row_ptr, col, val), b)
    return replace(make_problem(m, n, k, int(col.size)), make_host=lambda: operands)


def test_magnitudes_are_those_of_an_elements_own_products():
    for problem in (make_problem(20, 7, 30, 200), heavy_and_light(10.0, dtype="bfloat16")):
        a, b = problem.host().a, problem.host().b
        b = half.to_dense(b) if isinstance(b, Half) else b
        reference = check.oracle(problem, on="cpu")
        each = csr.Csr(a.m, a.k, a.row_ptr, a.col_idx, np.abs(a.val))
        exact = csr.to_dense(each).astype(float) @ np.abs(b.astype(float))
        assert reference.sizes.dtype == np.float32
        np.testing.assert_allclose(reference.sizes, exact, rtol=1e-6)
        assert reference.longest == np.diff(a.row_ptr).max()
        assert check.oracle(problem, on="cpu", sizes=False).sizes is None


def test_the_bound_is_the_largest_error_over_what_rounding_explains():
    problem = make_problem(40, 9, 60, 900)
    reference = check.oracle(problem, on="cpu")
    out = product(problem.host().a, problem.host().b)
    found = check.compare(out, reference)
    # By hand: lambda = 8, 2^-24, and 2^-21 of 3xTF32.
    may = (8 * math.sqrt(reference.longest) * 2**-24 + 2**-21) * reference.sizes
    off = np.abs(out.astype(float) - reference.values)
    assert found.bound == pytest.approx((off / may).max(), rel=1e-3) and 0 < found.bound < 0.2
    for share, right in ((0.9, True), (1.1, False)):
        at = np.unravel_index(np.abs(reference.values).argmin(), out.shape)
        out[at] = reference.values[at] + share * may[at]
        if right:
            assert check.compare(out, reference).bound == pytest.approx(share, rel=0.02)
        else:
            with pytest.raises(check.WrongResult, match=r"is off by 1.1\de\+00 times what rounding"):
                check.compare(out, reference)
    assert math.isnan(check.compare(out, check.reference(reference.values)).bound)


@pytest.mark.parametrize(("dtype", "heavy"), [("float32", 1e5), ("bfloat16", 1e3), ("float16", 20)])
def test_a_light_row_beside_a_heavy_one_is_held_to_its_own_products(dtype, heavy):
    """The rms of all elements is the heavy row's: against it the light row might be all zeros."""
    problem = heavy_and_light(heavy, dtype=dtype)
    reference = check.oracle(problem, on="cpu")
    right = reference.values.astype(np.float32)
    held = right if dtype == "float32" else half.from_dense(right, dtype)
    assert check.compare(held, reference).bound < 1

    def spoiled(change) -> object:
        out = right.copy()
        change(out)
        return out if dtype == "float32" else half.from_dense(out, dtype)

    a, b = problem.host().a, problem.host().b
    b = half.to_dense(b) if isinstance(b, Half) else b
    first = int(a.row_ptr[7])

    def nothing(out):
        out[7] = 0

    def lost(out):
        out[7] -= a.val[first] * b[a.col_idx[first]]

    for change in (nothing, lost):
        with pytest.raises(check.WrongResult, match="row 7, column"):
            check.compare(spoiled(change), reference)


def test_sums_that_cancel_are_right_in_any_order():
    """A long row whose products add up to nearly nothing: off by far more than 1e-4 of the rms of all."""
    problem = heavy_and_light(3000.0, seed=2, m=5000, n=200)
    a, b = problem.host().a, problem.host().b
    b *= np.random.default_rng(6).choice(np.float32([-1, 1]), b.shape)
    reference = check.oracle(problem, on="cpu")
    long = slice(0, int(a.row_ptr[1]))
    products = a.val[long, None] * b[a.col_idx[long]]
    out = reference.values.astype(np.float32)
    out[0] = np.add.accumulate(products, axis=0, dtype=np.float32)[-1]
    least = np.abs(reference.values[0]).argmin()
    out[0, least] = reference.values[0, least] + 5 * 2**-24 * reference.sizes[0, least]
    found = check.compare(out, reference)
    assert found.max_err > check.LIMITS["float32"].max_err and found.bound < 1
    with pytest.raises(check.WrongResult, match="largest element-wise error"):
        check.compare(out, check.reference(reference.values))


def test_partial_sums_in_16_bits_are_right_as_far_as_they_were():
    """As libraries cut k in parts: each part is rounded, and the sum."""
    rng = np.random.default_rng(4)
    a, b = (half.to_bits(rng.uniform(-1, 1, s).astype(np.float32), "bfloat16") for s in ((30, 512), (512, 20)))
    a, b = (half.from_bits(x, "bfloat16").astype(float) for x in (a, b))
    parts = [a[:, i::4] @ b[i::4] for i in range(4)]
    exact, sizes = a @ b, (np.abs(a) @ np.abs(b)).astype(np.float32)
    rounded = [half.from_bits(half.to_bits(p.astype(np.float32), "bfloat16"), "bfloat16") for p in parts]
    out = half.from_dense(sum(rounded), "bfloat16")
    assert check.compare(out, check.reference(exact, sizes, 512)).bound < 1
    out.bits[11, 7] ^= 1 << 7  # twice, or half, as large
    with pytest.raises(check.WrongResult, match="row 11, column 7"):
        check.compare(out, check.reference(exact, sizes, 512))


# ------------------------------------------------------------------- whole numbers


@pytest.mark.parametrize("dtype", ["float32", *half.DTYPES])
def test_one_lost_product_in_a_long_row_is_wrong_on_whole_numbers(dtype):
    """In a measurement's own numbers it is less than what rounding explains."""
    problem = heavy_and_light(1.0, signed=False, dtype=dtype)
    a = problem.host().a
    lost = 1234

    def without(p):
        val = p.host().a.val.copy()
        val[lost] = 0
        b = p.host().b
        b = half.to_dense(b) if isinstance(b, Half) else b
        made = csr.to_dense(csr.Csr(a.m, a.k, a.row_ptr, a.col_idx, val)).astype(float) @ b
        return made.astype(np.float32)

    def bind(p, work=without):
        out = work(p)
        bound = OnCpu(p, lambda a, b: out, "loses")
        if dtype != "float32":
            bound = InHalf.__new__(InHalf)
            bound.name, bound.work, bound.right = (
                "loses",
                lambda bits: bits,
                half.to_bits(out, dtype),
            )
            bound.output = Half(dtype, np.zeros_like(bound.right))
        return bound

    if dtype != "float32":
        check.check(bind(problem), problem, check.oracle(problem, on="cpu"))
    exact = probe.exact(problem)
    reference = check.oracle(exact, on="cpu", sizes=False)
    check.exactly(bind(exact, lambda p: reference.values.astype(np.float32)), exact, reference)
    with pytest.raises(check.WrongResult) as caught:
        check.exactly(bind(exact), exact, reference)
    said = str(caught.value)
    assert said.startswith("loses on whole numbers at m=60, n=16, k=4000, 3295 non-zeros is wrong: ")
    assert " of 960 elements are not the product, which is exact there; the first one, at row 0" in said
    assert "\n" not in said


def test_an_element_that_is_not_written_is_wrong_on_whole_numbers():
    problem = heavy_and_light(1.0)
    exact = probe.exact(problem)
    reference = check.oracle(exact, on="cpu", sizes=False)

    class Idle(OnCpu):
        def launch(self, stream):
            self.output[:-1] = reference.values[:-1]

    with pytest.raises(
        check.WrongResult,
        match="leaves 16 of 960 elements unwritten or NaN, the first at row 59, column 0",
    ):
        check.exactly(Idle(exact, None), exact, reference)


@pytest.mark.parametrize("out", ["bfloat16", "e4m3"])
def test_whole_numbers_are_rounded_once_to_the_outputs_dtype(out):
    from kernels.tensor_core_24 import fp8_operands

    exact = probe.exact(fp8_operands.problem(40, 24, 96, out=out, scale="vectors"))
    reference = check.oracle(exact, on="cpu", sizes=False)
    numbers = reference.values.astype(np.float32)
    made = (
        half.from_dense(numbers, out)
        if out == "bfloat16"
        else eight.Eight(out, eight.to_bits(numbers, out), np.ones((1, 1), np.float32))
    )

    class Given:
        name = "given"

        def result(self):
            return made

        def launch(self, stream):
            made.bits[...] = held

    held = made.bits.copy()
    check.exactly(Given(), exact, reference)
    held[3, 5] += 1
    with pytest.raises(check.WrongResult, match="1 of 960 elements .* at row 3, column 5"):
        check.exactly(Given(), exact, reference)


# -------------------------------------------------- independence, and the order of things


def test_what_the_conversion_to_blocks_loses_is_wrong(monkeypatch):
    """The oracle multiplies the matrix that was given, not what became of it."""
    rng = np.random.default_rng(5)
    row, col = np.nonzero(rng.random((90, 150)) < 0.05)
    pattern = csr.Csr(
        90,
        150,
        np.searchsorted(row, np.arange(91)).astype(np.int32),
        col.astype(np.int32),
        np.ones(col.size, np.float32),
    )

    def made():
        return async_sparse.problem_from_csr(pattern, 20, 1, block=32, reorder="")

    def compared(problem) -> check.Errors:
        out = check.dense_product(problem.host().a, problem.host().b).astype(np.float32)
        return check.compare(half.from_dense(out, "bfloat16"), check.oracle(problem, on="cpu"))

    assert compared(made()).bound < 1
    real = bcsr.from_csr

    def loses_a_block(*given, **more):
        a = real(*given, **more)
        a.val[-1] = 0
        return a

    monkeypatch.setattr(bcsr, "from_csr", loses_a_block)
    with pytest.raises(check.WrongResult, match="is wrong"):
        compared(made())


def test_the_poison_is_in_place_before_the_launch(monkeypatch):
    """A GPU fills on CuPy's stream and launches on another: NaN that comes late would spoil a right result."""
    log = []
    stream = SimpleNamespace(synchronize=lambda: log.append("filled"))
    cuda = SimpleNamespace(get_current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    out = SimpleNamespace(shape=(2, 3), fill=lambda value: log.append(f"fill {value}"))
    bound = SimpleNamespace(name="x", result=lambda: out, launch=lambda stream: log.append("launch"))
    problem = make_problem(2, 3)
    flow = SimpleNamespace(sync=lambda: log.append("end"))
    check._launched(bound, problem, check.reference(np.zeros((2, 3))), flow, None, "")
    assert log == ["fill nan", "filled", "launch", "end"]
