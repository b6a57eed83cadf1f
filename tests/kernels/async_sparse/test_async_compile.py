"""What the compiler makes of the room's kernels: no spills, room for registers and rings, the instructions that each
idea of the ladder is about."""

from __future__ import annotations

import math
import re

import compiled
import pytest
from compiled import count

from kernels import async_sparse as room
from kernels import jit
from kernels.async_sparse import any_csr, blocks, family, published, union, wcsr, windows

MOST = 232_448  # bytes of shared memory of a block on compute capability 9.0, besides 1 KiB of the driver's
RUNGS = tuple(published.KERNELS)
#: Kernels for CSR: `test_windows`, `test_union`; and for blocks anywhere: `test_blocks`.
OTHERS = wcsr.KERNELS | windows.KERNELS | union.KERNELS | any_csr.KERNELS | blocks.KERNELS
#: Kernels with a warpgroup, or a warp, that only loads.
SPECIALISED = (*published.PAIRS, "unit_ring")
THREADS = {name: family.THREADS if name in SPECIALISED else 128 for name in (*RUNGS, "unit_ring")}
#: Beside what the room declares: the narrowest instruction of the sweep, and a wide one in float16.
SWEEP = tuple(published.entry("opt5", dtype, "C", n) for dtype, n in (("bfloat16", 8), ("float16", 248)))
ENTRIES = {
    (kernel.source, entry): kernel.targets
    for kernel in room.VARIANTS.values()
    if kernel.name not in OTHERS
    for entry in kernel.entries + (SWEEP if kernel.name == "opt5" else ())
}


def of(name: str) -> str:
    """The kernel of an entry."""
    return name.split("<")[0]


@pytest.fixture(scope="module")
def cubins():
    made = {}
    for targets in (jit.TARGETS, family.TARGETS):
        made |= compiled.cubins((job for job, its in ENTRIES.items() if its == targets), targets)
    return made


@pytest.fixture(scope="module")
def reports(cubins):
    return compiled.reports(cubins)


@pytest.fixture(scope="module")
def mixes(reports) -> dict[str, list[dict[str, int]]]:
    """kernel -> the instructions of each of its entries for Hopper."""
    made = {}
    for (entry, target), (_, mix) in reports.items():
        if target in family.TARGETS:
            made.setdefault(of(entry), []).append(mix)
    return made


# ------------------------------------------------------------------------------------ resources


def test_every_entry_compiles_without_spills_and_a_block_finds_its_registers(reports):
    assert {entry for entry, _ in reports} == {entry for _, entry in ENTRIES}
    for (entry, target), (used, mix) in reports.items():
        where = f"{entry} on {target}: {used}"
        assert not used.spills and mix["EXIT"], where
        threads = THREADS[of(entry)]
        assert math.ceil(used.registers / 8) * 8 * threads <= 65536, where
        if threads == 384:
            assert used.registers == 168, f"what setmaxnreg shares out: {where}"


def test_what_setmaxnreg_asks_for_is_there():
    """A warpgroup that loads gives, two that multiply take: no more than the 168 of each that a launch has."""
    text = "".join(path.read_text() for path in family.HERE.glob("*.cu*") if not path.stem.startswith("windows"))
    given, taken = (
        {int(x) for found in re.findall(rf"{way}_registers<([^>]+)>", text) for x in re.findall(r"\d+", found)}
        for way in ("give", "take")
    )
    assert (given, taken) == ({24, 40}, {240, 232})
    for less, more in ((24, 240), (40, 232)):
        assert (less + 2 * more) * 128 <= 3 * 168 * 128


def test_barriers_fit_beside_the_rings(reports):
    """`check` leaves 2 KiB for them, beside the KiB of the driver's that the report counts."""
    for (entry, target), (used, _) in reports.items():
        if of(entry) != "opt0" and target in family.TARGETS:
            assert used.shared_bytes <= family.STATIC + 1024, entry
    for name in RUNGS[1:]:
        for dtype, (_, size) in family.DTYPES.items():
            for order in "CF":
                need = published.shared_bytes(name, 256, size, order)
                assert need + family.STATIC <= MOST, f"{name} in {dtype}"


def test_two_blocks_of_opt2_share_an_sm(reports):
    """As its prediction, and that of opt3, say."""
    for (entry, _), (used, _) in reports.items():
        if of(entry) == "opt2":
            assert 65536 // (math.ceil(used.registers / 8) * 8 * 128) >= 2
            need = published.shared_bytes("opt2", 256, 2, "C") + used.shared_bytes
            assert 2 * need <= 228 * 1024


# -------------------------------------------------------------------------- what an idea is made of


def has(mix: dict[str, int], opcode: str, modifier: str = "") -> bool:
    return any(op.startswith(opcode) and modifier in op for op in mix)


