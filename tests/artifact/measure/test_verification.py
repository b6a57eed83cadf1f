"""Is the output right: what each dtype may be off by, who is wrong on purpose, and who looks at the oracle."""

import math
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from contenders import OnCpu, drawn, on_gpu, problem, product
from hypothesis import given, settings, strategies as st
from refused import refused

from artifact.measure import verification
from kernels import async_sparse, formats
from kernels.autotune import probe
from kernels.contract import Operands
from kernels.formats import bcsr, csr, half
from kernels.formats.half import Half

KINDS = ("csr", "nm", "half")
found_wrong = partial(refused, kind=verification.WrongResult)


def exact_of(made) -> np.ndarray:
    """The product by dense matrices, in float64."""
    a, b = (formats.to_dense(x).astype(float) for x in (made.host().a, made.host().b))
    return a @ b


def on_cpu(made, **more) -> verification.Reference:
    return verification.oracle(made, on="cpu", **more)


def test_errors_are_what_the_module_says_they_are():
    exact = np.array([[1.0, -2.0], [1e-9, 4.0]])
    out = (exact * (1 + np.array([[1e-6, 2e-6], [0, 3e-6]]))).astype(np.float32)
    out[1, 0] = 1e-6
    off = np.abs(out.astype(float) - exact)
    errors = verification.compare(out, verification.reference(exact))
    assert errors.rel_err == pytest.approx(np.linalg.norm(off) / np.linalg.norm(exact))
    assert errors.max_err == pytest.approx((off / np.maximum(np.abs(exact), math.sqrt((exact**2).mean()))).max())


