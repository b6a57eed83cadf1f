"""What the compiler makes of the kernels, and on a GPU their products: at any size, pattern and stream."""

import itertools
import math
from contextlib import suppress
from dataclasses import replace

import compiled
import numpy as np
import pytest
from compiled import count
from nm_cases import DTYPES, FLOAT32, PATTERNS, point
from products import between, exact, overlapped
from test_spmm_prepare import template

from artifact.measure import verification
from kernels import jit, nm_spmm as system
from kernels.autotune import probe
from kernels.nm_spmm import banks, family, launch, published, tensor
from kernels.nm_spmm.family import RUNGS, TRIALS

gpu = pytest.mark.gpu
STREAMS = tuple(name for name, (config, *_) in RUNGS.items() if config.kernel == "stream")
SOURCES = {(x.source, entry) for x in system.VARIANTS.values() for entry in x.entries[:: max(1, len(x.entries) - 1)]}


@pytest.fixture(scope="module")
def reports():
    """For the target of the records; the contract of all systems compiles the others."""
    return compiled.reports(compiled.cubins(sorted(SOURCES), ["sm_90a"]))


def test_every_multiply_add_and_every_wide_access_is_there(reports):
    """TM x TN FFMA for each row of the loop's body, which is a whole step where nothing else is said; the compiler may
    peel off one, and the last step of v3 has a copy of its own. C leaves 16 bytes at a time, shared memory too."""
    for (entry, target), (_, mix) in reports.items():
        name = entry.split("<")[0]
        if name in ("nmsparse", *DTYPES):
            continue
        t = template(f"{name}: {entry}")
        a_row, body = t.TM * t.TN, getattr(t, "UNROLL", t.ROWS)
        least = (2 if name == "v3" else 1) * a_row * body
        assert count(mix, "FFMA") in range(least, 2 * least + 1, a_row * body), f"{entry} on {target}"
        add, whole = getattr(t, "ADD", False), getattr(t, "VECTOR", getattr(t, "ALIGNED", True))
        if name != "cluster":
            assert count(mix, "STG", 128) == a_row // 4 * (whole and not add), f"{entry} on {target}"
        assert name[0] != "v" or bool(sum(count(mix, op) for op in ("RED", "REDG", "ATOMG"))) == add, (
            f"{entry} on {target}"
        )
        assert count(mix, "LDG", 128) == a_row // 4 or name != "stream", "what others left in the workspace"
        assert bool(count(mix, "LDGSTS")) == (name in ("v3", "wide")), f"{entry} on {target}"
        engine = any(op.startswith(("UTMALDG", "UBLKCP")) for op in mix)
        assert engine == (name in ("bulk", "stream", "cluster")), f"{entry} on {target}"
        assert count(mix, "LDS") == count(mix, "LDS", 128) or name.startswith("v"), f"{entry} on {target}"


@pytest.mark.parametrize(("keep", "group"), [(16, 32), (4, 32)])
@pytest.mark.parametrize("name", STREAMS)
def test_a_loop_of_eight_rows_fits_the_instruction_cache(name, keep, group):
    """An instruction is 16 bytes and the cache of an SM's quarter is taken to hold 32 KB: a whole step fits at 87.5%
    alone, where it is 8 rows. 6.25 loads a row, and about a hundred instructions where a step ends."""
    config = RUNGS[name][0]
    (cubin,) = compiled.cubins(
        [(family.SOURCES[config.kernel], family.entry(config, keep, group))], ["sm_90a"]
    ).values()
    code, body = banks.loop(jit.disassemble(cubin)), family.unrolled(config, keep, group)
    multiply, every = banks.conflicts(code)["ffma"], banks.instructions(code)
    assert multiply == body * config.tm * config.tn and every <= body * (config.tm * config.tn + 8) + 150
    assert (16 * every < 20_000) == (body <= 8) and multiply / every > 0.84


@compiled.exact
def test_loops_are_as_long_as_in_the_machine_code_of_the_authors_kernel(reports):
    """nmSPARSE, compiled here, has as many loads, stores and multiply-adds. Loops of four rows and two."""
    _, mix = reports[published.NMSPARSE[published.VW32].entries[0], "sm_90a"]
    widths = (("FFMA", None), ("FMUL", None), ("LDS", 128), ("LDG", 32), ("LDG", 128), ("STS", 128), ("STG", 32))
    assert [count(mix, *of) for of in widths] == [48, 1, 6, 7, 14, 14, 16]


def test_tensor_cores_wait_for_every_step_and_not_for_every_instruction(reports):
    for variant, per_step in (("tf32", 8), ("bf16", 4)):
        for entry in tensor.KERNELS[variant].entries:
            _, mix = reports[entry, "sm_90a"]
            assert count(mix, "LDGSTS") == 16, "copies of 16 bytes that a producer makes in a step"
            waits = sum(number for name, number in mix.items() if name.startswith("WARPGROUP.DEPBAR"))
            assert count(mix, "HGMMA") >= per_step * (waits - 1) > 0


