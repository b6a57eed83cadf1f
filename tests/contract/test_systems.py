"""What every system under study promises, whichever it is: kernels that say what they are and compile for what they
say, problems and workloads that are valid or refused in a sentence, and on a GPU products that are exact."""

import importlib
import math
import re
import struct
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from compiled import Reports, cubins
from hypothesis import HealthCheck, given, settings, strategies as st
from products import launched
from racing import A100
from refused import says
from systems import SYSTEMS, UNTUNED, VARIANTS, adds_in_any_order, options, recipes, typical

from artifact.measure import bench, verification
from kernels import formats, jit
from kernels.autotune import probe
from kernels.formats.half import array_of

systems = pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
each = pytest.mark.parametrize(("system", "kernel"), VARIANTS)


# ------------------------------------------------------------------------------- what a kernel says


@each
def test_a_kernel_says_what_it_is(system, kernel):
    assert system.VARIANTS[kernel.name] is kernel
    assert kernel.idea and "\n" not in kernel.idea + kernel.prediction
    assert kernel.published or kernel.prediction or kernel is next(iter(system.VARIANTS.values()))
    assert kernel.source.is_file() and kernel.source.parent == Path(system.__file__).parent
    assert set(kernel.targets) <= set(jit.TARGETS) and len(set(kernel.entries)) == len(kernel.entries)
    text = jit.with_includes(kernel.source)
    for entry in kernel.entries:
        assert re.search(rf"\b{entry.split('<')[0]}\(", text), f"{entry} is not in {kernel.source.name}"


@systems
def test_no_source_is_left_over(system):
    folder = Path(system.__file__).parent
    used = {kernel.source for kernel in system.VARIANTS.values()}
    named = "".join(path.read_text() for path in folder.glob("*.py"))  # whole, or as the part after a prefix
    assert [
        x
        for x in [x.stem for x in folder.glob("*.cu") if x not in used]
        if not re.search(rf"\b({x}|{x.partition('_')[2] or x})\b", named)
    ] == []


# ---------------------------------------------------------------------------- what the compiler makes


def entries(kernel, target: str) -> tuple[str, ...]:
    """Of each template the one with the largest numbers, for Hopper the first and the last, too: the rest differ in
    sizes."""
    if target not in kernel.targets:
        return ()
    size = {entry: math.prod(map(int, re.findall(r"\b\d+\b", entry))) for entry in kernel.entries}
    named = {entry.split("<")[0]: [x for x in size if x.split("<")[0] == entry.split("<")[0]] for entry in size}
    ends = (0, -1) if target == "sm_90a" else ()
    return tuple(x for same in named.values() for x in {*(same[i] for i in ends), max(same, key=size.__getitem__)})


@pytest.fixture
def reports(system, target):
    return Reports(
        cubins(
            sorted(
                {(kernel.source, entry) for kernel in system.VARIANTS.values() for entry in entries(kernel, target)}
            ),
            [target],
        )
    )


def threads_of(cubin: jit.Cubin) -> int:
    """Of a block at most, as the kernel's __launch_bounds__ say; 0 where they do not."""
    most = [
        struct.unpack_from("<3I", cubin.code, at)
        for which, at in jit._attributes(cubin, f".nv.info.{cubin.symbol}")
        if which == jit._MOST_THREADS
    ]
    return math.prod(most[0]) if most else 0


@systems
@pytest.mark.parametrize("target", jit.TARGETS)
def test_entries_compile_spill_as_declared_and_find_their_registers(reports, system, target):
    """What does not hold is asked of kernels compiled anew, since a compilation now and then comes out otherwise."""
    spilling = {e for kernel in system.VARIANTS.values() if not kernel.spill_free for e in kernel.entries}

    def wrong(made) -> dict:
        return {
            key: cubin
            for key, cubin in made.cubins.items()
            if (made[key][0].spills and key[0] not in spilling)
            or not made[key][1]["EXIT"]
            or threads_of(cubin) * math.ceil(made[key][0].registers / 8) * 8 > 65536
        }

    again = Reports(wrong(reports)).anew()
    assert {key: again[key][0] for key in wrong(again)} == {}


# ------------------------------------------------------------------------- problems and workloads


