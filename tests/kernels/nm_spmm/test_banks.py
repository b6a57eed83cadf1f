"""Clashes of register banks, on machine code that was written by hand."""

from __future__ import annotations

import pytest

from kernels.nm_spmm import banks


def code(*instructions: str) -> str:
    """As the disassembler prints them, with a label, a comment and the other half of each encoding."""
    lines = ['\t.headerflags\t@"EF_CUDA_SM90"', ".text.wide:", "// a comment"]
    for number, text in enumerate(instructions):
        lines.append(
            f"        /*{16 * number:04x}*/                   {text} ;   /* 0x0000000a00037223 */"
        )
        lines.append("                                                  /* 0x000fe20000000041 */")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "instructions,expected",
    [
        # of three registers two are always of one bank, whatever is written
        (["FFMA R4, R1, R2, R4"], (1, 1, 0)),
        (["FFMA R5, R1, R2, R4"], (1, 1, 0)),
        (["FFMA R4, R2, R6, R9"], (1, 1, 0)),
        (["FFMA R4, R2, R6, R8"], (1, 0, 1)),
        (["FFMA R5, R1, R3, R5"], (1, 0, 1)),
        # two that are kept leave one read
        (["FFMA R4, R2.reuse, R6.reuse, R9", "FFMA R8, R2, R6, R10"], (2, 1, 0)),
        # signs do not matter, and neither does a predicate
        (["FFMA R4, -R2, R6, R9"], (1, 1, 0)),
        (["@P0 FFMA R4, R2, R6, R9"], (1, 1, 0)),
        (["@!UP3 FFMA R4, R2, R6, R9"], (1, 1, 0)),
        # what was kept in the same place is not read again
        (["FFMA R4, R2.reuse, R1, R4", "FFMA R6, R2, R3, R6"], (2, 1, 0)),
        (["FFMA R4, R2.reuse, R1, R5", "FFMA R8, R2, R6, R9"], (2, 1, 0)),
        (["FFMA R4, R2.reuse, R1, R5", "FFMA R8, R6, R2, R9"], (2, 2, 0)),
        (["FFMA R4, R2.reuse, R1, R5", "FFMA R8, R4, R6, R9"], (2, 2, 0)),
        (["FFMA R4, R2, R1, R5", "FFMA R8, R2, R6, R9"], (2, 2, 0)),
        # for one instruction only, unless it is marked again
        (["FFMA R4, R2.reuse, R1, R5", "FFMA R8, R2, R6, R9", "FFMA R8, R2, R6, R9"], (3, 2, 0)),
        (["FFMA R4, R2.reuse, R1, R5", "FFMA R8, R2.reuse, R6, R9", "FFMA R8, R2, R6, R9"], (3, 1, 0)),
        # another instruction in between ends it
        (["FFMA R4, R2.reuse, R1, R5", "LDS.128 R12, [R0+0x80]", "FFMA R8, R2, R6, R9"], (2, 2, 0)),
        (["FFMA R4, R2.reuse, R1, R5", "IADD3 R20, R21, R22, RZ", "FFMA R8, R2, R6, R9"], (2, 2, 0)),
        # a constant, an immediate, a uniform register or RZ is no register of a bank
        (["FFMA R4, R2, c[0x0][0x210], R6"], (0, 0, 0)),
        (["FFMA R4, R2, 1.5, R6"], (0, 0, 0)),
        (["FFMA R4, R2, UR4, R6"], (0, 0, 0)),
        (["FFMA R4, R2, R6, RZ"], (0, 0, 0)),
        # others are not counted
        (["FMUL R4, R2, R6", "FADD R4, R2, R6", "DFMA R4, R2, R6, R8", "EXIT"], (0, 0, 0)),
    ],
)  # fmt: skip
def test_by_hand(instructions, expected):
    found = banks.conflicts(code(*instructions))
    assert (found["ffma"], found["two_same"], found["three_same"]) == expected


def test_nothing_is_no_clash():
    assert banks.conflicts("") == {"ffma": 0, "two_same": 0, "three_same": 0}
    assert banks.conflicts(code("EXIT")) == {"ffma": 0, "two_same": 0, "three_same": 0}
