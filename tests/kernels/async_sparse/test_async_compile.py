"""What the compiler makes of the kernels beyond the contract of all systems: blocks that share an SM, shared memory,
the instructions that each idea is about, and what no instantiation may be."""

import math
import re
from itertools import product

import compiled
import pytest
from compiled import count

from kernels import async_sparse as system, jit
from kernels.async_sparse import any_csr, family, published, windows
from kernels.async_sparse.windows import Union, Windows
from kernels.library.routes import in_order

MOST = 232_448  # bytes of shared memory of a block on compute capability 9.0, besides 1 KiB of the driver's
RUNGS = tuple(published.KERNELS)
SPECIALISED = (*published.PAIRS, "unit_ring")
#: A step of 128 bytes of k in instructions of 16 values, or of 8 of TF32.
KINDS = {"BF16": "x16.F32.BF16", "F16": "x16.F32", "TF32": "x8.F32.TF32"}


@pytest.fixture(scope="module")
def reports():
    """Of every entry that the system declares, and what clears and rounds cut windows."""
    jobs = {(kernel.source, e) for kernel in system.VARIANTS.values() for e in kernel.entries}
    jobs |= {(windows.WCSR_SOURCE, e) for e in ("round_cut<BF16, 64>", "round_cut<F16, 64>")}
    jobs |= {(windows.SOURCE, f"clear_cut<{window}>") for window in windows.HEIGHTS}
    return compiled.reports(compiled.cubins(sorted(jobs), family.TARGETS))


def of(reports, *names: str):
    """(template arguments, resources, instructions, where) of each entry of these kernels."""
    for (entry, _), (used, mix) in reports.items():
        if entry.split("<")[0] in names:
            yield re.findall(r"[^<>, ]+", entry)[1:], used, mix, f"{entry}: {used}"


def blocks_of(used, threads: int) -> int:
    """Blocks that share an SM by their registers."""
    return 65536 // (math.ceil(used.registers / 8) * 8 * threads)


def has(mix: dict[str, int], opcode: str, modifier: str = "") -> bool:
    return any(op.startswith(opcode) and modifier in op for op in mix)


@pytest.mark.parametrize(
    ("opcode", "modifier", "users"),
    [
        ("HGMMA", "", {*RUNGS[1:], "unit_ring"}),
        ("UTMALDG", "", {*RUNGS[2:], "unit_ring"}),  # TMA loads
        ("UTMASTG", "", {*RUNGS[2:], "unit_ring"} - {"opt7"}),  # and stores; opt7 has __stwt
        ("USETMAXREG", "", {*SPECIALISED}),  # warp specialisation
        ("UTMALDG", "MULTICAST", {"opt7"}),
        ("UCGABAR", "", {"opt7"}),  # a cluster
        ("ATOMG", "", {"opt6_atomic", "opt6_stealing", "unit_ring"}),  # tiles are claimed
    ],
)
def test_an_idea_shows_in_the_disassembly(reports, opcode, modifier, users):
    for name in (*RUNGS, "unit_ring"):
        for _, used, mix, where in of(reports, name):
            assert has(mix, opcode, modifier) == (name in users), where
            assert name not in SPECIALISED or used.registers == 168, f"what setmaxnreg shares out: {where}"
            assert name != "opt2" or blocks_of(used, 128) >= 2, where
            assert name == "opt0" or used.shared_bytes <= family.STATIC + 1024, where


def test_a_rung_moves_what_its_head_says(reports):
    """opt1 loads by hand; waiting is no longer arriving in opt4; each step has four multiplications of its width."""
    assert all(count(mix, "LDG", 128) and count(mix, "STS", 128) for *_, mix, _ in of(reports, "opt1"))
    arrivals = {
        name: sum(n for op, n in next(of(reports, name))[2].items() if op.startswith("SYNCS.ARRIVE"))
        for name in ("opt3", "opt4")
    }
    assert arrivals["opt4"] < arrivals["opt3"]
    for (entry, _), listing in reports.listings.items():
        if entry.startswith(("opt5<", "unit_ring<", "wcsr<")):
            dtype, *rest = re.findall(r"[^<>, ]+", entry)[1:]
            n = rest[{"opt5": 1, "unit_ring": 3, "wcsr": 0}[entry.split("<")[0]]]
            work = [op for op in listing if "HGMMA" in op]
            assert {op.split()[0] for op in work} == {f"HGMMA.64x{n}{KINDS[dtype]}"} and len(work) % 4 == 0, entry
            transposed = {"tnspB" in op for op in work}
            assert transposed == {"MN_MAJOR" in entry or entry.startswith("wcsr<") and dtype != "TF32"}, entry


def test_windows_find_their_registers_and_multiply_without_a_wait(reports):
    for arguments, used, mix, where in of(reports, "wcsr"):
        width = int(arguments[1])
        assert blocks_of(used, 128) >= {64: 5, 128: 4, 256: 2}[width], where
        assert count(mix, "STS", 128) == width // 16 and count(mix, "REDG") == width // 2, where
    for (window, groups, _, exact, *_), used, mix, where in of(reports, "windows"):
        assert used.registers == (128 if groups == "1" else 168) and used.shared_bytes <= windows.TAKEN, where
        assert count(mix, "REDG") == int(window) // 4, "16 bytes at a time"
        listing = " ".join(reports.listings[where.split(": ")[0], "sm_90a"])
        order = re.findall(r"HGMMA|WARPGROUP.DEPBAR", listing)
        together = {len(run) for run in "".join("h" if x == "HGMMA" else "|" for x in order).split("|") if run}
        assert together == ({8, 2} if exact == "false" else {16, 4} if int(window) <= 16 else {12, 6}), where


