"""Which kernels multiply what, on GPUs that are not there; how a choice is written; when a dense product is faster."""

from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

import compiled
import numpy as np
import pandas as pd
import pytest
import racing
import scipy.sparse as sp
import twins
from refused import says

from artifact import paths
from artifact.measure import records
from kernels import async_sparse, autotune, casper_sparse, gpu, jit, nm_spmm, padding, tensor_core_24
from kernels.async_sparse import any_csr, windows
from kernels.contract import Operand
from kernels.formats import bcsr, csr, half, nm, two_four, wcsr
from kernels.library import dense, operands, routes

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
    if kind.startswith("nm"):
        b = nm.random(256, 128, 8, 32, int(kind[2:]), 0)
        return replace(b, val=half.from_bits(half.to_bits(b.val, "bfloat16"), "bfloat16"))
    made = {"csr": csr.from_scipy, "wcsr": partial(wcsr.from_csr, dtype="float32")}
    if kind == "24":
        return two_four.random(128, 256, "bfloat16", 0)
    return made.get(kind, lambda a: bcsr.from_csr(a, block=int(kind[1:]), dtype="float32"))(a)


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
    offered, kernels = [], [k for system in SYSTEMS.values() for k in system.VARIANTS.values()]

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
            (kernel,) = {k.targets for k in kernels if k.source == source} & {jit.TARGETS}
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
    assert not (made.a.val.view(np.uint32) & 0x1FFF).any() and np.abs(made.a.val - a.val).max() == np.float32(2**-12)


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
    assert way(kind, dtype, accuracy, H200, order=order, out_order=out_order).orders == (found,)


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
        for name in ("shape", "strides", "dtype", "itemsize", "size", "nbytes", "ndim"):
            assert getattr(slot, name) == getattr(x, name) and slot.data.ptr is operand
        assert slot.flags.c_contiguous == x.flags.c_contiguous and slot.flags.f_contiguous == x.flags.f_contiguous


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


def test_values_that_change_are_tried_with_what_reads_them_where_they_lie(monkeypatch, tmp_path):
    tried = []
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))

    def tune(problem, names, prepare, references, device, rounds, jobs):
        tried.append((names, jobs))
        return autotune.Winner(names[-1], 1.0, None, 0.0)

    monkeypatch.setattr(autotune, "tune", tune)
    made = way("csr", "float32", None, A100, in_place=True)
    p = routes.multiplication(made, 128, np)
    assert routes.choose(made, p, A100, lambda: p)[0] == tried[-1][0][-1]
    ((kept, jobs),) = tried
    assert kept and all(c.rows == 1 and not c.order for c in kept) and len(jobs) == len(kept)
    for source, entry in jobs:
        jit.compile_cubin(source, entry, "sm_80")


# ---------------------------------------------------------------- every family of GPUs

#: Those that the systems' own tests leave out.
OTHERS = tuple(target for target in jit.FAMILIES if target not in jit.TARGETS)
#: Groups of single rows have so few registers that some spill a little (`windows.BLOCKS`).
MOST_LOADS = 16
HOPPERS = (windows.SOURCE, windows.SHORT_SOURCE)


def routed() -> dict[str, list[tuple]]:
    """What it is -> (source, entry) of each kernel that a plan on no Hopper may launch; of blocks: `test_blocks`."""
    half_, fp32 = (
        [any_csr.entry_of(c, n, dtype) for c in any_csr.POOLS[pool] for n in sizes if any_csr.takes_part(c, n)]
        for pool, dtype, sizes in (("half", "bfloat16", (8, 256)), ("fp32", "tf32", (5, 64, 256, 258)))
    )
    half_, fp32 = ([job for job in jobs if job[0] not in HOPPERS] for jobs in (half_, fp32))
    return {
        "CSR float32": fp32,
        "CSR 16 bits": [*half_, *((source, entry.replace("BF16", "F16")) for source, entry in half_)],
        "2:4": _of_variant(tensor_core_24, "mma_sp"),
        "N:M float32": _of_variant(nm_spmm, "wide"),
        "around them": [
            (padding.SOURCE, padding.ENTRIES[16]),
            (dense.SOURCE, f"combine<{dense.DTYPES['bfloat16'][0]}>"),
        ],
    }


def _of_variant(system, variant: str) -> list[tuple]:
    kernel = system.VARIANTS[variant]
    return [(kernel.source, entry) for entry in kernel.entries]


@pytest.mark.parametrize("what", routed())
def test_every_family_has_the_kernels_that_are_routed_to(what):
    jobs = list(dict.fromkeys(routed()[what]))
    made = compiled.spread(jobs, (), OTHERS)
    assert {(x.source, x.entry) for x in made.values()} == {*jobs}
    assert {(x.source, x.arch) for x in made.values()} == {(source, arch) for source, _ in jobs for arch in OTHERS}
    for (entry, target), (used, mix) in compiled.reports(made).items():
        assert mix["EXIT"] and not any(op.startswith(("HGMMA", "UTMA")) for op in mix), entry
        assert used.spill_loads <= MOST_LOADS and used.stack_bytes <= 4 * MOST_LOADS, f"{entry} on {target}: {used}"


def test_the_table_has_every_family_that_is_compiled_for_and_each_gets_something():
    assert sorted(map(jit.arch_of, routes.FAMILIES)) == sorted(jit.FAMILIES)
    for asked, row in routes.table().items():
        for family in routes.FAMILIES:
            hopper, said = family.compute_capability == (9, 0), row[family.name]
            assert (said == routes.NONE) == (asked == ("N:M", "bfloat16") and not hopper)
            assert ("wgmma" in said or "copy engine" in said) <= hopper, (asked, family.name)


