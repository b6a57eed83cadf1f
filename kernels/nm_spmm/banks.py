"""What the machine code says of multiply-adds: operands from one register bank, and the size of their loop.

The register file of these GPUs has two banks, registers of even and of odd number; an operand that the
instruction before marked `.reuse` in the same place comes from a cache instead. We take an FFMA with two
operands from one bank for two cycles: the chapter holds that against measured times.
"""

import re

_FFMA = re.compile(r"FFMA\s+R\d+, (\S+), (\S+), (\S+?) ?;")
_REGISTER = re.compile(r"[-|]?R(\d+)(\.reuse)?")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_LABEL = re.compile(r"^\s*(\.L_\w+):")
_BRANCH = re.compile(r"\bBRA(?:\.\w+)*\b.*`\((\.L_\w+)\)")


def loop(sass: str) -> str:
    """Return the smallest loop that has half of the multiply-adds; "" where none has.

    sass: `jit.disassemble` of a cubin; a loop is what lies between a label and a later branch to it.
    """
    lines = sass.splitlines()
    labels: dict[str, int] = {}
    loops, ffma = [], [0]
    for place, line in enumerate(lines):
        instruction = _INSTRUCTION.search(line)
        ffma.append(ffma[-1] + bool(instruction and instruction[1] == "FFMA"))
        if label := _LABEL.match(line):
            labels[label[1]] = place
        elif (to := _BRANCH.search(line)) and to[1] in labels:
            loops.append((labels[to[1]], place + 1))
    held = [(end - at, at, end) for at, end in loops if 2 * (ffma[end] - ffma[at]) >= ffma[-1] > 0]
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
    cached: dict[int, int] = {}
    for line in sass.splitlines():
        if not _INSTRUCTION.search(line):
            continue
        match = _FFMA.search(line)
        operands = [x for x in map(_REGISTER.fullmatch, match.groups()) if x] if match else []
        if len(operands) < 3:
            cached = {}
            continue
        read = [0, 0]
        for place, operand in enumerate(operands):
            register = int(operand[1])
            read[register % 2] += cached.get(place) != register
        cached = {place: int(x[1]) for place, x in enumerate(operands) if x[2]}
        found["ffma"] += 1
        found["two_same"] += max(read) == 2
        found["three_same"] += max(read) == 3
    return found
