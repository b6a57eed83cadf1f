"""Registers that warpgroups exchange: what is read in the machine code is what nvdisasm says of it, of every kernel;
and a kernel that would wait for ever is refused before it is launched."""

from __future__ import annotations

import importlib
import math
import re
import struct
from dataclasses import replace

import compiled
import pytest
from refused import says

from kernels import jit, registers
from kernels.async_sparse import layer
from kernels.tensor_core_24 import family, fp8

ROOMS = ("async_sparse", "casper_sparse", "nm_cuda_core", "nm_spmm", "tensor_core_24")
KERNELS = [
    kernel
    for module in (*map(importlib.import_module, (f"kernels.{room}" for room in ROOMS)), fp8)
    for kernel in module.VARIANTS.values()
    if registers.ARCH in kernel.targets and kernel.source.suffix == ".cu"
]
ENTRIES = {(kernel.source, entry) for kernel in KERNELS for entry in kernel.entries} | {
    (layer.GATED, "gated<BF16, 256, 3, 5, 2>")
}
#: Their text has the instructions, in branches that not every kernel takes.
MAY_EXCHANGE = {job for job in ENTRIES if "_registers<" in jit.with_includes(job[0])}

SOURCE = """
#include "wgmma.cuh"

// One warpgroup gives registers back, two take them. USED: floats of a thread that live across that.
template <int GIVEN, int TAKEN, int USED>
__global__ void LIMIT exchanges(float* x)
{
    float mine[USED];
#pragma unroll
    for (int i = 0; i < USED; ++i) mine[i] = x[i * blockDim.x + threadIdx.x];
    if (threadIdx.x < 128) {
        give_registers<GIVEN>();
        return;
    }
    take_registers<TAKEN>();
#pragma unroll
    for (int i = 0; i < USED; ++i) x[(USED - i) * blockDim.x + threadIdx.x] = mine[i];
}
"""


@pytest.fixture(scope="module")
def cubins():
    made = compiled.cubins(MAY_EXCHANGE, (registers.ARCH,))
    return {entry: cubin for entry, cubin in made.items() if "USETMAXREG" in jit.disassemble(cubin)}


@pytest.fixture(scope="module")
def of_its_own(tmp_path_factory):
    """A function: (GIVEN, TAKEN, USED, limit) -> the kernel above."""
    folder = tmp_path_factory.mktemp("registers")

    def made(*numbers: int, limit: str = "__launch_bounds__(384, 1)") -> jit.Cubin:
        path = folder / "exchanges.cu"
        path.write_text(SOURCE.replace("LIMIT", limit))
        entry = f"exchanges<{', '.join(map(str, numbers))}>"
        return jit.compile_cubin(path, entry, registers.ARCH)

    return made


def counted(cubin: jit.Cubin, count: int) -> jit.Cubin:
    """The same with another count of registers at launch, as another compiler may have it."""
    (at,) = (at for which, at in jit._attributes(cubin, ".nv.info") if which == 0x2F)
    code = bytearray(cubin.code)
    struct.pack_into("<I", code, at + 4, count)
    return replace(cubin, code=bytes(code))


def some(cubins) -> list[jit.Cubin]:
    """One kernel of each source, and every eighth: the disassembler takes longer than the compiler."""
    of_source = {cubin.source: cubin for cubin in cubins.values()}
    return [*of_source.values(), *list(cubins.values())[::8]]


