"""What bind asks of a GPU: a launch that covers C, of a kernel whose numbers are those of the layout that it reads."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from nm_cases import DTYPES, FLOAT32, PATTERNS, SIZE
from pretend import arguments, there
from racing import A100, H200
from refused import says

from kernels import contract, nm_spmm as system
from kernels.contract import Operands
from kernels.formats import nm
from kernels.nm_spmm import family, launch, operands, published, tensor
from kernels.nm_spmm.family import RUNGS, TRIALS, Config
from kernels.nm_spmm.packing import Packed

MOST = H200.properties.max_shared_memory_per_block_optin
OPENED = settings(
    deadline=None, max_examples=25, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def here(pretended, monkeypatch):
    """A function: numbers of a GPU -> that GPU, without being there; preparation takes 1.25 ms."""
    for module in (contract, launch, published, tensor):
        monkeypatch.setattr(module, "timed", lambda work: (work(), 1.25))

    def opened(gpu=H200, **properties):
        device = pretended(gpu)
        device.properties = SimpleNamespace(**vars(gpu.properties) | {"clock_rate": 1_980_000} | properties)
        return device

    return opened


def template(kernel: str) -> SimpleNamespace:
    """Template arguments of "stem: entry" by their names in the source."""
    stem, name, given = re.fullmatch(r"(\w+): (\w+)<(.*)>", kernel).groups()
    source = (family.HERE / f"{stem}.cu").read_text()
    (names,) = re.findall(rf"^template <([^>]*)>\n__global__[^{{]*\b{name}\(", source, re.MULTILINE)
    read = {"int": int, "bool": {"false": False, "true": True}.__getitem__}
    kinds = [x.split() for x in names.split(",")]
    return SimpleNamespace(**{n: read[kind](x) for (kind, n), x in zip(kinds, given.split(", "), strict=True)})


@pytest.mark.parametrize("variant", [x for x in FLOAT32 if x != "v3_searched"] + list(TRIALS))
@OPENED
@given(m=SIZE, n=SIZE.filter(lambda n: n > 1), k=SIZE.filter(lambda k: k > 1), pattern=st.sampled_from(PATTERNS))
def test_a_launch_covers_c_with_blocks_of_what_is_laid_out(here, variant, m, n, k, pattern):
    device, (keep, group, vector) = here(), pattern
    if variant == published.VW32:  # takes no others
        m, n = (math.ceil(x / 32) * 32 for x in (m, n))
    p = there(system.problem(m, n, k, keep / group, group=group, vector=vector))
    try:
        bound = (launch.prepare_rung if variant in TRIALS else system.prepare)(variant, p, device)
    except ValueError as error:
        assert ("use v3" if variant == published.VW32 else "fewer stages") in str(error), error
        return
    ops, (*before, (kernel, config, given_)) = p.device(), bound.steps
    t, of, (stem, entry) = template(kernel), arguments(family.HERE, kernel, given_), kernel.split(": ")
    assert bound.prepare_ms == 1.25 and bound.result() is ops.c and bound.name == variant
    if vector % 32 == 0 and m % 4 == 0 and group == 32 and variant not in TRIALS:
        declared = {e for x in system.VARIANTS.values() for e in x.entries}
        assert entry in declared or keep not in published.KEPT, "compiled ahead"
    assert bool(before) == (m % 4 != 0 and variant != published.VW32), "rows of A begin at multiples of 16 bytes"
    grid = config.grid if isinstance(config.grid, tuple) else (config.grid,)
    if variant == published.VW32:
        rows, (_, val, index) = int(np.float32(t.BK) * (np.float32(1) - of.pop("sparsity"))), bound.keep
        deep = math.ceil(k / t.BK)
        assert rows == t.BK * keep / group and t.BK == (128 if 2 * keep == group else 256)
        assert (grid, config.block, config.shmem_size) == ((m // 32, n // 32), 64, 4 * 64 * rows)
        assert val.shape == index.shape == (deep * rows, n) and not val[ops.b.w :].any() and index.max() < k
        assert np.array_equal(val[: ops.b.w], ops.b.val)
        assert np.array_equal(index[: ops.b.w], nm.per_column_index(ops.b))
        matrices = {"A": ops.a, "val": val, "index": index, "C": ops.c}
        assert of == {"m": m, "n": n, "k": deep * t.BK} | {name: x.data.ptr for name, x in matrices.items()}
        assert bound.prepare_bytes == index.nbytes + (deep * rows > ops.b.w) * val.nbytes
        return
    packed, a, steps = bound.keep[1], bound.keep[2], math.ceil(k / t.DEPTH)
    if variant not in published.KERNELS:
        val, index = packed
        packed = Packed(t.ROWS, t.DEPTH, steps, t.BN, t.SLOT, math.ceil(n / t.BN), val, index)
        assert val.shape == (packed.blocks, steps, t.ROWS, t.BN)
        assert index.shape == (packed.blocks, steps, t.BN // t.SLOT, t.ROWS)
    assert (packed.rows, packed.depth, packed.slot, packed.columns) == (t.ROWS, t.DEPTH, t.SLOT, t.BN)
    assert packed.steps == steps and t.SLOT == (32 if vector % 32 == 0 or vector >= n else 4)
    assert t.DEPTH % group == 0 and 0 <= t.ROWS - t.DEPTH // group * keep < 4
    assert config.block == t.BM * t.BN // (t.TM * t.TN) and config.shmem_size <= MOST
    tiles, pitched = (math.ceil(m / t.BM), math.ceil(n / t.BN)), a.shape[1] if before else m
    assert pitched >= m and pitched % 4 == 0
    wanted = {"m": m, "n": n, "k": k, "lda": pitched, "steps": steps, "A": a.data.ptr, "C": ops.c.data.ptr}
    wanted |= {"val": packed.val.data.ptr, "index": packed.index.data.ptr}
    floats = t.ROWS * t.BN + t.BN // t.SLOT * t.ROWS
    if variant in published.KERNELS:
        split = min(4, steps, math.ceil(2 * 132 / math.prod(tiles))) if variant == "v3_split_k" else 1
        assert grid == (*tiles[::-1], split) and bound.accumulates == (split > 1), "two blocks for each multiprocessor"
        capacity, lists = (
            int(packed.count.max()) if packed.packed else t.DEPTH,
            packed.packed and packed.col_info.data.ptr,
        )
        assert of == wanted | ({} if stem == "v1" else {"capacity": capacity, "col_info": lists})
        floats += capacity * t.BM + t.DEPTH * packed.packed
        whole = stem == "v3" and -(t.BN // t.SLOT * t.ROWS) % 4  # the index, to 16 bytes
        assert config.shmem_size == 4 * (floats + whole) * (2 if stem == "v3" else 1)
        assert t.VECTOR == (m % 4 == 0) and packed.packed == (stem == "v2" or getattr(t, "PACKED", False))
        copied = packed.val.nbytes * (packed.val is not ops.b.val)
        assert bound.prepare_bytes == packed.index.nbytes + packed.col_info_bytes + copied
        return
    assert not bound.accumulates and bound.prepare_bytes == val.nbytes + index.nbytes
    assert t.ALIGNED == (m % 4 == 0) and of.pop("alpha") == 1
    floats += t.DEPTH * t.BM
    floats = t.STAGES * (floats if stem == "wide" else math.ceil(floats / 32) * 32)
    assert config.shmem_size == 4 * max(floats, t.BM * t.BN * (stem == "cluster"))
    assert t.BLOCKS * (config.shmem_size + 1024) <= MOST + 1024, "as many blocks an SM as its registers allow"
    assert grid == tiles or stem == "stream"
    assert getattr(config, "cluster", None) == ((1, 1, t.SPLIT) if stem == "cluster" else None)
    if stem != "wide":
        box = of["A"]
        assert (box.shape, box.box) == ((k, m), (t.DEPTH, t.BM))
        of |= {"A": box.address, "k": k, "lda": pitched}
    if stem == "stream":
        (table, partial, handovers), tail = bound.keep[3], of.pop("tail")
        np.testing.assert_array_equal(table, launch.parts(*tiles, steps, 132 * t.BLOCKS))
        assert grid == (len(table),) and partial.shape == (len(table), t.BM, t.BN)
        assert handovers.shape == (len(table), config.block // 32, 2) and not handovers.any()
        left = (ops.b.w - 1) % (t.DEPTH // group * keep) + 1
        assert tail % t.UNROLL == 0 and tail - t.UNROLL < left <= tail <= t.ROWS
        made = {"parts": table, "partial": partial, "handovers": handovers}
        wanted |= {"most": table.shape[1]} | {name: x.data.ptr for name, x in made.items()}
        assert set(map(id, bound.scratch)) >= {id(partial), id(handovers)}
    assert of == wanted


@pytest.mark.parametrize("variant", DTYPES)
@OPENED
@given(m=SIZE, n=SIZE.filter(lambda n: n > 1), k=SIZE.filter(lambda k: k > 1), pattern=st.sampled_from(PATTERNS))
def test_tensor_cores_share_tiles_among_all_multiprocessors(here, variant, m, n, k, pattern):
    device, (keep, group, vector) = here(), pattern
    p = there(system.problem(m, n, k, keep / group, group=group, vector=vector, dtype=DTYPES[variant]))
    bound = system.prepare(variant, p, device)
    along = math.ceil(m / 256), math.ceil(n / 128)
    kernels = [kernel for kernel, *_ in bound.steps]
    at = next(i for i, x in enumerate(kernels) if x.startswith(variant))
    _, config, given_ = bound.steps[at]
    assert config.grid == min(132, math.prod(along)) and config.block == 384
    assert config.shmem_size <= 227 * 1024 - 1024 and config.shmem_size == tensor.SHARED[variant]
    assert kernels[at].endswith({"bf16": ">", "tf32": f"{str(m % 4 == 0).lower()}>"}[variant])
    (start, index, values), a = bound.keep[1], bound.keep[2]
    of, unit = arguments(family.HERE, kernels[at], given_), 8 if variant == "bf16" else 4
    matrices = {"a": a, "start": start, "index": index, "values": values}
    wanted = {"along_m": along[0], "along_n": along[1], "band": min(16, along[1]), "lda": a.shape[1] if at else m}
    assert (wanted | {name: x.data.ptr for name, x in matrices.items()}).items() <= of.items()
    assert m <= of["lda"] and of["lda"] % unit == 0 and bound.prepare_bytes == sum(x.nbytes for x in bound.keep[1])
    whole = p.device().c if variant == "tf32" else p.device().c.bits
    assert getattr(of["c"], "address", of["c"]) == whole.data.ptr or bound.scratch[-1].data.ptr == of["c"].address
    copies = (m % unit != 0) * (1 + (variant == "bf16"))
    assert len(bound.steps) == 1 + copies and len(bound.scratch) == copies


@pytest.mark.parametrize(("sms", "blocks"), [(3, 1), (2, 2), (64, 1), (6, 1)])
def test_a_stream_has_a_list_and_a_place_for_each_block(here, sms, blocks):
    """6 tiles of 8 steps: on 3, 4 and 6 blocks, or as many as there is work for."""
    device = here(multiprocessor_count=sms)
    p = there(operands.problem(260, 500, 497, 0.375))
    bound = launch.prepare_config("some", p, device, replace(RUNGS["stream"][0], blocks=blocks, stages=2))
    assert bound.steps[-1][1].grid == len(bound.keep[3][0]) == min(sms * blocks, 6 * 8 // 3)


@pytest.mark.parametrize("k", [32, 64, 100, 512])
def test_the_search_is_among_the_authors_tiles_and_shares_and_keeps_the_fastest(here, monkeypatch, k):
    """Four tiles, and 1, 2, 4 and 8 shares of k where blocks are few and there are as many steps."""
    device, p, steps = here(), there(operands.problem(64, 128, k, 0.5)), math.ceil(k / 32)
    few = published.candidates(p, 132)
    assert set(few) == {(x, s) for x in published.TILES for s in (1, 2, 4, 8) if s <= steps}
    many = published.candidates(there(operands.problem(512, 512, 512, 0.5)), 6)
    assert {tile for tile, split in many if split > 1} == {"large"}, "32 blocks for 6 SMs, the others 64 and more"

    def tune(problem, configs, prepare, references, device, rounds, jobs):
        assert list(configs) == few and references[0](problem).name == "v1"
        assert {entry for _, entry in jobs} <= set(published.KERNELS["v3_searched"].entries)
        return SimpleNamespace(bound=prepare(problem, configs[-1]), spent_ms=10.0)

    monkeypatch.setattr(published.autotune, "tune", tune)
    bound = published.prepare("v3_searched", p, device)
    (name, split), config = few[-1], bound.steps[-1][1]
    tile = published.TILES[name]
    assert config.grid == (math.ceil(128 / tile.columns), math.ceil(64 / tile.rows), split)
    assert bound.accumulates == (split > 1) and bound.prepare_ms == 11.25 and bound.name == "v3_searched"


@given(st.integers(1, 128), st.integers(1, 128), st.booleans())
def test_steps_of_any_pattern_are_about_as_deep_as_the_authors(keep, group, packed):
    found = published.windows(min(keep, group), group, packed)
    deep = 64 if packed else 32
    assert found == 1 or found * group <= deep
    assert group > 16 or 4 * found * group > deep
    assert group not in (4, 8) or found * min(keep, group) % 4 == 0, "whole reads of 16 bytes"


def test_packing_begins_above_70_percent_unless_the_variant_says():
    for keep in published.KEPT:
        for variant in published.KERNELS:
            packed = {"v1": False, "v3_unpacked": False, "v3_packed": True}.get(variant, 1 - keep / 32 > 0.7)
            assert published.configured(variant, "large", keep, 32).packed == packed
            stem = published.source_of(variant, packed)
            assert stem == ("v3" if variant not in ("v1", "v2") else "v1" if not packed else variant)


@pytest.mark.parametrize(
    ("variant", "sizes", "given", "words"),
    [
        *((x, (64, 64, 64), {"vector": 6}, ["vectors of 6 columns"]) for x in ("v1", "v3_searched")),
        ("bulk", (64, 64, 64), {"vector": 33}, ["vectors of 33 columns", "use nm_cuda_core.element_wise"]),
        ("bulk", (64, 64, 64), {"dtype": "bfloat16"}, ["bulk multiplies float32 by N:M, not bfloat16"]),
        ("wide", (64, 64, 1024), {"density": 0.25, "group": 512}, ["step of 128:512 needs 512 rows of A"]),
        ("tf32", (64, 64, 64), {}, ["tf32 would lose digits"]),
        ("tf32", (64, 64, 64), {"dtype": "bfloat16"}, ["tf32 multiplies float32 arrays, but A is a Half"]),
        ("bf16", (64, 64, 64), {"dtype": "tf32"}, ["bf16 multiplies bfloat16, but A has another"]),
        ("v3", (32, 32, 2048), {"group": 2048}, ["v3 stages a window of 1024:2048 at once", "smaller group"]),
        *((published.VW32, sizes, {}, [word]) for sizes, word in (((33, 64, 64), "m"), ((64, 48, 64), "n"))),
        (published.VW32, (32, 64, 64), {"vector": 48}, ["among 48 columns"]),
        (published.VW32, (32, 64, 60), {"density": 1 / 6, "group": 6}, ["256 rows of B", "1:6"]),
        ("v4", (32, 32, 32), {}, ["no variant 'v4': choose one of v1, v2"]),
        ("body_4", (32, 32, 32), {}, ["no variant 'body_4'"]),
    ],
)
def test_what_is_not_taken_is_one_sentence(here, variant, sizes, given, words):
    device, p = here(), there(operands.problem(*sizes, **({"density": 0.5} | given)))
    says(words, lambda: system.prepare(variant, p, device))


def test_too_large_a_grid_and_too_many_elements_are_refused(here):
    """The sizes are looked at before anything is copied; C alone has 2^31 elements."""
    device = here()
    b = nm.random(32, 32, 16, 32, 2**15, 0)
    b = replace(b, n=2**15, val=np.broadcast_to(b.val[:, :1], (16, 2**15)))
    p = replace(operands.problem(2**16, 2**15, 32), make_device=lambda: Operands(None, b, None))
    says(["counts elements in 32 bits", "2147483648"], lambda: published.prepare(published.VW32, p, device))
    p = replace(there(operands.problem(64, 64, 32)), m=2**22)
    says(["more than 65535: multiply in several row ranges"], lambda: published.prepare("small", p, device))
    for name in ("ahead", "turned", *DTYPES):
        p = there(operands.problem(64, 64, 64, dtype=DTYPES.get(name, "float32")))
        says([name, "use"], lambda p=p, name=name: system.prepare(name, p, here(A100)))


@pytest.mark.parametrize(
    ("config", "pattern", "words"),
    [
        (Config(), (200, 300, 32), ["200:300 needs 300 rows of A", "smaller windows"]),
        *((Config(x, stages=2), (16, 32, 32), [f"{x} with ahead=True has 2 stages"]) for x in ("bulk", "cluster")),
        *((Config(x, stages=1, ahead=False), (16, 32, 32), ["1 stages, but needs 2"]) for x in ("wide", "stream")),
        (Config(stages=5), (32, 32, 32), ["bulk with 128 x 256 tiles and 5 stages of 32:32 needs"]),
        (Config("gone"), (16, 32, 32), ["kernel is 'gone'"]),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_sentence(config, pattern, words):
    says(words, lambda: family.check(config, *pattern, MOST))
    for kernel in family.SOURCES:
        family.check(Config(kernel, stages=2, ahead=False), 16, 32, 32, MOST)
