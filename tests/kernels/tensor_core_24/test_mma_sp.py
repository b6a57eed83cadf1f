"""mma_sp and its family: configurations, preparation and launch, on a GPU that is not there."""

import math
from dataclasses import replace

import numpy as np
import pytest
import racing
from hypothesis import HealthCheck, given, settings, strategies as st
from pretend import as_array
from refused import says
from there import arguments, problem_of

from kernels.formats import two_four
from kernels.formats.half import Half
from kernels.tensor_core_24 import mma_sp, operands, tiles
from kernels.tensor_core_24.family import MMA_SP_FAMILY, PUBLISHED, STUDIES, MmaSp, Wgmma

CONFIGS = tuple(dict.fromkeys((*MMA_SP_FAMILY, *STUDIES.values())))


def test_a_study_changes_one_decision_of_the_published_kernel():
    """ "128x128x64", "four warps", "three-stage", .cg by even threads, both selectors, ldmatrix.x4."""
    assert PUBLISHED == MmaSp(128, 128, 64, 64, 64, 3, "cg", "even_threads", 2, 4, 1) and PUBLISHED.threads == 128
    for config in STUDIES.values():
        assert len([name for name, x in vars(config).items() if x != getattr(PUBLISHED, name)]) == 1
    assert len({c.entry("float16") for c in CONFIGS}) == len(CONFIGS) and all(c.check() is c for c in CONFIGS)
    # A 128 x 32 and B 64 x 128 of 2 bytes, 64 rows of 16 bytes of metadata (the source, "Metadata").
    assert PUBLISHED.shared_bytes == 3 * (8192 + 16384 + 1024)
    assert [c.takes(1, 1, 1, *tiles.limits(racing.L4)) for c in (PUBLISHED, MmaSp(stages=4))] == [True, False]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MmaSp(bm=96), ["bm is 96", "64, 128, 256"]),
        (MmaSp(bk=32), ["bk is 32", "64, 128"]),
        (MmaSp(cache="l1"), ["cache is 'l1'", "cg, ca"]),
        (MmaSp(metadata="all"), ["'all'", "first_warps"]),
        (MmaSp(ldmatrix=2, selectors=1), ["ldmatrix.x2", "not 1 and 64"]),
        (MmaSp(ldmatrix=2, wm=32), ["ldmatrix.x2", "not 2 and 32"]),
        (MmaSp(stages=1), ["stages is 1", "from 2"]),
        (MmaSp(group=0), ["group is 0", "from 1"]),
        (MmaSp(bm=256, bn=256), ["256 x 256", "512 threads"]),
    ],
)
def test_what_cannot_be_built_is_named(config, words):
    says(words, config.check)
    says(words, lambda: config.entry("bfloat16"))


