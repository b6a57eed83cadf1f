"""What the compiler makes of Hopper's kernels: registers, and the instructions that multiply, copy and store."""

from __future__ import annotations

import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import compiled
import pytest
from compiled import count, width
from refused import says
from there import FP8, WGMMA

from kernels import jit
from kernels import tensor_core_24 as room
from kernels.registers import used_before
from kernels.tensor_core_24 import bounds, family, tiles

RUNGS = [config for config, *_ in room.RUNGS.values()]
#: Of what a tuner tries beside the rungs, the largest tile of each kernel and the smallest.
ENDS = [
    end((c for c in family.WGMMA_FAMILY if c.kernel == kernel), key=lambda c: (c.m * c.n, c.stages))
    for kernel in dict.fromkeys(c.kernel for c in family.WGMMA_FAMILY)
    for end in (min, max)
]
COMPLETE = list({c.kernel: c for c in RUNGS if c.kind.adds}.values())
#: entry -> a configuration that asks for it, and whether it adds C and a bias.
ENTRIES = {
    c.entry("bfloat16", extra): (c, extra) for of, extra in (([*RUNGS, *ENDS], False), (COMPLETE, True)) for c in of
}
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
    sources = [(of[0].source, entry) for entry, of in ENTRIES.items()]
    sources += [(c.source, entry) for entry, c in (BY_COLUMNS | EIGHT).items()]
    return {entry: x for (entry, _), x in compiled.cubins(sources, tiles.TARGETS).items()}


@pytest.fixture(scope="module")
def reports(cubins):
    """entry -> resources and instruction mix."""
    return compiled.reports(cubins)


@pytest.fixture(scope="module")
def listings(cubins) -> dict[str, list[str]]:
    """entry -> what multiplies, waits for it and reads shared memory, in the order of the SASS."""

    def listing(cubin):
        code = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", jit.disassemble(cubin))
        return [" ".join(op.split()) for op in code if re.search(r"HGMMA|WARPGROUP\.|\bLDS", op)]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(cubins, pool.map(listing, cubins.values()), strict=True))


def modified(mix: dict[str, int], opcode: str, modifier: str) -> int:
    """Instructions of one opcode with a modifier."""
    return sum(n for op, n in mix.items() if op.startswith(opcode) and modifier in op.split(".")[1:])


def test_entries_spill_nothing_and_fit_their_block(reports):
    for entry, config in ({entry: of[0] for entry, of in ENTRIES.items()} | BY_COLUMNS | EIGHT).items():
        used, most = reports[entry][0], next((n for start, n in SPILLS.items() if entry.startswith(start)), 0)
        assert used.spill_loads <= most and used.spill_stores <= most, entry
        assert used.shared_bytes <= 2048, "for which check leaves a KiB, and the driver's own"
        exchanging = config.kind.exchanging
        assert (family.AT_LAUNCH if exchanging else used.registers) * config.threads <= 65536, entry


