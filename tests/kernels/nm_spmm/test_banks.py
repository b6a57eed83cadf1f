"""Clashes of register banks, on machine code that was written by hand."""

import pytest

from kernels.nm_spmm import banks


def code(*instructions: str) -> str:
    """As the disassembler prints them, with a label, a comment and the other half of each encoding."""
    lines = ['\t.headerflags\t@"EF_CUDA_SM90"', ".text.wide:", "// a comment"]
    for number, text in enumerate(instructions):
        lines.append(f"        /*{16 * number:04x}*/                   {text} ;   /* 0x0000000a00037223 */")
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
)
def test_by_hand(instructions, expected):
    found = banks.conflicts(code(*instructions))
    assert (found["ffma"], found["two_same"], found["three_same"]) == expected


def test_nothing_is_no_clash():
    assert banks.conflicts("") == banks.conflicts(code("EXIT")) == {"ffma": 0, "two_same": 0, "three_same": 0}


FMAS = ["FFMA R4, R1, R2, R4"] * 4


@pytest.mark.parametrize(
    "lines,expected",
    [
        # a loop of its own inside one that also does something else
        ([".L_x_0:", "LDS R1, [R2]", ".L_x_1:", *FMAS, "@P0 BRA `(.L_x_1)", "@P1 BRA `(.L_x_0)"], 5 * 16),
        # one that is unrolled whole: the outer loop is the only one with multiply-adds
        ([".L_x_0:", "LDS R1, [R2]", ".L_x_1:", "SYNCS R1", "@!P0 BRA `(.L_x_1)", *FMAS, "@P1 BRA `(.L_x_0)"], 8 * 16),
        # forward branches and branches to nowhere are no loops
        (["@P0 BRA `(.L_x_3)", "FFMA R4, R1, R2, R4", ".L_x_3:", "EXIT"], 0),
        ([".L_x_0:", "FADD R4, R1, R2", "@P0 BRA `(.L_x_0)"], 0),
        ([], 0),
    ],
)
def test_the_loop_of_the_multiply_adds(lines, expected):
    text = "\n".join(
        line if line.startswith(".L") else f"        /*{16 * i:04x}*/   {line} ;   /* 0x000 */"
        for i, line in enumerate(lines)
    )
    assert 16 * banks.instructions(banks.loop(text)) == expected
