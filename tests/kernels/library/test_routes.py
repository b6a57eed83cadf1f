"""Which kernels multiply what, on GPUs that are not there; and how a choice is written."""

from dataclasses import replace

import numpy as np
import pytest
import racing
import scipy.sparse as sp
import twins
from refused import says

from kernels import async_sparse, autotune, casper_sparse, gpu, jit, nm_spmm, tensor_core_24
from kernels.async_sparse import any_csr
from kernels.contract import Operand
from kernels.formats import bcsr, csr, half, nm, two_four, wcsr
from kernels.library import operands, routes

H200, A100, L4, B200 = racing.H200, racing.A100, racing.L4, racing.B200
PORTABLE = gpu.Portable(H200)
SYSTEMS = {x.__name__.rpartition(".")[2]: x for x in (async_sparse, casper_sparse, nm_spmm, tensor_core_24)}


@pytest.fixture(autouse=True)
def numpy_looks_at_matrices(monkeypatch):
    twins.instead_of_a_gpu(monkeypatch, lambda x: x)


def matrix(kind: str):
    """128 x 256 with values that every dtype here holds."""
    a = sp.random(128, 256, 0.05, format="csr", random_state=0)
    a.data = np.random.default_rng(0).integers(1, 64, a.nnz) / np.float32(8)
    a = csr.from_scipy(a)
    if kind == "csr":
        return a
    if kind == "wcsr":
        return wcsr.from_csr(a, dtype="float32")
    if kind == "24":
        return two_four.random(128, 256, "bfloat16", 0)
    if kind.startswith("nm"):
        b = nm.random(256, 128, 8, 32, int(kind[2:]), 0)
        return replace(b, val=half.from_bits(half.to_bits(b.val, "bfloat16"), "bfloat16"))
    return bcsr.from_csr(a, block=int(kind[1:]), dtype="float32")


def way(kind: str, dtype: str, accuracy: str | None, device, **options) -> routes.Route:
    asked = operands.resolved(accuracy, dtype)
    return routes.route(matrix(kind), dtype, asked, device, explicit=accuracy is not None, **options)


HOPPERS = [
    ("csr", "float32", None, "async_sparse", "auto_fp32", "float32"),
    ("csr", "float32", "tf32", "async_sparse", "auto_tf32", "tf32"),
    ("csr", "bfloat16", None, "async_sparse", "auto_half", "bfloat16"),
    ("csr", "float16", None, "async_sparse", "auto_half", "float16"),
    ("b64", "float32", None, "async_sparse", "auto_fp32", "float32"),
    ("b64", "float32", "tf32", "async_sparse", "auto", "tf32"),
    ("b64", "float32", "bf16", "async_sparse", "auto", "tf32"),
    ("b32", "bfloat16", None, "async_sparse", "auto", "bfloat16"),
    ("24", "bfloat16", None, "tensor_core_24", "auto", "bfloat16"),
    ("24", "float32", None, "async_sparse", "auto_fp32", "float32"),
    ("nm32", "float32", None, "nm_spmm", "auto", "float32"),
    ("nm32", "float32", "tf32", "nm_spmm", "tf32", "tf32"),
    ("nm32", "bfloat16", None, "nm_spmm", "bf16", "bfloat16"),
    ("wcsr", "float32", None, "async_sparse", "auto_fp32", "float32"),
    # Vectors of whole fours, or of all rows, have a kernel of their own.
    *((f"nm{v}", "float32", None, "async_sparse", "auto_fp32", "float32") for v in (1, 2, 6)),
    *((f"nm{v}", "float32", None, "nm_spmm", "auto", "float32") for v in (4, 12, 130)),
]
ELSEWHERE = [
    ("csr", "float32", None, "async_sparse", "auto_fp32", "float32"),
    ("csr", "float32", "tf32", "async_sparse", "auto_fp32", "float32"),
    ("csr", "float16", None, "async_sparse", "auto_half", "float16"),
    ("b64", "float32", "tf32", "async_sparse", "auto_fp32", "float32"),
    ("b64", "bfloat16", None, "async_sparse", "blocks_mma", "bfloat16"),
    ("b32", "float16", None, "async_sparse", "blocks_mma", "float16"),
    ("24", "bfloat16", None, "tensor_core_24", "auto", "bfloat16"),
    ("nm32", "float32", "tf32", "nm_spmm", "auto", "float32"),
]