@systems
def test_workloads_are_valid_problems_and_quick_ones_are_few(system):
    full, kick = system.sweeps("full"), system.sweeps("kick")
    assert list(full) == list(kick)
    for name, shapes in full.items():
        assert 0 < len(kick[name]) <= len(shapes)
        for shape in (*shapes, *kick[name]):
            p = system.problem(**shape)
            assert (p.m, p.n, p.k) == (shape["m"], shape["n"], shape["k"]), shape
            assert p.room == system.__name__.rpartition(".")[2] and p.flops_def
            assert 0 < p.useful_flops <= 2 * p.m * p.n * p.k and p.nnz > 0 and 0 < p.density <= 1
            assert 0 < p.least_bytes and 0 < p.requested_bytes
    says(["preset", "'fulll'"], lambda: system.sweeps("fulll"))


@systems
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in "mnk" for value in (-1, 0.5, 2**31, "8")),
        *(("density", value) for value in (-0.1, 1.5, math.nan)),
        *(("seed", value) for value in (-1, 2**32, 0.5)),
    ],
)
def test_what_makes_no_problem_is_refused_in_a_sentence(system, name, value):
    shape = {"m": 512, "n": 512, "k": 512, "seed": 0} | dict(options(system)[0])
    says([str(value)], lambda: system.problem(**shape | {name: value}))


@systems
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_problem_is_what_its_sizes_and_its_seed_say(system, data):
    recipe = data.draw(recipes(system))
    try:
        p, same, other = (recipe.problem(seed) for seed in (3, 3, 4))
    except ValueError as error:
        assert is_one_sentence(error)
        return
    one, two, three = (operands_of(x) for x in (p, same, other))
    for mine, likewise, shape in zip(one, two, ((p.m, p.k), (p.k, p.n)), strict=True):
        assert mine.shape == shape and np.array_equal(mine, likewise)
    assert p.m * p.k * p.n < 1000 or any(not np.array_equal(x, y) for x, y in zip(one, three, strict=True))
    host = p.host()
    assert np.count_nonzero(formats.to_dense(host.a if formats.is_sparse(host.a) else host.b)) <= p.nnz
    assert formats.is_sparse(host.a) != formats.is_sparse(host.b)


#: System, problem, checksum of its operands.
BITS = (
    ("casper_sparse", {"m": 4, "n": 3, "k": 100, "density": 0.04}, 1891166503),
    ("nm_cuda_core", {"m": 4, "n": 3, "k": 8, "vector": 2}, 448783606),
    ("nm_spmm", {"m": 2, "n": 3, "k": 6, "density": 0.5, "group": 4, "vector": 2}, 111707824),
    ("nm_spmm", {"m": 2, "n": 3, "k": 6, "density": 0.5, "group": 4, "vector": 2, "dtype": "tf32"}, 509792508),
    ("nm_spmm", {"m": 2, "n": 3, "k": 6, "density": 0.5, "group": 4, "vector": 2, "dtype": "bfloat16"}, 530928751),
    ("tensor_core_24", {"m": 2, "n": 3, "k": 18}, 1225142930),
    ("tensor_core_24", {"m": 2, "n": 3, "k": 18, "dtype": "float16"}, 2571972510),
    ("tensor_core_24.fp8", {"m": 2, "n": 3, "k": 18}, 1459601266),
    ("async_sparse", {"m": 70, "n": 3, "k": 66, "density": 0.5}, 3398527029),
    ("async_sparse", {"m": 70, "n": 3, "k": 66, "density": 0.5, "dtype": "tf32"}, 1603902297),
)


@pytest.mark.parametrize(("name", "shape", "bits"), BITS)
def test_the_bits_of_operands_never_change(name, shape, bits):
    """The shipped records name a seed; another generator would make them of other matrices."""
    host = importlib.import_module(f"kernels.{name}").problem(**shape, seed=7).host()
    parts = [x for of in (host.a, host.b) for x in (vars(of).values() if formats.is_sparse(of) else [array_of(of)])]
    assert crc32(b"".join([x.tobytes() for x in parts if isinstance(x, np.ndarray)])) == bits


def operands_of(problem) -> list[np.ndarray]:
    """A and B, dense."""
    host = problem.host()
    return [formats.to_dense(x) if formats.is_sparse(x) else array_of(x) for x in (host.a, host.b)]


def is_one_sentence(error: Exception) -> bool:
    return "\n" not in str(error) and ". " not in str(error)


