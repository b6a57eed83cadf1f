"""What the compiler makes of Hopper's kernels: registers, and the instructions that multiply, copy and store."""

import re

import compiled
import pytest
from compiled import count
from refused import says
from there import FP8, WGMMA

from kernels import jit, tensor_core_24 as system
from kernels.tensor_core_24 import bounds, family, tiles

RUNGS = [config for config, *_ in system.RUNGS.values()]
COMPLETE = list({c.kernel: c for c in RUNGS if c.kind.adds}.values())
#: entry -> a configuration that asks for it, and whether it adds C and a bias.
ENTRIES = {c.entry("bfloat16", extra): (c, extra) for of, extra in ((RUNGS, False), (COMPLETE, True)) for c in of}
#: By columns, with an activation; and in 8 bits.
BY_COLUMNS = {
    c.entry("bfloat16", "gelu", "FF"): c for c in {(c.kernel, c.n < 64): c for c in WGMMA if c.kind.ordered}.values()
}
EIGHT = {
    c.entry("bfloat16", False, "FF" if c.n in c.kind.narrow else "CC", True, True): c
    for c in {(c.kernel, c.n in c.kind.narrow): c for c in FP8[::-1]}.values()
}
#: What NVRTC 13.0 spills: loads of two of the largest tiles with scales of rows and columns.
SPILLS = {"fp8_persistent<2, 2, 192": 10, "fp8_refilling<3, 1, 256": 10}


@pytest.fixture(scope="module")
def cubins():
    """entry -> cubin for the only target."""
    every = {entry: of[0] for entry, of in ENTRIES.items()} | BY_COLUMNS | EIGHT
    made = compiled.cubins([(c.source, entry) for entry, c in every.items()], tiles.TARGETS)
    return {entry: x for (entry, _), x in made.items()}


@pytest.fixture(scope="module")
def reports(cubins):
    """entry -> resources and instruction mix."""
    return compiled.reports(cubins)


@pytest.fixture(scope="module")
def listings(cubins):
    """entry -> its instructions, in order."""
    return dict(zip(cubins, jit.listings(cubins.values()), strict=True))


def modified(mix: dict[str, int], opcode: str, modifier: str) -> int:
    """Instructions of one opcode with a modifier."""
    return sum(n for op, n in mix.items() if op.startswith(opcode) and modifier in op.split(".")[1:])