@pytest.mark.parametrize(
    ("kind", "dtype", "accuracy", "system", "variant", "numbers", "device"),
    [(*row, H200) for row in HOPPERS] + [(*row, device) for row in ELSEWHERE for device in (A100, L4, B200, PORTABLE)],
)
def test_each_format_dtype_and_accuracy_has_its_kernels(kind, dtype, accuracy, system, variant, numbers, device):
    made = way(kind, dtype, accuracy, device)
    assert (made.room, made.variant, made.numbers) == (system, variant, numbers)
    assert made.family is SYSTEMS[system].FAMILIES[variant], "and the system has them"


@pytest.mark.parametrize("device", [A100, L4, B200, PORTABLE], ids=lambda device: device.name)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("csr", "float32"), ("csr", "bfloat16"), ("24", "bfloat16"), ("nm32", "float32")],
)
def test_another_gpu_is_never_offered_a_kernel_of_hoppers(kind, dtype, device, monkeypatch):
    """Neither by prediction nor to the trials."""
    made = way(kind, dtype, None, device)
    p = routes.multiplication(made, 96, np)
    offered, system = [], SYSTEMS[made.room]

    def tune(problem, configs, *_):
        offered.extend(configs)
        return autotune.Winner(configs[0], 1.0, None, 0.0)

    monkeypatch.setattr(autotune, "tune", tune)
    made.family.tune(p, device)
    assert offered
    offered.append(made.family.likely(p, device))
    for config in offered:
        assert made.family.fits(config, p, device)
        for source, entry in _entries(made, config, p):
            (kernel,) = {k.targets for k in system.VARIANTS.values() if k.source == source} & {jit.TARGETS}
            assert kernel == jit.TARGETS and entry


def _entries(made, config, p) -> list[tuple]:
    if made.room == "async_sparse":
        return [any_csr.entry_of(config, 96, "tf32" if made.numbers == "float32" else made.numbers)]
    if made.room == "nm_spmm":
        return nm_spmm.family.jobs([config], p)
    return [(config.source, config.entry(made.numbers))]


TURING = racing.gpu_of("NVIDIA T4", (7, 5), 40, 65_536)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        *((["7.5", "8.0 or later"], (kind, "bfloat16", None, TURING)) for kind in ("csr", "b64", "24", "nm32")),
        (["bfloat16", "8.0", "convert B to float32"], ("nm32", "bfloat16", None, A100)),
        (["N:M times float16"], ("nm32", "float16", "fp16", H200)),
    ],
)
def test_what_has_no_kernel_is_said_before_anything_is_compiled(words, given, monkeypatch):
    monkeypatch.setattr(jit, "compile_cubin", lambda *_: pytest.fail("compiled"))
    says(words, lambda: way(*given))
    says(["in_place"], lambda: way("b64", "float32", None, H200, in_place=True))


def test_sixteen_bits_round_a_only_where_that_was_asked_for():
    a = matrix("csr")
    a.val[5] = 0.1
    ask = {"order": "C", "device": H200, "dtype": "bfloat16", "accuracy": "bf16"}
    says(["0.1", "accuracy='bf16'"], lambda: routes.route(a, explicit=False, **ask))
    assert routes.route(a, explicit=True, **ask).a is a


def test_tf32_rounds_a():
    a = matrix("b64")
    a.val[0, 0, 0] = 1 + 2**-12
    made = routes.route(a, "float32", "tf32", H200, explicit=True)
    assert not (made.a.val.view(np.uint32) & 0x1FFF).any()
    assert np.abs(made.a.val - a.val).max() == np.float32(2**-12)


@pytest.mark.parametrize(
    ("kind", "dtype", "accuracy", "order", "out_order", "found"),
    [
        ("b64", "bfloat16", None, "C", "C", "CC"),
        ("b64", "bfloat16", None, "F", "C", "FC"),
        ("b64", "bfloat16", None, "F", "F", "FF"),
        ("b64", "bfloat16", None, "C", "F", "CC"),
        ("b64", "float32", "tf32", "C", "C", "FC"),
        ("csr", "float32", None, "F", "F", "CC"),
        ("24", "bfloat16", None, "F", "F", "FF"),
        ("24", "bfloat16", None, "C", "F", "CF"),
    ],
)
def test_memory_orders_are_the_kernels_where_it_has_them(kind, dtype, accuracy, order, out_order, found):
    made = way(kind, dtype, accuracy, H200, order=order, out_order=out_order)
    assert made.orders == (found,)