def instructions(cubin: jit.Cubin):
    """(low and high half, text) of each instruction, without what guards it."""
    code = jit._instructions(cubin)
    for line in jit.disassemble(cubin).splitlines():
        if found := re.search(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(\S[^;]*)", line):
            yield *struct.unpack_from("<QQ", code, int(found[1], 16)), found[2]


def test_what_is_exchanged_is_what_nvdisasm_says(cubins):
    for cubin in some(cubins):
        asked = re.findall(r"USETMAXREG\.(\w+)\.CTAPOOL (?:UP\d, )?(0x\w+)", jit.disassemble(cubin))
        said = {(kind, int(number, 16)) for kind, number in asked}
        found = registers.exchange(jit._instructions(cubin))
        assert said == {("DEALLOC", found.given), ("TRY_ALLOC", found.taken)}, cubin.entry


def test_every_kernel_has_the_registers_that_it_exchanges(cubins):
    """At the counts of this compiler, and with one less a thread at some it would not."""
    refused = 0
    made = {
        entry: jit.launched_with(cubin, family.AT_LAUNCH)
        if getattr(family.KINDS.get(cubin.source.stem.removeprefix("wgmma_")), "exchanging", False)
        else cubin
        for entry, cubin in cubins.items()
    }
    for cubin, (used, _) in zip(made.values(), jit.reports(made.values()), strict=True):
        jit.require_registers(cubin)
        count = used.registers
        found = registers.exchange(jit._instructions(cubin))
        for threads in (256, 384, 512):
            if found.needed(threads // 128) == count:
                refused += 1
                with pytest.raises(ValueError, match="may wait for registers for ever"):
                    jit.require_registers(counted(cubin, count - 1))
    assert len(cubins) > 50 and refused > 40


def test_no_kernel_without_an_exchange_is_held_up(cubins):
    source, entry = min(ENTRIES - MAY_EXCHANGE)
    cubin = jit.compile_cubin(source, entry, registers.ARCH)
    assert registers.exchange(jit._instructions(cubin)) is None
    jit.require_registers(counted(cubin, 1))


def test_no_register_that_an_instruction_names_is_overlooked(cubins):
    """Every instruction of every kernel, whose places for registers are known by its opcode alone."""
    seen = set()
    for cubin in some(cubins):
        for low, high, text in instructions(cubin):
            named = {int(number) for number in re.findall(r"\bR(\d+)\b", text)}
            found = set(registers._named(low, high))
            jumps = {low & 0xFFF} & {
                *registers._JUMPS,
                0x941,
                registers._BRANCH,
                registers._TOGETHER,
            }
            wide = low & 0x1FF in registers._WIDE
            assert jumps or wide or max(named, default=-1) <= max(found - {255}, default=-1), text
            assert not wide or re.match(r"\w*MMA", text), text
            assert not re.match(r"\w*MMA\b", text) or wide, text
            seen.add(text.split()[0].split(".")[0])
    assert {"STSM", "LDG", "IMAD", "ISETP", "SYNCS", "HGMMA", "SHFL", "PLOP3"} <= seen


def test_branches_lead_where_nvdisasm_says(cubins):
    """The walk follows them; BSSY names where threads that go apart meet again."""
    counts = {"BRA": 0, "BSSY": 0}
    for cubin in some(cubins):
        at, labels, branches = 0, {}, []
        waiting = []
        for line in jit.disassemble(cubin).splitlines():
            if label := re.match(r"\s*(\.L_\w+):", line):
                waiting.append(label[1])
            elif found := re.search(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(\S[^;]*)", line):
                at = int(found[1], 16)
                labels |= dict.fromkeys(waiting, at)
                waiting = []
                if to := re.match(r"(BRA|BSSY)\b.*`\((\.L_\w+)\)", found[2]):
                    branches.append((at, to[1], to[2]))
        code = jit._instructions(cubin)
        for at, kind, label in branches:
            low, high = struct.unpack_from("<QQ", code, at)
            away = registers._offset(low, high) if kind == "BRA" else low >> 32
            if label in labels:  # in the kernel, not in a function behind it
                assert at + 16 + away == labels[label], cubin.entry
                counts[kind] += 1
    assert min(counts.values()) > 50


def test_a_kernel_that_would_wait_for_ever_is_refused(of_its_own):
    """In one sentence, by its entry, with what is missing and what to do."""
    right = of_its_own(40, 232, 8)
    assert registers.exchange(jit._instructions(right)) == registers.Exchange(40, 232)
    jit.require_registers(right)
    wrong = counted(right, 160)
    says(
        ["exchanges<40, 232, 8>", "160 registers", "one keeps 40", "take 232", "needs 168", "requirements/gpu.lock"],
        lambda: jit.require_registers(wrong),
    )
    with pytest.raises(ValueError, match="needs 168"):
        jit.load(wrong)
    more = of_its_own(40, 240, 8)
    with pytest.raises(ValueError, match="needs 174"):
        jit.require_registers(more)


def test_what_is_needed_is_what_all_have_together():
    for given, taken, groups in (
        (40, 232, 3),
        (24, 240, 3),
        (56, 200, 2),
        (32, 160, 4),
        (56, 224, 3),
    ):
        needed = registers.Exchange(given, taken).needed(groups)
        assert needed == math.ceil((given + (groups - 1) * taken) / groups)
    assert registers.Exchange(32, 160).needed(4) == family.AT_LAUNCH


def test_registers_before_the_exchange_bound_a_smaller_launch(of_its_own):
    """Of a kernel that is launched with fewer registers than the compiler knows of."""
    few = of_its_own(32, 160, 8, limit="__maxnreg__(160)")
    assert 8 <= registers.used_before(jit._instructions(few)) <= 128
    jit.require_registers(jit.launched_with(few, 128))
    code, used = jit._instructions(few), registers.used_before(jit._instructions(few))
    registers.require_before(code, used)
    says([f"may use {used} registers"], lambda: registers.require_before(code, used - 1))
    many = of_its_own(32, 160, 130, limit="__maxnreg__(160)")
    assert registers.used_before(jit._instructions(many)) > 128
    says(
        ["exchanges<32, 160, 130>", "before setmaxnreg", "begins with 128"],
        lambda: jit.launched_with(many, 128),
    )


def test_what_cannot_be_told_is_refused(of_its_own):
    """A jump to an address that only the GPU knows, before the exchange."""
    cubin = of_its_own(32, 160, 8, limit="__maxnreg__(160)")
    code = bytearray(jit._instructions(cubin))
    code[:2] = struct.pack("<H", 0x7949)  # BRX
    says(["0x949", "is not known"], lambda: registers.used_before(bytes(code)))


@pytest.mark.gpu
def test_the_driver_launches_with_the_count_of_the_cubin(device, cubins):
    if jit.arch_of(device) != registers.ARCH:
        pytest.skip("setmaxnreg is compute capability 9.0's")
    for cubin in cubins.values():
        exchanging = getattr(family.KINDS.get(cubin.source.stem.removeprefix("wgmma_")), "exchanging", False)
        made = jit.launched_with(cubin, family.AT_LAUNCH) if exchanging else cubin
        assert jit.load(made).attributes.num_regs == jit.resources(made).registers, cubin.entry