EVERY = [
    Union(rows, vec, loads, unroll)
    for rows in windows.GROUP_HEIGHTS
    for vec in (4, 1)
    for loads in windows.LOADS
    for unroll in (4, 8)
    if (rows * loads, loads * unroll) in windows.BLOCKS
]
HALF = [Union(rows, unroll=unroll) for rows, unroll in windows.HALF_BLOCKS]


@pytest.mark.parametrize("target", jit.TARGETS)
def test_groups_share_an_sm_as_they_say_and_hardly_spill(target):
    """A register may be spilled outside the inner loop; elsewhere than on Hopper, for which it is tuned, a few.

    The other targets take them in turn."""
    whole = [c for c in EVERY if target == "sm_90a" or c.rows in (1, 4)]
    ordered = [in_order(c) for c in any_csr.POOLS["fp32"] if isinstance(c, Union) and not c.order]
    configs: list[tuple] = [(c, "tf32") for c in whole + ordered]
    configs += [(c, "bfloat16") for c in HALF + [c for c in ordered if windows.made_for(c, "bfloat16")]]
    # … and windows in order.
    hopper = [in_order(c) for c in any_csr.POOLS["tf32"] if isinstance(c, Windows) and not c.order]
    configs += [(c, "tf32") for c in hopper] * (target in family.TARGETS)
    others = [x for x in jit.TARGETS if x not in family.TARGETS]
    turn = slice(None) if target in family.TARGETS else slice(others.index(target), None, len(others))
    wanted = {any_csr.entry_of(c, 4, dtype): (c, dtype) for c, dtype in configs[turn]}
    found = compiled.reports(compiled.cubins(wanted, [target]))
    for (_, entry), (config, dtype) in wanted.items():
        used, mix = found[entry, target]
        assert used.spill_loads <= (4 if target == "sm_90a" else 16), f"{entry}: {used}"
        if isinstance(config, Union):
            assert windows.blocks_of(config, dtype) <= blocks_of(used, 32 * windows.WARPS), f"{entry}: {used}"
            values = (1 if dtype == "tf32" else 2) * config.vec * config.loads
            assert count(mix, "FFMA") >= config.rows * values * config.unroll, entry
        counts = [op for op in mix if re.match(r"ATOM|RED(G|\.|$)", op)]
        assert not config.in_order or counts and all(".INC" in op for op in counts), entry


def test_blocks_mma_is_copies_of_16_bytes_ldmatrix_and_tensor_cores_in_every_family():
    kernel = system.VARIANTS["blocks_mma"]
    found = compiled.reports(compiled.spread(((kernel.source, e) for e in kernel.entries), targets=jit.FAMILIES))
    assert {e for e, _ in found} == {*kernel.entries} and {target for _, target in found} == {*jit.FAMILIES}
    for (entry, target), (used, mix) in found.items():
        _, bm, _, b_cols, c_cols, bn, _ = re.findall(r"[^<>, ]+", entry)[1:]
        where = f"{entry} on {target}: {used}"
        assert not used.spills and blocks_of(used, family.MMA_THREADS) >= family.TOGETHER, where
        assert all(".128" in op and "BYPASS" in op for op in mix if op.startswith("LDGSTS")), where
        # A warp's part in a step of 32: a fourth of the tile, 16 x 8 at a time.
        assert count(mix, "HMMA") == int(bm) * int(bn) // 4 // (16 * 8) * 2, where
        assert has(mix, "LDSM", ".MT88") == (b_cols == "false") and has(mix, "MOVM") == (c_cols == "true"), where
        assert not has(mix, "RED") and not has(mix, "ATOM"), "sums have one order"


def test_every_tile_of_blocks_mma_is_one_that_the_source_takes():
    """Its static assertions hold for each order, block and width, in the shortest ring of any GPU."""
    shapes = [family.Shape("bfloat16", b_row, 16, order, order) for b_row in (16, 128) for order in "CF"]
    tiles = [
        (s, family.filled_tile(columns, s.b_row, 101_376)) for s in shapes for columns in family.tile_widths(s.b_row)
    ]
    assert compiled.cubins([(family.MMA_SOURCE, family.tile_entry(tile, s)) for s, tile in tiles], ["sm_86"])


def test_boxes_are_those_of_the_kernels(tmp_path):
    """The compiler's own sizes: Output for unit_ring, for opt2 to opt5, and for the persistent rungs."""
    body = []
    for (dtype, (t, size)), c, n in product(family.DTYPES.items(), "CF", published.WIDTHS):
        of_c, few = f"Output<{t}, {str(c == 'F').lower()}, {n}, 1, ", 64 // size
        for widest in (64, few):
            wide = family.box_columns(n, size, c, widest)
            box = 64 * size * wide
            body.append(f"static_assert({of_c}{widest}>::WIDE == {wide} && {n} % {wide} == 0);")
            body.append(f"static_assert(sizeof({of_c}{widest}>) == {box} && {box} % 1024 == 0);")
        need = {name: published.shared_bytes(name, n, size, c) for name in RUNGS[1:]}
        ring = f"sizeof(Ring<{t}, {n}, {published.STAGES}>)"
        body.append(f"static_assert({ring} == {need['opt5']});")
        body.append(f"static_assert({ring} + 2 * sizeof({of_c}{few}>) == {need['opt6']});")
        assert max(need.values()) + family.STATIC <= MOST, f"{n} columns of {dtype}"
    probe = tmp_path / "sizes.cu"
    probe.write_text("\n".join([f'#include "{family.HERE}/specialised.cuh"', "__global__ void sizes() {", *body, "}"]))
    assert jit.compile_cubin(probe, "sizes", "sm_90a").code
