"""What the machine code says of multiply-adds: operands from one register bank, and the size of their loop.

The register file of these GPUs has two banks, registers of even and of odd number; an operand that the
instruction before marked `.reuse` in the same place comes from a cache instead. We take an FFMA with two
operands from one bank for two cycles: the chapter holds that against measured times.
"""

import re

#: A multiply-add of three registers, and whether each is marked.
_FFMA = re.compile(r"FFMA\s+R\d+" + r", [-|]?R(\d+)(\.reuse)?" * 3 + " ?;")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_LABEL = re.compile(r"^\s*(\.L_\w+):")
_BRANCH = re.compile(r"\bBRA(?:\.\w+)*\b.*`\((\.L_\w+)\)")


def loop(sass: str) -> str:
    """Return the smallest loop that has half of the multiply-adds; "" where none has.

    sass: `jit.disassemble` of a cubin; a loop is what lies between a label and a later branch to it.
    """
    lines = sass.splitlines()
    labels = {found[1]: at for at, line in enumerate(lines) if (found := _LABEL.match(line))}
    ends = {at: labels.get(to[1], at) for at, line in enumerate(lines) if (to := _BRANCH.search(line))}
    work = [bool((found := _INSTRUCTION.search(line)) and found[1] == "FFMA") for line in lines]
    held = [(end - at, at, end + 1) for end, at in ends.items() if 2 * sum(work[at:end]) >= sum(work) > 0]
    _, begin, end = min(held, default=(0, 0, 0))
    return "\n".join(lines[begin:end])


def instructions(sass: str) -> int:
    """How many there are, of 16 bytes each."""
    return sum(bool(_INSTRUCTION.search(line)) for line in sass.splitlines())


def conflicts(sass: str) -> dict[str, int]:
    """Count the multiply-adds with three registers, and those that read two or three of them from one bank.

    Returns ffma, two_same and three_same. sass: `jit.disassemble` of a cubin.
    """
    found = {"ffma": 0, "two_same": 0, "three_same": 0}
    kept: dict[int, int] = {}
    for line in filter(_INSTRUCTION.search, sass.splitlines()):
        match, before, kept = _FFMA.search(line), kept, {}
        if match:
            registers = {place: int(match[2 * place + 1]) for place in range(3)}
            read = [register % 2 for place, register in registers.items() if before.get(place) != register]
            most = max(read.count(0), read.count(1))
            kept = {place: register for place, register in registers.items() if match[2 * place + 2]}
            found["ffma"] += 1
            found["two_same"] += most == 2
            found["three_same"] += most == 3
    return found