@pytest.mark.parametrize(("system", "kernel"), UNTUNED)
def test_prepare_refuses_a_gpu_that_the_kernel_is_not_for(pretended, monkeypatch, system, kernel):
    device = pretended(A100)
    monkeypatch.setattr(jit, "run_on_cupy_stream", lambda *_: None)
    if "sm_80" not in kernel.targets:
        for recipe in typical(system):
            says([], lambda recipe=recipe: system.prepare(kernel.name, recipe.problem(), device))
    says(["no variant", "'fast'"], lambda: system.prepare("fast", typical(system)[0].problem(), device))


# ---------------------------------------------------------------------------------------- on a GPU


def bound_by(system, kernel, device, recipe, seed: int = 0, exact: bool = True):
    """(ready kernel, the problem's product in float64); None where the kernel takes no such problem, in a sentence.

    exact: on whole numbers, whose product is the same in every order of sums."""
    if dict(recipe.options).get("dtype") == "float32" and any("TF32" in entry for entry in kernel.entries):
        return None  # it would take them, cut to TF32
    try:
        p = recipe.problem(seed)
        p = probe.exact(p) if exact else p
        return system.prepare(kernel.name, p, device), p, verification.oracle(p)
    except ValueError as error:
        assert is_one_sentence(error), error
        return None


def typically(system, kernel, device, seeds=(0,), exact: bool = True):
    """`bound_by` for each seed on the first problem that the kernel takes."""
    for recipe in typical(system):
        if found := bound_by(system, kernel, device, recipe, seeds[0], exact):
            return [found, *(bound_by(system, kernel, device, recipe, seed, exact) for seed in seeds[1:])]
    pytest.skip("not for this GPU, or for none of these problems")


@pytest.mark.gpu
@systems
def test_host_and_device_make_the_same_operands(device, system):
    for recipe in typical(system):
        try:
            p = recipe.problem(5)
        except ValueError:  # of these sizes
            continue
        for here, there in zip(*((x.a, x.b) for x in (p.host(), p.device())), strict=True):
            here, there = (vars(x) if formats.is_sparse(x) else {"": array_of(x)} for x in (here, there))
            for name in (x for x, value in here.items() if isinstance(value, np.ndarray)):
                assert np.array_equal(here[name], formats.to_host(there[name])), f"{name} of {recipe}"
        assert array_of(p.device().c).shape == (p.m, p.n)


@pytest.mark.gpu
@pytest.mark.parametrize(("system", "kernel"), UNTUNED)
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_products_are_exact_at_odd_sizes(device, system, kernel, data):
    """Poisoned before: an element left unwritten is wrong; twice, since launches must not add up."""
    found = bound_by(system, kernel, device, data.draw(recipes(system)))
    if found:
        stream = device.create_stream()
        for _ in range(2):
            verification.exactly(*found, stream)


@pytest.mark.gpu
@pytest.mark.parametrize(("system", "kernel"), VARIANTS)
def test_launches_repeat_their_bits_and_can_be_captured(device, monkeypatch, tmp_path, system, kernel):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))
    ((bound, p, reference),) = typically(system, kernel, device, exact=False)
    stream = device.create_stream()
    verification.check(bound, p, reference, stream)
    first = launched(bound, device)
    graph = bench.capture(bound.name, bound, stream)
    verification.check(bound, p, reference, stream, launch=lambda: graph.launch(stream))
    if not adds_in_any_order(kernel):
        assert all(np.array_equal(launched(bound, device), first) for _ in range(5))
    assert bound.name == kernel.name and bound.prepare_ms >= 0 and bound.prepare_bytes >= 0


@pytest.mark.gpu
@pytest.mark.parametrize(("system", "kernel"), UNTUNED)
def test_two_streams_do_not_disturb_each_other(device, system, kernel):
    """Two products of different operands at the same time."""
    both = typically(system, kernel, device, seeds=(1, 2))
    streams = [device.create_stream() for _ in both]
    for bound, *_ in both:
        bound.result().fill(math.nan)
    device.sync()
    for _ in range(3):
        for (bound, *_), stream in zip(both, streams, strict=True):
            bound.launch(stream)
    for stream in streams:
        stream.sync()
    for bound, p, reference in both:
        verification.compare(bound.result(), reference, bound.name, p.limit)