def test_entries_spill_nothing_and_fit_their_block(reports):
    for entry, config in ({entry: of[0] for entry, of in ENTRIES.items()} | BY_COLUMNS | EIGHT).items():
        used, most = reports[entry][0], next((n for start, n in SPILLS.items() if entry.startswith(start)), 0)
        assert used.spill_loads <= most and used.spill_stores <= most, entry
        assert used.shared_bytes <= 2048, "for which check leaves a KiB, and the driver's own"
        registers = family.AT_LAUNCH if config.kind.exchanging else used.registers
        assert registers * config.threads <= 65536, entry


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_sparse_instruction_is_what_runs_with_both_selectors(reports, listings, entry):
    """HGMMA.SP and nothing else, its groups not serialised; a step is each block of 64 rows with selector 0, then each
    with 1. One multiplication stays under way, but where it is waited for in every stage."""
    (config, _), (used, mix), listing = ENTRIES[entry], reports[entry], listings[entry]
    # B is as it lies in memory, rows of columns; the instruction transposes it.
    work = [re.fullmatch(r"(\S+) .*\.tnspB, .*, (R\d+), (0x[01])(, gsb0)? ?", op) for op in listing if "HGMMA" in op]
    each, deep = 2 * config.blocks, config.kind.deep
    assert work and all(work) and len(work) % (each * deep) == 0
    assert {x[1] for x in work} == {f"HGMMA.SP.64x{config.n}x32.F32.BF16"}
    assert not any(op.startswith(("HMMA", "IMMA", "LDSM")) for op in mix) and bool(count(mix, "LDGSTS")) == (deep > 1)
    assert [bool(x[4]) for x in work] == ([False] * (each * deep - 1) + [True]) * (len(work) // each // deep)
    for step in (work[i : i + each] for i in range(0, len(work), each)):
        assert [x[3] for x in step] == ["0x0"] * config.blocks + ["0x1"] * config.blocks
        words = [x[2] for x in step]
        assert words[: config.blocks] == words[config.blocks :] and len(set(words)) == config.blocks
    # Nothing but metadata is read from shared memory by threads, a word for two instructions; and a block's share.
    assert count(mix, "LDS") - {"stream_k": 17, "gpc": 2}.get(config.kernel, 0) == len(work) / 2, mix
    waits = {op.split(", ")[-1].strip() for op in listing if "WARPGROUP.DEPBAR" in op}
    assert waits == ({"0x0"} if config.kernel == "one_stage" or deep > 1 else {"0x0", "0x1"})
    # What a block has is shared out by setmaxnreg, and who waits for more than that waits for ever.
    has = {
        kind: int(n, 16) for kind, n in re.findall(r"USETMAXREG\.(\w+)\.CTAPOOL (?:UP\d, )?(0x\w+)", "\n".join(listing))
    }
    assert has.keys() == ({"TRY_ALLOC", "DEALLOC"} if config.kind.producer else set())
    if has:
        at_launch = family.AT_LAUNCH if config.kind.exchanging else used.registers
        assert config.groups * has["TRY_ALLOC"] + has["DEALLOC"] <= (config.groups + 1) * at_launch


@pytest.mark.parametrize("entry", [entry for entry, (c, _) in ENTRIES.items() if c.kind.deep == 1])
def test_the_copy_engine_moves_everything(reports, entry):
    """In: of each stage A, its metadata, and B in chunks of 64 columns, all of which a cluster shares. Out: squares of
    64 x 64; a loop of them for split_k, twice for who cuts the last wave."""
    (config, extra), (_, mix) = ENTRIES[entry], reports[entry]
    kernel, chunks = config.kernel, config.n // 64
    copies, boxes = count(mix, "UTMALDG"), chunks + (1 if kernel == "packed" else 2)
    boxes += (config.m // 64 - 1) * (kernel == "pieces")  # A in boxes of 64 rows
    stages, rest = divmod(copies, boxes)
    assert stages and not rest
    shared = kernel in ("multicast", "clusters")
    assert modified(mix, "UTMALDG", "MULTICAST") == stages * chunks * shared
    assert count(mix, "UBLKCP") == stages * config.m // 64 * (kernel == "packed")
    squares = 1 if kernel == "split_k" else config.blocks * chunks * (1 + (kernel == "last_wave"))
    assert count(mix, "UTMASTG") == squares and count(mix, "STSM") == 4 * squares
    # Sums travel between blocks: through global memory, or through each other's shared. A thread reads C and a bias.
    sums = config.blocks * config.n // 8 if kernel == "stream_k" else 0
    assert count(mix, "LDG", 128) == count(mix, "STG", 128) == sums
    assert bool(count(mix, "LD", 128)) == (kernel in ("split_k", "last_wave"))
    assert bool(count(mix, "LDG") - sums - (kernel == "gpc")) == extra
    # No atomics but the two counts of a handover, whose results nobody waits for.
    assert sum(n for op, n in mix.items() if op.startswith(("RED", "ATOM"))) == 2 * (kernel == "stream_k")


@pytest.mark.parametrize("entry", EIGHT)
def test_the_sparse_instruction_of_eight_bits_is_what_runs(reports, listings, entry):
    """The first stage and that of the loop, each of two steps for each block of rows; one stays under way: ptxas
    serialises groups of two words without an error, and then every wait is for all that is under way."""
    config, (_, mix) = EIGHT[entry], reports[entry]
    multiplications = {name: n for name, n in mix.items() if "GMMA" in name}
    assert sum(multiplications.values()) == 2 * 2 * config.blocks
    assert all(name.startswith("QGMMA.SP") for name in multiplications)
    assert bool(count(mix, "UBLKCP")) == config.kind.packed and bool(count(mix, "UTMASTG")) != config.direct
    waits = re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x\d)", " ".join(listings[entry]))
    assert sorted(waits) == ["0x0", "0x1", "0x1", "0x1"]


@pytest.mark.parametrize("variant", bounds.VARIANTS)
def test_what_a_bound_leaves_out_is_gone_and_nothing_else(tmp_path, variant):
    """Without loads it still multiplies and stores; without multiplications it still loads and stores."""
    for file, text in bounds.changed(variant).items():
        (tmp_path / file).write_text(text)
    kernel = bounds.VARIANTS[variant]
    source = tmp_path / kernel.source.name
    (entry,) = kernel.entries
    cubin, uncut = jit.compile_cubin(source, entry, "sm_90a", include=[tiles.HERE]), (kernel.source, entry, "sm_90a")
    (used, mix), (_, all_of_it) = jit.reports([cubin, jit.compile_cubin(*uncut)])
    whole, _ = bounds._OF[variant]
    for op, part in (("UTMALDG", "_unloaded"), ("HGMMA.SP", "_unmultiplied")):
        left = 0 if variant == whole + part else count(all_of_it, op)
        assert count(mix, op) == left, (op, mix)
    assert count(mix, "UTMASTG") == count(all_of_it, "UTMASTG")
    assert not used.spills


def test_a_bound_whose_rung_was_rewritten_says_so(monkeypatch):
    monkeypatch.setitem(bounds.LEFT_OUT, "_unloaded", (None, "no such text", 1, ""))
    says(["wgmma_three.cu", "0 times instead of 1"], lambda: bounds.changed("wgmma_three_unloaded"))
    says(["'wgmma_keep'", "wgmma_rounds"], lambda: bounds.prepare("wgmma_keep", None, None))