# ------------------------------------------------------------------------------------- on a GPU

#: m, n, k: below a tile and a step, around their edges, of many tiles; each pattern meets several.
SHAPES = ((1, 1, 1), (64, 96, 257), (128, 256, 512), (259, 130, 65), (132, 300, 131), (512, 512, 1024), (640, 1030, 96))
#: The rungs that each have kernels of their own: wide is banks, bulk is ahead and stream is rolled otherwise.
OWN = ("v1", "v2", "v3_packed", "v3_split_k", "square", published.VW32, "banks", "ahead", "turned", "cluster")


def prepare(variant: str, p, device):
    return (launch.prepare_rung if variant in TRIALS else system.prepare)(variant, p, device)


@gpu
@pytest.mark.parametrize("variant", [*FLOAT32, *TRIALS])
def test_products_are_exact(device, variant):
    """Of the variants with kernels of their own for half of all pairs of a pattern and a size, of others for fewer."""
    taken = 0
    for i, pattern in enumerate(PATTERNS):
        for j, sizes in enumerate(SHAPES):
            if (i + j) % (2 if variant in OWN else 4) == 0:
                with suppress(ValueError):  # looked at where bind is
                    exact(point(*sizes, *pattern), lambda p: prepare(variant, p, device), device)
                    taken += 1
    assert taken >= 2 or jit.arch_of(device) != "sm_90a"


@gpu
@pytest.mark.parametrize("variant", [*OWN, "stream"])
def test_nothing_beside_c_is_written(hopper, variant):
    p = probe.exact(point(96, 64, 100, 4))
    whole, c = between(p.device().c)
    ops, before = replace(p.device(), c=c), whole.copy()
    inside = replace(p, make_device=lambda: ops, _device=None)
    verification.exactly(prepare(variant, inside, hopper), inside, verification.oracle(p), hopper.create_stream())
    begin = (c.data.ptr - whole.data.ptr) // 4
    for part in (slice(0, begin), slice(begin + c.size, None)):
        assert bool((whole[part].view(np.uint32) == before[part].view(np.uint32)).all())


@gpu
@pytest.mark.parametrize("split", published.SPLITS)
def test_every_tile_in_every_number_of_shares(device, split):
    for name in published.TILES:
        exact(
            point(67, 130, 1025), lambda p, x=name: published.prepare_tile("v3_searched", p, device, x, split), device
        )


@gpu
@pytest.mark.parametrize("split", [2, 4, 8])
def test_shares_of_a_cluster_without_steps(hopper, split):
    """k of fewer steps than blocks: the others add zeros. Small tiles, and large ones in a loop."""
    for k, name in itertools.product((1, 33, 1000), ("cluster", "turned")):
        config = replace(RUNGS[name][0], kernel="cluster", split=split)
        exact(point(70, 100, k, 8), lambda p, c=config: launch.prepare_config("cluster", p, hopper, c), hopper)


@gpu
@pytest.mark.parametrize("vector", [32, 48, 128, 256])
@pytest.mark.parametrize("variant", DTYPES)
def test_the_check_of_every_record_holds_on_tensor_cores(hopper, variant, vector):
    """The last has more tiles than an H200 has multiprocessors, in no whole waves."""
    stream, dtype = hopper.create_stream(), DTYPES[variant]
    for m, n, k in (*SHAPES, (4001, 2500, 256)):
        p = point(m, n, k, 8, vector=vector, dtype=dtype)
        verification.check(tensor.prepare(variant, p, hopper), p, verification.oracle(p), stream)


#: m, n, k on so many multiprocessors, in tiles of 128 x 256 and steps of 64.
STREAMED = {
    "a step in all": lambda sms: (100, 200, 50),
    "eight tiles": lambda sms: (512, 512, 4096),
    "one tile less than blocks": lambda sms: (128 * (sms - 1), 256, 320),
    "one tile more": lambda sms: (128 * (sms + 1), 256, 320),
    "two waves and a tile, ragged": lambda sms: (128 * (2 * sms + 1) - 3, 250, 333),
}


@gpu
@pytest.mark.parametrize("size", STREAMED)
@pytest.mark.parametrize("name", ["stream", "turned"])
def test_a_stream_reads_only_what_it_has_written(hopper, name, size):
    """Before each launch C and the workspace are full of NaN; sums are taken as often as they are left."""
    p = probe.exact(point(*STREAMED[size](hopper.properties.multiprocessor_count), 8))
    bound, reference, stream = launch.prepare_rung(name, p, hopper), verification.oracle(p), hopper.create_stream()
    _, partial, handovers = bound.keep[3]
    for i in range(1, 6):
        partial.fill(math.nan)
        verification.exactly(bound, p, reference, stream)
        counts = handovers.get()
        assert np.array_equal(counts[..., 0], counts[..., 1]) and set(np.unique(counts)) <= {0, i}