# ---------------------------------------------------------------- whether a dense product is faster

GPUS = {"nvidia-h200": (3_201_000, 6016), "nvidia-h100-80gb-hbm3": (2_619_000, 5120)}
#: system -> what was recorded of it that a route leads to.
OURS = {"async_sparse": ("auto",), "tensor_core_24": ("auto",), "nm_spmm": ("auto", "bf16", "tf32")}
NUMBERS = {"auto": "fp32", "bf16": "16", "tf32": "tf32"}  # of N:M


def described(clock=1_980_000, memory=3_201_000, bus=6016, capability=(9, 0), sms=132):
    properties = SimpleNamespace(
        multiprocessor_count=sms,
        clock_rate=clock,
        memory_clock_rate=memory,
        global_memory_bus_width=bus,
        max_shared_memory_per_block_optin=232_448,
    )
    return SimpleNamespace(name="a GPU", compute_capability=capability, properties=properties)


def work(system: str, ours: str, p) -> routes.Work:
    """What was multiplied at a recorded point."""
    if system == "nm_spmm":  # whose A is dense: the product of the transposes
        vector = 128 if "128" in p.label else 32
        return routes.vectors(p.n, p.m, p.k, p.nnz / (p.n * p.k), vector, NUMBERS[ours])
    if system == "tensor_core_24":
        return routes.Work("2:4", "16", p.m, p.n, p.k, p.m * p.k / 2)
    numbers = "tf32" if "tf32" in p.label else "16"
    return routes.blocks(p.m, p.n, p.k, round(p.nnz / 4096), (64, 64), numbers, False)


@pytest.fixture(scope="module")
def points() -> pd.DataFrame:
    """Of each recorded point with a dense product: both times, measured and expected."""
    rows, point = [], ["label", "m", "n", "k", "density", "nnz"]
    for (slug, (memory, bus)), (system, names) in product(GPUS.items(), OURS.items()):
        of, folder = routes.ceilings(described(memory=memory, bus=bus)), paths.RECORDED / slug / system
        for experiment in sorted({*records.experiments(folder)} - {"fp8"}):
            df = pd.read_csv(
                folder / f"{experiment}.csv", usecols=[*point, "variant", "median_us"], dtype={"label": str}
            )
            us = df.fillna({"label": ""}).pivot_table("median_us", point, "variant", "min").reset_index()
            of_dense = us.filter(regex="^cublas").min(axis=1)
            for ours in us.columns.intersection(names):
                for p, *measured in zip(us.itertuples(), us[ours], of_dense, strict=True):
                    rows.append((*measured, *routes.both(work(system, ours, p), of)))
    return pd.DataFrame(rows, columns=["sparse", "dense", "expected_dense", "expected"]).dropna()


def test_it_is_right_and_near_at_the_recorded_points(points):
    faster, said = points["dense"] < points["sparse"], points["expected_dense"] < points["expected"]
    assert len(points) > 1000 and faster.sum() >= 15
    assert (faster == said).mean() > 0.99
    assert (faster & said).sum() >= 0.8 * faster.sum(), "most of where dense is faster is found"
    assert (said & ~faster).sum() <= 0.2 * said.sum(), "and little else"
    for measured, expected in (("sparse", "expected"), ("dense", "expected_dense")):
        ratio = points[expected] / points[measured]
        assert ratio.quantile(0.1) > 0.8 and ratio.quantile(0.9) < 1.25 and 0.95 < ratio.median() < 1.05


def scattered(m: int, k: int, density: float):
    return csr.from_scipy(sp.random(m, k, density, format="csr", dtype=np.float32, random_state=0))


@pytest.mark.parametrize(
    "device",
    [described(), described(capability=(8, 0), sms=108, clock=1_410_000), gpu.Portable(described())],
    ids=["H200", "A100", "portable"],
)
def test_a_plan_that_dense_beats_says_so_in_one_sentence_with_both_times(device):
    cases = [
        (bcsr.random(4096, 4096, 0.05, 0, dtype="bfloat16"), "bfloat16", 8192, False),
        (bcsr.random(333, 1111, 0.1, 0, dtype="bfloat16"), "bfloat16", 77, None),
        (scattered(2000, 2000, 0.001), "float32", 512, False),
        (scattered(500, 500, 0.6), "float32", 4096, True),
        (two_four.random(4096, 4096, "bfloat16", 0), "bfloat16", 4096, False),
        (nm.random(1024, 1024, 8, 32, 32, 0), "float32", 4096, False),
    ]
    for a, dtype, n, faster in cases:
        said = routes.dense_is_faster(routes.route(a, dtype, operands.resolved(None, dtype), device), n, device)
        if faster is not None:
            assert bool(said) == faster, said
        if said:
            assert said.count(" us") == 2 and said.endswith("if it fits.") and ". " not in said


@pytest.mark.parametrize("device", [described(clock=0), described(memory=0), described(capability=(7, 5)), racing.A100])
def test_a_gpu_that_does_not_describe_itself_is_not_spoken_of(device):
    way = routes.route(scattered(500, 500, 0.6), "float32", "fp32", racing.A100)
    assert routes.ceilings(device) is None and routes.dense_is_faster(way, 4096, device) == ""


def test_a_gpu_after_those_that_are_known_is_taken_for_the_last_one_before():
    assert routes.ceilings(described(capability=(9, 0))) == routes.ceilings(described(capability=(9, 5)))