def test_cuda_cores_multiply_in_opt0_and_tensor_cores_in_all_others(mixes):
    assert set(mixes) == {*RUNGS, "unit_ring"}
    for name, entries in mixes.items():
        for mix in entries:
            assert has(mix, "HGMMA") == (name != "opt0"), name
            assert not has(mix, "HMMA") and not has(mix, "LDGSTS"), name
            # Multiply-adds of a step of k, 64 rows each; the others have none worth the name.
            assert (count(mix, "FFMA") >= 64) == (name == "opt0"), name


@pytest.mark.parametrize(
    ("opcode", "modifier", "users"),
    [
        ("UTMALDG", "", {*RUNGS[2:], "unit_ring"}),  # TMA loads
        ("UTMASTG", "", {*RUNGS[2:], "unit_ring"} - {"opt7"}),  # and stores; opt7 has __stwt
        ("USETMAXREG", "", {*SPECIALISED}),  # warp specialisation
        ("UTMALDG", "MULTICAST", {"opt7"}),
        ("UCGABAR", "", {"opt7"}),  # a cluster
        ("ATOMG", "", {"opt6_atomic", "opt6_stealing", "unit_ring"}),  # tiles are claimed
    ],
)
def test_an_idea_shows_in_the_disassembly(mixes, opcode, modifier, users):
    found = {name: {has(mix, opcode, modifier) for mix in entries} for name, entries in mixes.items()}
    assert found == {name: {name in users} for name in found}


def test_opt1_loads_by_hand_and_stores_from_registers(mixes):
    for mix in mixes["opt1"]:
        assert count(mix, "LDG", 128) and count(mix, "STS", 128)
        assert not any(op.startswith("UTM") for op in mix)
    for name in ("opt2", "opt5", "unit_ring"):
        for mix in mixes[name]:
            assert not count(mix, "STG", 128), "C goes through shared memory"


def test_fewer_threads_arrive_in_opt4_than_in_opt3(mixes):
    """Waiting is no longer arriving: arrivals of opt3 are at every wait as well."""
    three, four = (
        sum(n for op, n in mixes[name][0].items() if op.startswith("SYNCS.ARRIVE")) for name in ("opt3", "opt4")
    )
    assert four < three


def test_the_multiplication_is_of_the_dtype_and_the_width(cubins):
    """A step of 128 bytes of k: four instructions, 16 values each, or 8 of TF32; B transposed where it is row-major."""
    kinds = {"BF16": "x16.F32.BF16", "F16": "x16.F32", "TF32": "x8.F32.TF32"}
    for entry in (*room.VARIANTS["opt5"].entries, *SWEEP, *room.VARIANTS["unit_ring"].entries):
        cubin = cubins[entry, "sm_90a"]
        work = re.findall(r"HGMMA\S+", jit.disassemble(cubin))
        dtype, arguments = entry.split("<")[1].split(", ")[0], entry.rstrip(">").split(", ")
        n = arguments[4 if of(entry) == "unit_ring" else 2]
        assert set(work) == {f"HGMMA.64x{n}{kinds[dtype]}"}, entry
        assert work and len(work) % 4 == 0, entry


def test_row_major_b_is_what_the_instruction_transposes(cubins):
    found = {"K_MAJOR": set(), "MN_MAJOR": set()}
    for entry in room.VARIANTS["unit_ring"].entries:
        code = jit.disassemble(cubins[entry, "sm_90a"])
        found[entry.split(", ")[1]] |= {"tnspB" in op for op in re.findall(r"HGMMA[^;]*;", code)}
    assert found == {"K_MAJOR": {False}, "MN_MAJOR": {True}}


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("unit_ring<TF32, MN_MAJOR, false, false, 64, 3, 5, 2, 1>", "TF32 wants a column-major B"),
        ("unit_ring<BF16, MN_MAJOR, false, false, 96, 3, 5, 2, 1>", "in chunks of 64 columns"),
        ("unit_ring<BF16, K_MAJOR, false, false, 64, 3, 2, 2, 1>", "at least 2 and 3 units"),
        ("unit_ring<BF16, K_MAJOR, false, false, 64, 1, 5, 2, 1>", "at least 2 and 3 units"),
        ("unit_ring<BF16, K_MAJOR, false, false, 64, 3, 5, 2, 3>", "1, 2 or 4 pieces"),
        ("opt5<BF16, false, 12, 3>", "8 to 256 columns"),
        ("opt1<BF16, false, 264>", "8 to 256 columns"),
    ],
)
def test_an_impossible_instantiation_says_why(entry, reason):
    source = family.HERE / f"{of(entry)}.cu"
    with pytest.raises(jit.CompileError, match=f"(?s){reason}"):
        jit.compile_cubin(source, entry, "sm_90a")