@gpu
@pytest.mark.parametrize("first", [0, 2**32 - 3])
def test_streams_overlap(hopper, first):
    """first: counts that are about to pass 2^32 as well."""
    sms = hopper.properties.multiprocessor_count
    # Tiles that many blocks share, and two launches that fit the GPU at once; then all blocks and more than a wave.
    for m, n, k in ((512, 512, 4096), (128, 256, 640), (128 * (sms + 1), 256, 320)):
        p = probe.exact(point(m, n, k, 8))
        bound, reference = launch.prepare_rung("turned", p, hopper), verification.oracle(p)
        overlapped(bound, hopper, reference, first)
        verification.exactly(bound, p, reference, hopper.create_stream())


# ------------------------------------------------------------------------------- wrong on purpose

#: A bug -> the file where it would be, the text there, the text instead, a variant that has it.
MUTANTS = {
    "next_row_of_b": ("fragments.cuh", "b + (q + s + 1) * T::BN", "b + (q + s) * T::BN", "banks"),
    "indices_of_the_first_rows": ("fragments.cuh", "now = next", "now = now", "wide"),
    "last_column_lost": ("sums.cuh", "column < n &&", "column + 1 < n &&", "bulk"),
    "step_before_again": ("ring.cuh", "copy(where(step - 1 +", "copy(where(step - 2 +", "ahead"),
    "rows_of_the_body_before": ("fragments.cuh", "const int q = u + v;", "const int q = v;", "turned"),
    "step_of_another_part": ("stream.cu", "p->first + position - p->start", "position - p->start", "rolled"),
    "helper_forgotten": ("stream.cu", "= blockIdx.x - part.others;", "= blockIdx.x - part.others + 1;", "turned"),
    "head_without_its_end": ("stream.cu", "part.others < 0 ? ROWS : tail", "tail", "turned"),
    "rows_of_another_thread": ("stream.cu", "T::BM + t.m + T::DOWN * c", "T::BM + t.m + c", "rolled"),
    "share_of_rank_0_only": ("cluster.cu", "BM + down, r)", "BM + down, 0)", "cluster"),
    "cuts_lose_a_step": ("cluster.cu", "(steps + SPLIT - 1) / SPLIT", "steps / SPLIT", "cluster"),
    "scaled_by_more_than_alpha": ("sums.cuh", "acc[j][i] *= alpha", "acc[j][i] *= 1.001f", "bulk"),
    "gathers_next_row": (
        "nmsparse.cuh",
        "*(index + n0 + (i + row) * n)",
        "*(index + n0 + (i + row ^ 1) * n)",
        published.VW32,
    ),
    "loses_last_row": ("nmsparse.cuh", "row < rows; ++row", "row < rows - 1; ++row", published.VW32),
    "drops_last_step": ("nmsparse.cu", "k0 < k; k0 += BK", "k0 + BK < k; k0 += BK", published.VW32),
    "gather_not_swizzled": ("bf16.cu", "(here ^ i % 8 * 16)", "here", "bf16"),
    "left_half_twice": ("tf32.cu", "+ 512, right + r", "+ 512, left + r", "tf32"),
    "rows_8_below_swapped": ("tf32.cu", "bits(x.x, x.y, y.x, y.y)", "bits(x.y, x.x, y.y, y.x)", "tf32"),
    "rows_of_the_first_step_always": ("gather.cuh", "row = ahead, step", "row = mine[0], step", "bf16"),
    "first_column_of_c_only": ("bf16.cu", "at.row * N + 64 * group", "at.row * N", "bf16"),
}


@pytest.fixture
def mutant(monkeypatch, tmp_path):
    """mutant(bug): from now on kernels are compiled from sources with one text changed, which must be there once."""

    def change(bug: str) -> None:
        *edit, variant = MUTANTS[bug]
        compiled.changed(family.HERE, tmp_path, *edit)
        monkeypatch.setattr(
            family, "SOURCES", {kernel: tmp_path / path.name for kernel, path in family.SOURCES.items()}
        )
        for kernels in (published.NMSPARSE, tensor.KERNELS):
            for name, kernel in kernels.items():
                monkeypatch.setitem(kernels, name, replace(kernel, source=tmp_path / kernel.source.name))

    return change


def test_what_makes_a_kernel_wrong_is_in_its_source():
    compiled.are_there(family.HERE, MUTANTS.values())


@gpu
@pytest.mark.parametrize("bug", MUTANTS)
def test_a_wrong_kernel_is_caught(hopper, mutant, bug):
    """By the check of every record, on the system's own operands: 33 steps of 32, which no cut divides."""
    name = MUTANTS[bug][3]
    p = point(512, 768, 1030, 8, vector=128, dtype=DTYPES.get(name, "float32"))
    p = point(500, 777, 1030, 8) if name in RUNGS else p
    reference, stream = verification.oracle(p), hopper.create_stream()
    verification.check(system.prepare(name, p, hopper), p, reference, stream)
    mutant(bug)
    with pytest.raises(verification.WrongResult, match="is wrong: |unwritten or NaN"):
        verification.check(system.prepare(name, p, hopper), p, reference, stream)