# ---------------------------------------------------------------- problems and choices


@pytest.mark.parametrize(
    ("kind", "dtype", "accuracy"),
    [
        ("csr", "float32", None),
        ("b64", "bfloat16", None),
        ("b64", "float32", "tf32"),
        ("24", "bfloat16", None),
        ("nm32", "float32", None),
        ("nm32", "bfloat16", None),
    ],
)
def test_a_problem_is_what_the_system_would_make_of_the_same_operands(kind, dtype, accuracy):
    """With numbers, or slots in their place."""
    made = way(kind, dtype, accuracy, H200)
    p, slots = routes.multiplication(made, 96, np), routes.multiplication(made, 96)
    assert (p.m, p.n, p.k) == ((96, 128, 256) if made.turned else (128, 96, 256)) and p.nnz == made.a.nnz
    ops = p.device()
    assert ops is p.device() and (ops.b if made.turned else ops.a) is made.a
    b, order = (ops.a, "CF"[made.orders[0][0] == "C"]) if made.turned else (ops.b, made.orders[0][0])
    b, c = half.array_of(b), half.array_of(ops.c)
    assert b.shape == ((96, 256) if made.turned else (256, 96)) and b.flags[f"{order}_CONTIGUOUS"]
    assert (b.view(np.uint16) if b.dtype == np.uint16 else b).all(), "never all zeros"
    if made.numbers == "tf32":
        assert not (b.T.view(np.uint32) & 0x1FFF).any()
    named = slots.device()
    for x, slot, operand in ((b, named.a if made.turned else named.b, Operand.B), (c, named.c, Operand.OUT)):
        slot = half.array_of(slot)
        assert (slot.shape, slot.strides, slot.dtype) == (x.shape, x.strides, x.dtype) and slot.data.ptr is operand


@pytest.mark.parametrize(
    ("kind", "dtype", "accuracy", "device"),
    [
        ("b64", "bfloat16", None, H200),
        ("24", "bfloat16", None, H200),
        ("24", "bfloat16", None, A100),
        ("nm32", "float32", None, H200),
        ("nm32", "float32", None, A100),
        ("csr", "float32", None, H200),
        ("csr", "float32", "tf32", H200),
    ],
)
def test_without_trials_the_best_by_prediction_is_taken_and_can_be_read_again(
    kind, dtype, accuracy, device, monkeypatch, tmp_path
):
    made = way(kind, dtype, accuracy, device)
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))
    monkeypatch.setattr(autotune, "look_up", lambda *_, **__: None)  # nothing is kept
    monkeypatch.setattr(autotune, "tune", lambda *_: pytest.fail("tried kernels"))
    p = routes.multiplication(made, 96, np)
    config, note = routes.choose(made, p, device)
    assert made.family.fits(config, p, device) and not note
    assert routes.written(made, routes.text(made, config), p, device) == config


@pytest.mark.parametrize("nvrtc", [jit.nvrtc_version(), "12.0"])
def test_a_choice_that_another_compiler_made_counts_and_is_told_of(nvrtc, monkeypatch):
    made = way("b64", "bfloat16", None, H200)
    p = routes.multiplication(made, 96)
    config = made.family.candidates(p, H200)[-1]
    monkeypatch.setattr(autotune, "look_up", lambda *_, **__: autotune.Choice(config, 1.0, nvrtc=nvrtc))
    found, note = routes.choose(made, p, H200)
    assert found == config and (f"NVRTC {nvrtc}" in note) == bool(note) == (nvrtc == "12.0")


def test_values_that_change_are_tried_with_the_systems_candidates_but_never_with_a_copy_of_them(
    monkeypatch,
):
    tried = []

    def tune(problem, names, prepare, references, device, rounds, jobs):
        tried.append((names, jobs))
        return autotune.Winner(names[-1], 1.0, None, 0.0)

    monkeypatch.setattr(autotune, "tune", tune)
    made = way("csr", "float32", None, A100, in_place=True)
    p = routes.multiplication(made, 128, np)
    assert routes.choose(made, p, A100, lambda: p)[0] == tried[-1][0][-1]
    ((kept, jobs),) = tried
    every = casper_sparse.launch.candidates(p, A100)
    assert set(every) - set(kept) == {"shared_tiles"} and len(jobs) == len(kept)
    for source, entry in jobs:
        jit.compile_cubin(source, entry, "sm_80")