def registers(op: str) -> int:
    """How many registers a thread has at least that executes an instruction: it names the first of several."""
    named = [int(number) for number in re.findall(r"\bR(\d+)\b", op)]
    kind = re.sub(r"^@!?U?P\w+\s+", "", op).split()[0]
    if sums := re.match(r"HGMMA.*x(\d+)x", kind):  # N / 2 of a thread, and a word of metadata
        return max(named[0] + int(sums[1]) // 2, max(named) + 1)
    pairs = 2 * bool({"WIDE", "HI"} & {*kind.split(".")})
    several = 4 if kind.endswith(".M88.4") else max(pairs, width(kind) // 32)
    return max(named, default=-several) + several


def most_registers(listing: str) -> dict[str, int]:
    """How many registers paths through a disassembly need: from the entry, and behind each kind of setmaxnreg."""
    code, labels = [], {}
    for line in listing.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(code)
        elif op := re.search(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", line):
            code.append(op[1])
    most: Counter = Counter()
    todo, seen = [(0, "launch")], set()
    while todo:
        at, state = todo.pop()
        if at >= len(code) or (at, state) in seen:
            continue
        seen.add((at, state))
        op = code[at]
        state = next((kind for kind in ("TRY_ALLOC", "DEALLOC") if f"USETMAXREG.{kind}" in op), state)
        most[state] = max(most[state], registers(op))
        todo += [(labels[label], state) for label in re.findall(r"\.L_\w+", op) if label in labels]
        ends = re.match(r"(EXIT|BRA|RET\S*|BRA\.U)\b(?!\.DIV|\.U\.ANY)", op)  # without a predicate
        if not ends:
            todo.append((at + 1, state))
    return dict(most)


@pytest.mark.parametrize("entry", [entry for entry, (c, _) in ENTRIES.items() if c.kind.producer])
def test_nobody_uses_registers_that_it_does_not_have(cubins, reports, entry):
    """What a block has is shared out by setmaxnreg, and who waits for more than that waits for ever. Some are launched
    with 128, of which the compiler, told of 160, knows nothing: the code must do with them until it has more."""
    config, sass = ENTRIES[entry][0], jit.disassemble(cubins[entry])
    asked = re.findall(r"USETMAXREG\.(\w+)\.CTAPOOL (?:UP\d, )?(0x\w+)", sass)
    has = {kind: int(number, 16) for kind, number in asked}
    assert len(asked) == 2 and has.keys() == {"TRY_ALLOC", "DEALLOC"}
    exchanging = config.kind.exchanging
    has["launch"] = 128 if exchanging else reports[entry][0].registers
    assert config.groups * has["TRY_ALLOC"] + has["DEALLOC"] <= (config.groups + 1) * has["launch"]
    found = most_registers(sass)
    assert found.keys() == has.keys()
    assert all(found[part] <= has[part] for part in has), (found, has)
    # What is read without nvdisasm, where such a kernel is made ready, is no less.
    assert used_before(jit._instructions(cubins[entry])) >= found["launch"]
    assert not exchanging or found["TRY_ALLOC"] > 128, "otherwise nothing need be exchanged"


def stages(listing: list[str], blocks: int, steps: int = 1) -> list[list[tuple[str, str, bool]]]:
    """(register of metadata, selector, whether it closes the group) of the instructions of each stage.

    steps: of 64 columns, of a stage.
    """
    # B is as it lies in memory, rows of columns; the instruction transposes it.
    work = [re.fullmatch(r"HGMMA.*\.tnspB, .*, (R\d+), (0x[01])(, gsb0)? ;", op) for op in listing if "HGMMA" in op]
    each = 2 * blocks * steps
    assert work and all(work) and len(work) % each == 0, listing
    found = [(match.group(1), match.group(2), bool(match.group(3))) for match in work]
    return [found[i : i + each] for i in range(0, len(found), each)]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_sparse_instruction_is_what_runs_with_both_selectors(reports, listings, entry):
    """HGMMA.SP and nothing else; a step is each block of 64 rows with selector 0, then each with 1."""
    config, _ = ENTRIES[entry]
    steps = config.kind.deep
    _, mix = reports[entry]
    work = [op.split()[0] for op in listings[entry] if "HGMMA" in op]
    assert set(work) == {f"HGMMA.SP.64x{config.n}x32.F32.BF16"}
    assert sum(n for op, n in mix.items() if op.startswith("HGMMA.SP")) == len(work)
    assert not any(op.startswith(("HMMA", "IMMA", "LDSM")) for op in mix)
    assert bool(count(mix, "LDGSTS")) == (config.kind.deep > 1)
    blocks = config.blocks
    each = 2 * blocks
    for stage in stages(listings[entry], blocks, steps):
        closes = [False] * (each * steps - 1) + [True]
        assert [close for *_, close in stage] == closes, "serialised: a group is one instruction"
        for step in (stage[i : i + each] for i in range(0, len(stage), each)):
            assert [selector for _, selector, _ in step] == ["0x0"] * blocks + ["0x1"] * blocks
            words = [word for word, *_ in step]
            assert words[:blocks] == words[blocks:], "a word serves both selectors"
            assert len(set(words)) == blocks, "and one block of rows"
        assert len({word for word, *_ in stage}) == blocks * steps, "of one step"
    # Nothing but metadata is read from shared memory by threads: a word for two instructions.
    plan = {"stream_k": 17, "gpc": 2}.get(config.kernel, 0)  # and what a block's share is, or its place
    assert count(mix, "LDS") - plan == len(work) / 2, mix


@pytest.mark.parametrize("entry", ENTRIES)
def test_one_multiplication_stays_under_way_and_no_word_is_overwritten(listings, entry):
    """wgmma reads metadata from registers while it runs, hence two sets of them; or it is waited for in every stage."""
    config, *_ = ENTRIES[entry]
    assert overwritten(listings[entry]) == []
    waits = [op.split(", ")[-1] for op in listings[entry] if "WARPGROUP.DEPBAR" in op]
    alone = config.kernel == "one_stage" or config.kind.deep > 1
    assert set(waits) == ({"0x0 ;"} if alone else {"0x0 ;", "0x1 ;"})


def overwritten(listing: list[str]) -> list[str]:
    """Reads of metadata into a register that a group of HGMMA which is still under way reads."""
    under_way, group, wrong = [], set(), []
    for op in listing:
        if match := re.search(r"HGMMA.*, (R\d+), 0x[01]", op):
            group.add(match.group(1))
            if "gsb0" in op:
                under_way.append(group)
                group = set()
        elif match := re.search(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d)", op):
            under_way = under_way[max(0, len(under_way) - int(match.group(1))) :]
        elif match := re.search(r"\bLDS (R\d+),", op):
            wrong += [op] * any(match.group(1) in words for words in under_way)
    return wrong


@pytest.mark.parametrize("entry", [entry for entry, (c, _) in ENTRIES.items() if c.kind.deep == 1])
def test_the_copy_engine_moves_everything(reports, entry):
    config, extra = ENTRIES[entry]
    _, mix = reports[entry]
    kernel, chunks = config.kernel, config.n // 64
    # Of each stage: A, its metadata, and B in chunks of 64 columns, all of which a cluster shares.
    copies, shared = count(mix, "UTMALDG"), modified(mix, "UTMALDG", "MULTICAST")
    boxes = chunks + (1 if kernel == "packed" else 2)
    if kernel == "pieces":  # A in boxes of 64 rows, of a step in a loop that is not unrolled
        boxes += config.m // 64 - 1
    assert copies and copies % boxes == 0, mix
    assert shared == (copies // boxes * chunks if kernel in ("multicast", "clusters") else 0)
    pieces = config.m // 64 if kernel == "packed" else 0  # side by side, no boxes
    assert count(mix, "UBLKCP") == copies // boxes * pieces
    # Out: squares of 64 x 64, 16 columns of a warp at a time. split_k has a loop for them; who cuts the last wave has
    # them twice: of whole tiles, and of the one that is cut.
    whole = config.blocks * chunks
    squares = 1 if kernel == "split_k" else whole * (1 + (kernel == "last_wave"))
    assert count(mix, "UTMASTG") == squares and count(mix, "STSM") == 4 * squares
    changes = [modified(mix, "USETMAXREG", name) for name in ("TRY_ALLOC", "DEALLOC")]
    assert changes == ([1, 1] if config.kind.producer else [0, 0])
    # Sums in float32 travel between blocks: through global memory, or through each other's shared.
    sums = config.blocks * config.n // 8 if kernel == "stream_k" else 0
    assert count(mix, "LDG", 128) == count(mix, "STG", 128) == sums, mix
    adding = kernel == "split_k" or kernel == "last_wave"
    assert bool(count(mix, "LD", 128)) == adding
    if kernel != "stream_k":  # which writes its share of the tiles there
        assert bool(count(mix, "STS", 128)) == adding
    # A square is given away or added to, as the rank has it: 32 sums of a thread either way.
    if kernel == "last_wave":
        assert count(mix, "LD", 128) == count(mix, "STS", 128) == 8 * whole
    assert bool(count(mix, "UCGABAR_ARV")) == (kernel in ("split_k", "clusters", "multicast", "last_wave"))
    place = kernel == "gpc"  # one word of a table
    assert count(mix, "LDG") >= sums + place
    assert bool(count(mix, "LDG") - sums - place) == extra, "a thread reads C and a bias, or nothing"
    # No atomics but the two counts of a handover, whose results nobody waits for.
    assert sum(n for op, n in mix.items() if op.startswith("RED")) == 2 * (kernel == "stream_k")
    assert not any(op.startswith("ATOM") for op in mix)


@pytest.mark.parametrize("entry", EIGHT)
def test_the_sparse_instruction_of_eight_bits_is_what_runs(reports, listings, cubins, entry):
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
    cubin = jit.compile_cubin(source, entry, "sm_90a", include=[tiles.HERE])
    mix, (whole, _) = jit.instruction_mix(cubin), bounds._OF[variant]
    all_of_it = jit.instruction_mix(jit.compile_cubin(kernel.source, entry, "sm_90a"))
    for op, part in (("UTMALDG", "_unloaded"), ("HGMMA.SP", "_unmultiplied")):
        left = 0 if variant == whole + part else count(all_of_it, op)
        assert count(mix, op) == left, (op, mix)
    assert count(mix, "UTMASTG") == count(all_of_it, "UTMASTG")
    assert not jit.resources(cubin).spills


def test_a_bound_whose_rung_was_rewritten_says_so(monkeypatch):
    monkeypatch.setitem(bounds.LEFT_OUT, "_unloaded", (None, "no such text", 1, ""))
    says(["wgmma_three.cu", "0 times instead of 1"], lambda: bounds.changed("wgmma_three_unloaded"))
    says(["'wgmma_keep'", "wgmma_rounds"], lambda: bounds.bind("wgmma_keep", None, None))


@pytest.mark.parametrize(
    ("source", "entry", "reason"),
    [
        ("wgmma_persistent.cu", "wgmma_persistent<BF16, 2, 1, 96, 4, 2, false>", "up to 256 columns"),
        (
            "wgmma_persistent.cu",
            "wgmma_persistent<BF16, 1, 1, 320, 4, 2, false>",
            "up to 256 columns",
        ),
        ("wgmma_split_k.cu", "wgmma_split_k<BF16, 2, 1, 256, 2, 2, false>", "more stages"),
        ("wgmma_rounds.cu", "wgmma_rounds<BF16, 2, 1, 128, 5, 1, false>", "two sets of words"),
        ("wgmma_refilling.cu", "wgmma_refilling<BF16, 3, 1, 256, 2, 1>", "another is there"),
        (
            "wgmma_three.cu",
            "wgmma_three<BF16, 2, 1, 256, 4, 1, false>",
            "160 registers for each of three",
        ),
        ("wgmma_pieces.cu", "wgmma_pieces<BF16, 3, 2, 128, 4, 1>", "160 registers for each of"),
        ("wgmma_pieces.cu", "wgmma_pieces<BF16, 3, 1, 128, 5, 1>", "two sets of words"),
        (
            "wgmma_last_wave.cu",
            "wgmma_last_wave<BF16, 1, 1, 64, 8, 1, false>",
            "half of the sums",
        ),
        ("wgmma_last_wave.cu", "wgmma_last_wave<BF16, 2, 2, 192, 2, 2, false>", "half of the sums"),
        (
            "wgmma_cp_async.cu",
            "wgmma_cp_async<BF16, 128, 4, false>",
            "a row of B is a swizzled row",
        ),
        ("wgmma_cp_async.cu", "wgmma_cp_async<F16, 8, 4, true>", "a row of B is a swizzled row"),
    ],
)
def test_an_impossible_instantiation_says_why(source, entry, reason):
    with pytest.raises(jit.CompileError, match=f"(?s){entry}.*{reason}"):
        jit.compile_cubin(tiles.HERE / source, entry, "sm_90a")