def with_one(times):
    """One product of the middle row as often again."""

    def work(a, b):
        out, first = product(a, b), a.row_ptr[a.m // 2]
        out[a.m // 2] += times * a.val[first] * b[a.col_idx[first]]
        return out

    return work


def without_duplicates(a, b):
    dense = np.zeros((a.m, a.k), np.float32)
    dense[csr.rows(a), a.col_idx] = a.val
    return dense @ b


WRONG = {
    "lost": with_one(-1),
    "repeated": with_one(1),
    "shifted": lambda a, b: np.roll(product(a, b), 1, axis=0),
    "without_duplicates": without_duplicates,
    "in_half": lambda a, b: csr.to_dense(a).astype(np.float16).astype(np.float32) @ b,
    "infinite": lambda a, b: np.where(np.arange(b.shape[1]) == 3, np.float32(np.inf), product(a, b)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_kernel_that_is_wrong_on_purpose_is_caught(name):
    made = drawn(m=200, n=64, k=100, nnz=4000, signed=False)
    found_wrong(
        f"^{name} at m=200, n=64, k=100.* is wrong.*but at most.*float32",
        verification.check,
        OnCpu(made, WRONG[name], name),
        made,
        on_cpu(made),
    )


def test_a_launch_is_made_as_it_is_asked_for_and_poisoned_before():
    made = drawn(label="cage4")
    reference, right = on_cpu(made), OnCpu(made)
    assert verification.check(right, made, reference, launch=right.launch).rel_err < 1e-6
    found_wrong("leaves 35 of 35 elements unwritten", verification.check, right, made, reference, launch=lambda: None)
    wrong = OnCpu(made, WRONG["shifted"], "replayed")
    found_wrong(
        "^replayed after timing at cage4, m=7.* is wrong",
        verification.check,
        wrong,
        made,
        reference,
        launch=wrong.launch,
        when="after timing",
    )
    found_wrong(
        "broken at cage4, m=7.*: ILLEGAL_ADDRESS$",
        verification.check,
        OnCpu(made, name="broken"),
        made,
        reference,
        launch=Mock(side_effect=RuntimeError("ILLEGAL_ADDRESS\nand more")),
    )
    wrong.output = np.zeros((5, 7), np.float32)
    found_wrong(r"shape \(5, 7\).*\(7, 5\)", verification.check, wrong, made, reference)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@np.errstate(invalid="ignore")
def test_a_reference_that_is_no_number_agrees_with_nothing(value):
    """Whatever comes out, an error that is NaN is not below a limit."""
    exact = np.array([[1.0, 2.0], [3.0, value]])
    for out in (np.array([[1, 2], [3, 4]], np.float32), exact.astype(np.float32)):
        found_wrong("", verification.compare, out, verification.reference(exact))


def test_an_empty_matrix_must_give_zeros():
    made = drawn(nnz=0)
    assert verification.check(OnCpu(made), made, on_cpu(made)) == verification.Errors(0.0, 0.0, 0.0)
    found_wrong("is wrong", verification.check, OnCpu(made, lambda a, b: 1e-30), made, on_cpu(made))
    for shape in ((0, 4), (4, 0)):
        out = np.zeros(shape, np.float32, order="F")
        assert verification.compare(out, verification.reference(np.zeros(shape))) == verification.Errors(0.0, 0.0)


def test_a_problem_may_name_the_limit_of_its_results():
    """Sums that are cut off, in a tensor core, say: wrong for float32, right where the problem says so."""
    made = drawn(m=60, n=33, k=1000, nnz=54_000, signed=False)
    reference, cut = on_cpu(made), OnCpu(made, lambda a, b: product(a, b) * np.float32(1 - 5e-5))
    found_wrong("at most 1e-05 for float32; the first such element", verification.check, cut, made, reference)
    made = replace(made, limit="tf32")
    assert verification.check(cut, made, reference).rel_err == pytest.approx(5e-5, 0.1)
    for name in ("lost", "repeated", "shifted"):
        found_wrong("for tf32; the first such element", verification.check, OnCpu(made, WRONG[name]), made, reference)
    refused("is fp4, for which there is no error limit", verification.check, cut, replace(made, limit="fp4"), reference)


# ---------------------------------------------------------------- the oracle, and who confirms it


@given(st.sampled_from(KINDS), st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_the_oracle_of_every_format_is_the_dense_product_in_panels(kind, m, n, k, panel):
    made = drawn(kind, m, n, k, nnz=3 * m * k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "PANEL_ELEMENTS", panel)
        reference = on_cpu(made)
    assert reference.values.dtype == np.float64 and reference.values.flags.c_contiguous
    np.testing.assert_allclose(reference.values, exact_of(made), rtol=1e-6, atol=1e-6 * (kind == "csr"))
    assert reference.norm == pytest.approx(np.linalg.norm(reference.values))


@pytest.mark.parametrize("kind", ["csr", "dense", "half"])
def test_a_product_is_confirmed_or_refused(monkeypatch, kind):
    monkeypatch.setattr(verification, "COMPARE_ELEMENTS", 100)  # in many parts
    made = drawn("nm" if kind == "dense" else kind, 40, 30, 60, nnz=700)
    a, b = (x if isinstance(x, csr.Csr | Half) else formats.to_dense(x) for x in (made.host().a, made.host().b))
    exact = verification.sparse_product(a, b) if kind == "csr" else exact_of(made)
    verification.confirm(exact, a, b, "here")
    verification.confirm(np.asfortranarray(exact), a, b, "here")
    off = np.zeros_like(exact)
    off[17, 3] = verification.LIMITS["float32"].max_err / 10 * math.sqrt((exact**2).mean())
    lost = np.where(np.arange(40)[:, None] == 39, np.nan, exact)
    for wrong, row in ((exact + off, 17), (exact[:, [1, 0, *range(2, 30)]], r"\d+"), (lost, r"\d+"), (-exact, r"\d+")):
        found_wrong(f"is itself wrong at here: row {row} is off by", verification.confirm, wrong, a, b, "here")


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_product_of_the_gpu_s_is_confirmed(monkeypatch, kind):
    """Here NumPy stands for the GPU: a library that multiplies wrongly, in float64 too, is found out."""
    made = drawn(kind, 40, 30, 60, nnz=7200)
    made = replace(made, make_device=made.make_host)
    monkeypatch.setattr(verification, "CPU_WORK", 0)
    np.testing.assert_allclose(verification.oracle(made, on="gpu").values, on_cpu(made).values, rtol=1e-12, atol=1e-12)
    name = "sparse_product" if kind == "csr" else "dense_product"
    multiply = getattr(verification, name)
    monkeypatch.setattr(verification, name, lambda a, b: multiply(a, b) * (np.arange(40) < 39)[:, None])
    found_wrong("itself wrong at m=40, n=30, k=60, .*: row 39", verification.oracle, made, on="gpu")


@pytest.mark.parametrize("elements", [1, 7, 30, 2**24])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_memory_order_changes_nothing(monkeypatch, elements, orders):
    exact = np.random.default_rng(0).uniform(-1, 1, (11, 5))
    plain = verification.compare(exact.astype(np.float32), verification.reference(exact))
    monkeypatch.setattr(verification, "COMPARE_ELEMENTS", elements)
    out, reference = np.array(exact.astype(np.float32), order=orders[0]), verification.reference(exact.copy(orders[1]))
    assert reference.norm == pytest.approx(np.linalg.norm(exact))
    assert verification.compare(out, reference)[:2] == (pytest.approx(plain.rel_err), plain.max_err)
    out[3, 2] *= 1.001
    found_wrong("is wrong", verification.compare, out, reference)
    out[[3, 7], [2, 1]] = np.nan
    found_wrong("leaves 2 of 55 .* at row 3, column 2", verification.compare, out, reference)


@pytest.mark.parametrize(
    ("off", "far", "says"),
    [(1e-2, 0.5, "the first such element, at row 1, column 2"), (5e-5, 8e-5, "is farthest off, at row 3, column 0")],
)
def test_the_first_element_over_its_limit_is_named_or_the_farthest_off(off, far, says):
    exact = np.ones((4, 3))
    factor = np.where(np.arange(12).reshape(4, 3) >= 5, 1 + off, 1.0)
    factor[3, 0] = 1 + far
    out = (exact * factor).astype(np.float32)
    found_wrong(says, verification.compare, out, verification.reference(exact))


# ----------------------------------------------------- what an element may be off by


@pytest.mark.parametrize(("dtype", "up", "mask"), [("bfloat16", 1 << 3, 0xFFFE), ("float16", 1 << 6, 0xFFFC)])
def test_a_wrong_16_bit_output_is_caught(dtype, up, mask):
    """One element by two bits above what rounding moves; all cut off; all in another place."""
    made = drawn("half", 60, 33, 50, dtype=dtype)
    right, reference = half.to_bits(product(made.host().a, made.host().b), dtype), on_cpu(made)
    most = np.unravel_index(np.abs(reference.values).argmax(), right.shape)
    one_up = right.copy()
    one_up[most] ^= up
    first = f"first such element, at row {most[0]}, column {most[1]}, is "
    for bits, where in ((one_up, first), (right & mask, "the "), (np.roll(right, 1, 1), "the ")):
        found_wrong(
            f"^spoiled at .* is wrong.*{dtype}; .*{where}",
            verification.check,
            OnCpu(made, lambda a, b, bits=bits: bits, "spoiled", dtype),
            made,
            reference,
        )


def heavy_and_light(heavy: float, signed=True, long=3000, seed=0, dtype="float32", m=60, n=16):
    """Row 0 has `long` products, `heavy` times as large as the five of each other row."""
    rng, k, lengths = np.random.default_rng(seed), 4000, np.append(long, np.full(m - 1, 5))
    row_ptr = np.append(0, np.cumsum(lengths)).astype(np.int32)
    col = np.concatenate([rng.choice(k, x, replace=False) for x in lengths]).astype(np.int32)
    val = rng.uniform(0.2, 1, col.size).astype(np.float32)
    val[:long] *= heavy
    val *= rng.choice(np.float32([-1, 1] if signed else [1, 1]), val.size)
    b = rng.uniform(0.2, 1, (k, n)).astype(np.float32)
    if dtype != "float32":
        val, b = half.from_bits(half.to_bits(val, dtype), dtype), half.from_dense(b, dtype)
    return problem(m, n, k, Operands(csr.Csr(m, k, row_ptr, col, val), b), nnz=int(col.size))


def test_magnitudes_are_those_of_an_elements_own_products():
    for made in (drawn(m=20, n=7, k=30, nnz=200), heavy_and_light(10.0, dtype="bfloat16")):
        a, b = made.host().a, formats.to_dense(made.host().b)
        reference = on_cpu(made)
        assert reference.sizes.dtype == np.float32
        np.testing.assert_allclose(reference.sizes, product(replace(a, val=np.abs(a.val)), np.abs(b)), rtol=1e-6)
        assert reference.longest == np.diff(a.row_ptr).max() and on_cpu(made, sizes=False).sizes is None


def test_the_bound_is_the_largest_error_over_what_rounding_explains():
    made = drawn(m=40, n=9, k=60, nnz=900)
    reference, out = on_cpu(made), product(made.host().a, made.host().b)
    found = verification.compare(out, reference)
    # By hand: lambda = 8, 2^-24, and 2^-21 of 3xTF32.
    may = (8 * math.sqrt(reference.longest) * 2**-24 + 2**-21) * reference.sizes
    off = np.abs(out.astype(float) - reference.values)
    assert found.bound == pytest.approx((off / may).max(), rel=1e-3) and 0 < found.bound < 0.2
    at = np.unravel_index(np.abs(reference.values).argmin(), out.shape)
    out[at] = reference.values[at] + 0.9 * may[at]
    assert verification.compare(out, reference).bound == pytest.approx(0.9, rel=0.02)
    assert math.isnan(verification.compare(out, verification.reference(reference.values)).bound)
    out[at] = reference.values[at] + 1.1 * may[at]
    found_wrong(r"is off by 1.1\de\+00 times what rounding", verification.compare, out, reference)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("dtype", "heavy"), [("float32", 1e5), ("bfloat16", 1e3), ("float16", 20)])
def test_a_light_row_beside_a_heavy_one_is_held_to_its_own_products(dtype, heavy, lost):
    """The rms of all elements is the heavy row's: against it the light row might be all zeros."""
    made = heavy_and_light(heavy, dtype=dtype)
    a, b, reference = made.host().a, formats.to_dense(made.host().b), on_cpu(made)
    held = (lambda x: x) if dtype == "float32" else partial(half.from_dense, dtype=dtype)
    out = reference.values.astype(np.float32)
    assert verification.compare(held(out.copy()), reference).bound < 1
    out[7] -= a.val[a.row_ptr[7]] * b[a.col_idx[a.row_ptr[7]]] if lost else out[7]
    found_wrong("row 7, column", verification.compare, held(out), reference)


def test_sums_that_cancel_are_right_in_any_order():
    """A long row whose products add up to nearly nothing: off by far more than 1e-4 of the rms of all."""
    made = heavy_and_light(3000.0, seed=2, m=5000, n=200)
    a, b = made.host().a, made.host().b
    b *= np.random.default_rng(6).choice(np.float32([-1, 1]), b.shape)
    reference, long = on_cpu(made), slice(0, int(a.row_ptr[1]))
    out = reference.values.astype(np.float32)
    out[0] = np.add.accumulate(a.val[long, None] * b[a.col_idx[long]], axis=0, dtype=np.float32)[-1]
    least = np.abs(reference.values[0]).argmin()
    out[0, least] = reference.values[0, least] + 5 * 2**-24 * reference.sizes[0, least]
    found = verification.compare(out, reference)
    assert found.max_err > verification.LIMITS["float32"].max_err and found.bound < 1
    found_wrong("largest element-wise error", verification.compare, out, verification.reference(reference.values))


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_a_result_in_8_bits_may_be_off_by_its_rounding(scale):
    exact = scale * np.geomspace(2.0**-9, 400, 96).reshape(8, 12)
    out = half.from_dense(exact.astype(np.float32), "e4m3", np.full((1, 1), scale, np.float32))
    found = verification.compare(out, verification.reference(exact, exact.astype(np.float32)), limit="fp8_e4m3")
    assert 0.5 < found.bound < 1


def test_a_product_in_which_everything_cancels_is_zero_and_nothing_else():
    a = csr.Csr(1, 2, np.array([0, 2], np.int32), np.array([0, 1], np.int32), np.array([3, 3], np.float32))
    reference = on_cpu(problem(1, 1, 2, Operands(a, np.array([[1], [-1]], np.float32)), nnz=2))
    assert reference.size_norm == 6 and verification.compare(np.zeros((1, 1), np.float32), reference).rel_err == 0
    found_wrong("", verification.compare, np.full((1, 1), 1e-7, np.float32), reference)


def test_partial_sums_in_16_bits_are_right_as_far_as_they_were():
    """As libraries cut k in parts: each part is rounded, and the sum."""
    rng, bf16 = np.random.default_rng(4), partial(half.from_dense, dtype="bfloat16")
    a, b = (half.to_dense(bf16(rng.uniform(-1, 1, s).astype(np.float32))).astype(float) for s in ((30, 512), (512, 20)))
    reference = verification.reference(a @ b, (np.abs(a) @ np.abs(b)).astype(np.float32), 512)
    out = bf16(sum(half.to_dense(bf16(np.float32(a[:, i::4] @ b[i::4]))) for i in range(4)))
    assert verification.compare(out, reference).bound < 1
    out.bits[11, 7] ^= 1 << 7  # twice, or half, as large
    found_wrong("row 11, column 7", verification.compare, out, reference)


# ------------------------------------------------------------------- whole numbers


@pytest.fixture
def whole(by_the_host):
    """`probe.exact`, of operands that the kernel makes on the host."""

    def of(problem):
        ops = problem.host()
        there = Operands(by_the_host(ops.a), by_the_host(ops.b))
        return probe.exact(replace(problem, make_device=lambda: there))

    return of


@pytest.mark.parametrize("dtype", ["float32", *half.DTYPES])
def test_one_lost_product_in_a_long_row_is_wrong_on_whole_numbers(whole, dtype):
    """In a measurement's own numbers of 16 bits it is less than what rounding explains."""
    made = heavy_and_light(1.0, signed=False, dtype=dtype)
    keep = np.arange(made.nnz) != made.host().a.val[:3000].argmin()
    loses = lambda a, b: product(replace(a, val=a.val * keep), b)  # noqa: E731
    if dtype != "float32":
        verification.check(OnCpu(made, loses, "loses", dtype), made, on_cpu(made))
    exact = whole(made)
    reference = on_cpu(exact, sizes=False)
    verification.exactly(OnCpu(exact, dtype=dtype), exact, reference)
    says = "loses on whole numbers at m=60, n=16, k=4000, 3295 non-zeros is wrong: .* of 960 elements .* at row 0, "
    found_wrong(says, verification.exactly, OnCpu(exact, loses, "loses", dtype), exact, reference)


def test_an_element_that_is_not_written_is_wrong_on_whole_numbers(whole):
    exact = whole(drawn(m=60, n=16, k=40, nnz=300))
    unwritten = OnCpu(exact, lambda a, b: np.where(np.arange(60)[:, None] < 59, product(a, b), np.float32(np.nan)))
    found_wrong(
        "leaves 16 of 960 elements unwritten or NaN, the first at row 59, column 0",
        verification.exactly,
        unwritten,
        exact,
        on_cpu(exact, sizes=False),
    )


@pytest.mark.parametrize("out", ["bfloat16", "e4m3"])
def test_whole_numbers_are_rounded_once_to_the_outputs_dtype(whole, out):
    from kernels.tensor_core_24 import fp8

    exact = whole(fp8.problem(40, 24, 96, out=out, scale="vectors"))
    reference, one = on_cpu(exact, sizes=False), np.ones((1, 1), np.float32)
    numbers = reference.values.astype(np.float32)
    made = half.from_dense(numbers, out) if out == "bfloat16" else half.Eight(out, half.to_bits(numbers, out), one)
    held = made.bits.copy()
    given = SimpleNamespace(name="given", result=lambda: made, launch=lambda _: np.copyto(made.bits, held))
    verification.exactly(given, exact, reference)
    held[3, 5] += 1
    found_wrong("1 of 960 elements .* at row 3, column 5", verification.exactly, given, exact, reference)


# -------------------------------------------------- independence, and the order of things


def test_what_the_conversion_to_blocks_loses_is_wrong(monkeypatch):
    """The oracle multiplies the matrix that was given, not what became of it."""
    row, col = np.nonzero(np.random.default_rng(5).random((90, 150)) < 0.05)
    row_ptr = np.searchsorted(row, np.arange(91)).astype(np.int32)
    pattern = csr.Csr(90, 150, row_ptr, col.astype(np.int32), np.ones(col.size, np.float32))
    real = bcsr.from_csr

    def compared(lost: int) -> verification.Errors:
        def convert(*given, **more):
            a = real(*given, **more)
            a.val[a.blocks - lost :] = 0
            return a

        monkeypatch.setattr(bcsr, "from_csr", convert)
        made = async_sparse.problem_from_csr(pattern, 20, 1, block=32, reorder="")
        out = verification.dense_product(made.host().a, made.host().b).astype(np.float32)
        return verification.compare(half.from_dense(out, "bfloat16"), on_cpu(made))

    assert compared(0).bound < 1
    found_wrong("is wrong", compared, 1)


def test_the_poison_is_in_place_before_the_launch(monkeypatch):
    """A GPU fills on CuPy's stream and launches on another: NaN that comes late would spoil a right result."""
    log = []
    stream = SimpleNamespace(synchronize=lambda: log.append("filled"))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
    out = SimpleNamespace(shape=(2, 3), fill=lambda value: log.append(f"fill {value}"))
    bound = SimpleNamespace(name="x", result=lambda: out, launch=lambda stream: log.append("launch"))
    flow = SimpleNamespace(sync=lambda: log.append("end"))
    verification._launched(bound, problem(2, 3), verification.reference(np.zeros((2, 3))), flow, None, "")
    assert log == ["fill nan", "filled", "launch", "end"]


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("panel", [verification.PANEL_ELEMENTS, 5000])
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 130, 57)])
@pytest.mark.parametrize("kind", KINDS)
def test_both_oracles_agree(device, monkeypatch, kind, shape, panel):
    """Of CSR the matrices have repeated and unsorted columns."""
    import cupy

    made = on_gpu(drawn(kind, *shape, nnz=3 * shape[0] * shape[2]))
    exact, small = on_cpu(made), verification.oracle(made, on="gpu")
    monkeypatch.setattr(verification, "CPU_WORK", 0)
    monkeypatch.setattr(verification, "PANEL_ELEMENTS", panel)
    for other in (small, verification.oracle(made, on="gpu")):
        assert isinstance(other.values, cupy.ndarray) and other.values.flags.c_contiguous
        np.testing.assert_allclose(other.values.get(), exact.values, rtol=1e-12, atol=1e-12)
        assert other.norm == pytest.approx(exact.norm)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "factor", "says"),
    [
        (300, 1.0, ""),
        (300, 1.001, "wrong_on_purpose.*is wrong"),
        (299, 1.0, "leaves 64 of 19200 elements.*row 299"),
    ],
)
def test_a_wrong_kernel_on_the_gpu_is_caught(device, rows, factor, says):
    made = on_gpu(drawn(m=300, n=64, k=200, nnz=9000, signed=False))
    reference, out = verification.oracle(made, on="gpu"), made.device().c
    exact = reference.values.astype("float32")

    def launch(stream):
        device.sync()
        out[:rows] = exact[:rows] * factor
        device.sync()

    bound = SimpleNamespace(name="wrong_on_purpose", result=lambda: out, launch=launch)
    if not says:
        assert verification.check(bound, made, reference, device.create_stream()).rel_err < 1e-7
        return
    found_wrong(says, verification.check, bound, made, reference, device.create_stream())


@pytest.mark.gpu
@pytest.mark.parametrize("elements", [verification.COMPARE_ELEMENTS, 100, 7])
def test_a_column_major_output_on_the_gpu_is_compared_by_row_and_column(device, monkeypatch, elements):
    import cupy

    monkeypatch.setattr(verification, "COMPARE_ELEMENTS", elements)
    exact = np.random.default_rng(0).uniform(-1, 1, (40, 30))
    here, there = verification.reference(exact), verification.reference(cupy.asarray(exact))
    assert there.norm == pytest.approx(np.linalg.norm(exact))
    out = cupy.asarray(exact.astype(np.float32), order="F")
    plain = verification.compare(exact.astype(np.float32), here)
    for mine, other in ((out, there), (out, here), (out.get(), there)):
        assert verification.compare(mine, other).max_err == pytest.approx(plain.max_err)
    out[13, 29] = out[14, 2] = math.nan
    for mine in (out, out.get(order="F")):
        found_wrong("leaves 2 of 1200 .* at row 13, column 29", verification.compare, mine, there)