@given(m=st.integers(1, 300), k=st.integers(1, 300), config=st.sampled_from(list(CONFIGS)))
@settings(deadline=None, max_examples=50)
def test_preparation_pads_to_whole_tiles(m, k, config):
    a = two_four.random(m, k, "bfloat16", 1)
    val, meta = mma_sp.convert(a, config)
    rows, columns = math.ceil(m / config.bm) * config.bm, math.ceil(k / config.bk) * config.bk
    assert val.dtype == meta.dtype == np.uint16 and val.flags.c_contiguous and meta.flags.c_contiguous
    assert val.shape == (rows, columns // 2) and meta.shape == (rows // 2, columns // 8)
    assert np.array_equal(val[:m, : a.k_pad // 2], a.val) and not val[m:].any() and not val[:, a.k_pad // 2 :].any()
    if config.ldmatrix == 2:
        return
    blocks = meta.reshape(rows // 16, 8, columns // 64, 4, 2)  # as `two_four.swizzle` says
    whole = blocks.transpose(0, 4, 1, 2, 3).reshape(rows, columns // 16)
    assert np.array_equal(whole[:m, : a.k_pad // 16], a.meta)
    assert (whole[m:] == two_four.EMPTY).all() and (whole[:, a.k_pad // 16 :] == two_four.EMPTY).all()
    assert (val is a.val) == ((rows, columns) == (m, a.k_pad))


def test_ldmatrix_x2_hands_out_the_metadata_of_one_part():
    """From the metadata itself, by the figures of the instruction's fragments (PTX ISA)."""
    meta = np.random.default_rng(0).integers(0, 2**16, (192, 12), np.uint32).astype(np.uint16)
    made = mma_sp.swizzle_by_part(two_four.swizzle(meta, 64, 64))
    assert made.shape == (96, 24)
    # 64 rows and 64 columns of A; of 16 rows: register i // 2, selector i % 2.
    for top, left, part, i, lane in np.ndindex(3, 3, 2, 4, 32):
        (g, t), at = divmod(lane, 4), 32 * top + 16 * part  # rows whose addresses lanes 0 to 15 give
        if t // 2 == i % 2:  # else this lane's register is not looked at
            row, column = 64 * top + 16 * i + g, 4 * left + 2 * part + t % 2
            pair = made[at + 8 * (i // 2) + g, 8 * left + 2 * t :][:2]
            assert pair.tolist() == [meta[row, column], meta[row + 8, column]]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_launch_is_what_sizes_addresses_and_the_epilogue_ask_for(pretended, data):
    """Without a mask only where tiles are whole; copies as wide as rows of B and C allow."""
    device, config = pretended(racing.H200), data.draw(st.sampled_from(CONFIGS))
    m, k = data.draw(st.sampled_from([(256, 128), (257, 128), (256, 130)]))
    n, by = data.draw(st.sampled_from([256, 264, 260, 258, 257])), data.draw(st.sampled_from([0, 8, 4, 2]))
    asked = data.draw(st.sets(st.sampled_from(["alpha", "beta", "bias"])))
    p = problem_of(Wgmma(), m, n, k, by=(0, by, 0))
    c, bias = Half("bfloat16", as_array(np.ones((m, n), np.uint16))), as_array(np.ones(m, np.float32))
    more = {"alpha": 2.0, "beta": 3.0, "bias": bias}
    bound, ops = mma_sp.prepare("x", p, device, config, c=c, **{name: more[name] for name in asked}), p.device()
    ((kernel, launch, given_),) = bound.named
    align = math.gcd(16, 2 * n, by or 16)
    whole = (m % config.bm, n % config.bn, k % config.bk, align) == (0, 0, 0, 16)
    parts = [name.upper() for name in ("alpha", "beta", "bias") if name in asked or asked and name == "alpha"]
    assert kernel == f"mma_sp: {config.entry('bfloat16', not whole, align, ' | '.join(parts) or 'PLAIN')}"
    assert launch.grid == math.ceil(m / config.bm) * math.ceil(n / config.bn) and launch.block == config.threads
    of, (val, meta) = arguments(kernel, given_), mma_sp.convert(ops.a, config)
    assert [of[x] for x in ("m", "n", "k", "B", "C")] == [m, n, k, ops.b.bits.data.ptr, ops.c.bits.data.ptr]
    assert [of["alpha"], of["beta"]] == [2 if "alpha" in asked else 1, 3 if "beta" in asked else 0]
    assert [of["C_in"], of["bias"]] == [
        c.bits.data.ptr if "beta" in asked else 0,
        bias.data.ptr if "bias" in asked else 0,
    ]
    kept = {x.ctypes.data: x for x in bound.keep if isinstance(x, np.ndarray)}
    assert np.array_equal(kept[of["val"]], val) and np.array_equal(kept[of["meta"]], meta)


def test_what_the_kernel_does_not_take_is_one_sentence(pretended):
    device, most = pretended(racing.L4), mma_sp.MOST
    for sizes, words in (
        ((128, most + 1, 64), ["n up to", str(most + 1)]),
        ((128, 128, most + 1), ["k up to", str(most + 1)]),
        ((2**31 - 1, 2**24, 64), ["2^31 - 1"]),
    ):
        says(words, lambda sizes=sizes: mma_sp.prepare("x", operands.problem(*sizes), device))
    p = problem_of(Wgmma(), 128, 128, 64)
    says(["128000 bytes", "101376"], lambda: mma_sp.prepare("x", p, device, MmaSp(stages=5)))
    says(["'FF'"], lambda: mma_sp.prepare("x", operands.problem(64, 64, 64, orders="FF"), device))
    mixed = replace(p.device(), b=Half("float16", p.device().b.bits))
    says(["one dtype"], lambda: mma_sp.prepare("x", replace(p, make_device=lambda: mixed, _device=None), device))
