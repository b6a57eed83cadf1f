"""Registers that the warpgroups of a block exchange (setmaxnreg), read in the machine code of compute capability 9.0.

A launch gives every thread of a block as many registers as the compiler counted. One warpgroup then gives some back and
the others take more: they wait for ever where that many are not there, whatever the compiler was told to count. So
whoever loads such a kernel looks first: neither tool nor GPU is needed. What is known here of the encoding, sixteen
bytes an instruction, tests compare with nvdisasm.
"""

import struct
from dataclasses import dataclass

import numpy as np

ARCH = "sm_90a"
WARPGROUP = 128  #: threads
SM = 65_536  #: registers
_NONE = 255  # RZ
_EXCHANGE, _BRANCH, _EXIT = 0x9C8, 0x947, 0x94D
_TOGETHER = 0x945  # BSSY: threads that go apart after it meet where it says, each at a BSYNC
_ALWAYS = 0xE0  # of a branch or an exit: no second predicate, and neither a warp's vote nor its divergence decides
#: Opcodes, without what says where operands lie, that name more registers than four in a row: matrix instructions.
_WIDE = frozenset((0x037, 0x03C, 0x03D, 0x03F, 0x1F0, 0x1F1, 0x1F2, 0x1F3))
#: Of uniform registers and predicates alone.
_NO_REGISTERS = frozenset((*range(0x080, 0x0C0), 0x01C))
_COMPARISONS = (0x00B, 0x00C)  # FSETP, ISETP: of their third place a part is a predicate
#: Jumps, calls and returns, whose targets the walk does not know.
_JUMPS = frozenset(range(0x940, 0x960)) - {0x941, 0x946, 0x948, _BRANCH, _EXIT, _TOGETHER}


@dataclass(frozen=True)
class Exchange:
    """Registers of a thread from setmaxnreg on."""

    given: int  #: what the one warpgroup that gives keeps
    taken: int  #: what each of the others takes

    def needed(self, warpgroups: int) -> int:
        """Return registers of a thread that a launch of so many warpgroups has to begin with."""
        return -(-(self.given + (warpgroups - 1) * self.taken) // warpgroups)


def exchange(code: bytes) -> Exchange | None:
    """Return what warpgroups exchange in the instructions of a kernel; None where they exchange nothing.

    Raises ValueError where they do so otherwise than one giving, in one place, and the others taking.
    """
    words = np.frombuffer(code, "<u8").reshape(-1, 2)
    found = words[(words[:, 0] & 0xFFF) == _EXCHANGE]
    if not len(found):
        return None
    registers = found[:, 0] >> 32 & 0x1FF
    kinds = found[:, 1] >> 8 & 3  # 1: give back, 2: take
    given, taken = ({int(x) for x in registers[kinds == kind]} for kind in (1, 2))
    if len(given) != 1 or len(taken) != 1:
        raise ValueError(
            f"its warpgroups keep {sorted(given)} registers and take {sorted(taken)}, but one shall give, and the "
            "others take, in one number each"
        )
    return Exchange(given.pop(), taken.pop())


def used_before(code: bytes) -> int:
    """Return the registers of a thread that suffice before the first exchange on every path, or more.

    Each register that may be named counts as the first of four. Raises ValueError where that cannot be told: at a
    jump to who knows where, or a matrix instruction.
    """
    most, todo, seen = 0, [0], set()
    while todo:
        at = todo.pop()
        if at in seen or not 0 <= at < len(code):
            continue
        seen.add(at)
        low, high = struct.unpack_from("<QQ", code, at)
        opcode = low & 0xFFF
        if opcode == _EXCHANGE:
            continue
        if opcode in _JUMPS or opcode & 0x1FF in _WIDE:
            raise ValueError(
                f"what the instruction at {at:#x}, opcode {opcode:#x}, needs before setmaxnreg is not known"
            )
        always = low >> 12 & 0xF == 7 and high >> 18 & 0x3FF == _ALWAYS
        if opcode == _BRANCH:
            todo.append(at + 16 + _offset(low, high))
        elif opcode == _TOGETHER:
            always = False
            todo.append(at + 16 + (low >> 32))
        elif opcode != _EXIT:
            always = False
            most = max(most, 4 + max((x for x in _named(low, high) if x != _NONE), default=-4))
        if not always:
            todo.append(at + 16)
    return most


def _offset(low: int, high: int) -> int:
    """Bytes from the end of a branch to its target: words of four, 56 bits with a sign."""
    words = (low >> 34 | (high & 0x3FFFF) << 30) << 8 | low >> 16 & 0xFF
    return 4 * (words - (1 << 56) if words >> 55 else words)


def _named(low: int, high: int) -> tuple[int, ...]:
    """Numbers in all places where an instruction may name a register."""
    if low & 0x1FF in _NO_REGISTERS:
        return ()
    to, first, second, third = low >> 16 & 0xFF, low >> 24 & 0xFF, low >> 32 & 0xFF, high & 0xFF
    if low & 0x1FF in _COMPARISONS:
        third = _NONE
    # Arithmetic says where its second operand lies: in a register there, or it is none, and the third place counts.
    arithmetic = low & 0x1FF < 0x40
    return (to, first, third) if arithmetic and low >> 9 & 7 != 1 else (to, first, second, third)
