"""What the compiler makes of mma_sp.cu: registers, shared memory, and the instructions that the source names."""

import itertools
import math
import re

import compiled
import pytest
from compiled import count

from kernels import jit, tensor_core_24 as system
from kernels.formats import half
from kernels.tensor_core_24 import family
from kernels.tensor_core_24.family import MMA_SP_FAMILY, PUBLISHED, STUDIES, MmaSp

#: Largest dynamic shared memory of a block, bytes: 163 KiB on sm_80, 99 on sm_89 and sm_120, 227 on sm_90.
MOST = {"sm_80": 166912, "sm_89": 101376, "sm_90a": 232448, "sm_120": 101376}
ALIGNS = (16, 8, 4, 2)
#: Of the published kernel and its studies, what the system declares, so what the chapter compiles as well.
DECLARED = tuple(dict.fromkeys(e for name in ("mma_sp", *STUDIES) for e in system.VARIANTS[name].entries))
#: Of each of them the first.
FIRST = tuple(system.VARIANTS[name].entries[0] for name in ("mma_sp", *STUDIES))
#: What a tuner may ask for: of each work of a warp the largest block, in the most stages; with a mask, which wants more
#: registers than without and has the same loop.
LARGEST = {(c.wm, c.wn, c.bk): c for c in sorted(MMA_SP_FAMILY, key=lambda c: (c.threads, c.bm * c.bn, c.stages))}
FAMILY_MASKED = tuple(config.entry("bfloat16", True) for config in LARGEST.values())
EPILOGUES = tuple(PUBLISHED.entry("bfloat16", False, 16, epilogue) for epilogue in family.EPILOGUE_OF.values())
NARROW = tuple(PUBLISHED.entry("bfloat16", True, align) for align in ALIGNS)
#: The most that one instance does, and that with the smaller tiles of a warp.
HARDEST = (
    PUBLISHED.entry("bfloat16", True, 2, "ALPHA | BETA | BIAS"),
    MmaSp(wn=32, stages=4, group=8).entry("bfloat16", True),
    MmaSp(bm=64, bn=64, bk=128, wm=32, wn=32, stages=4).entry("bfloat16", True),
)
#: entry -> its configuration, of all that may be asked for.
CONFIGS = {
    c.entry(*of): c
    for c in (*MMA_SP_FAMILY, *STUDIES.values())
    for of in itertools.product(half.DTYPES, (False, True), ALIGNS, family.EPILOGUE_OF.values())
}
#: All of them for one target; for the others, whose machine code differs in little, the first and the hardest.
ENTRIES = {arch: tuple(dict.fromkeys(FIRST + HARDEST)) for arch in jit.TARGETS}
ENTRIES["sm_90a"] = tuple(
    dict.fromkeys(
        [
            *DECLARED,
            *HARDEST,
            *FAMILY_MASKED,
            *EPILOGUES,
            *NARROW,
            PUBLISHED.entry("float16", True, 2, "ALPHA | BETA | BIAS"),
        ]
    )
)
#: Where a kernel wants all 255 registers, some versions of the compiler are a few short: loads and stores of
#: them, beside the 64 multiplications of the loop.
SPILLS = {"sm_120": 15}


@pytest.fixture(scope="module")
def cubins():
    found = {}
    for arch, entries in ENTRIES.items():
        found |= compiled.cubins(((PUBLISHED.source, name) for name in entries), [arch])
    return found


@pytest.fixture(scope="module")
def reports(cubins):
    return compiled.reports(cubins)


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_every_entry_compiles_without_spills_and_a_block_finds_its_registers(reports, arch):
    for name in ENTRIES[arch]:
        used, _ = reports[name, arch]
        where = f"{name} on {arch}: {used}"
        assert used.spills <= (arch in SPILLS), where
        assert used.spill_loads + used.spill_stores <= SPILLS.get(arch, 0), where
        assert used.shared_bytes in (0, 1024), f"dynamic; 1 KiB may be the driver's: {where}"
        registers = math.ceil(used.registers / 8) * 8
        assert CONFIGS[name].threads * registers <= 65536, where


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_a_step_multiplies_the_whole_tile(reports, arch):
    """One loop, unrolled over a step: the source's 64 instructions a warp for 64 x 64 x 64."""
    for name in ENTRIES[arch]:
        _, mix = reports[name, arch]
        config, dtype = CONFIGS[name], ".BF16" if "<BF16" in name else ""
        each = config.wm // 16 * (config.wn // 8) * (config.bk // 32)
        found = {op: n for op, n in mix.items() if "MMA" in op}
        assert found == {f"HMMA.SP.16832.F32{dtype}": each}, f"{name} on {arch}"
        assert each == 64 or (config.wm, config.wn, config.bk) != (64, 64, 64)


#: Copies of 16 bytes that pass L1 by, and of 8 through L1, as the source prints them.
BY, THROUGH = "LDGSTS.E.BYPASS.LTC128B.128", "LDGSTS.E.LTC128B.64"


@compiled.exact
@pytest.mark.parametrize("arch", jit.TARGETS)
def test_operands_come_by_ldmatrix_and_copies_pass_l1_by_unless_they_are_ca(reports, arch):
    """A by four, B transposed by eight in each part of a step, two in the loop and one before it; metadata for each
    step. Copies are of the loop, and of all stages but one before it: 4 of A, 8 of B, 1 of metadata."""
    for name, config in {"mma_sp": PUBLISHED, **STUDIES}.items():
        _, mix = reports[config.entry("bfloat16"), arch]
        loads = {"LDSM.16.MT88.4": 3 * 8, "LDSM.16.M88.4": 3 * 4}
        loads |= {"mma_sp_x2": {"LDSM.16.M88.2": 3}, "mma_sp_one_selector": {"LDS": 3 * 4}}.get(
            name, {"LDSM.16.M88.4": 3 * 4 + 2}
        )
        s = config.stages
        copies = {"mma_sp_ca": {"LDGSTS.E.LTC128B.128": 13 * s}, "mma_sp_all_threads": {BY: 12 * s, THROUGH: s}}
        expected = loads | copies.get(name, {BY: 13 * s})
        assert {op: n for op, n in mix.items() if op == "LDS" or op.startswith(("LDSM", "LDGSTS"))} == expected, name
        assert mix["LDGDEPBAR"] == s and not count(mix, "LDG"), name


@pytest.mark.parametrize("align", ALIGNS)
def test_narrow_rows_are_copied_in_narrow_pieces(reports, align):
    _, mix = reports[PUBLISHED.entry("bfloat16", True, align), "sm_90a"]
    width = {16: ".128", 8: ".64", 4: "", 2: ".U16"}[align]
    assert {op for op in mix if op.startswith("STG")} == {f"STG.E{width}"}
    assert {op for op in mix if re.match(r"LDG\.", op)} == ({"LDG.E.U16.CONSTANT"} if align == 2 else set())
    copies = {op for op in mix if op.startswith("LDGSTS")}
    assert copies == {"LDGSTS.E.BYPASS.LTC128B.128"} | ({f"LDGSTS.E.LTC128B{width}"} if align in (8, 4) else set())
