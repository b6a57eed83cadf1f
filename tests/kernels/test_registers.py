"""Registers that warpgroups exchange: what is read in the machine code is what nvdisasm says of it, of every kernel;
and a kernel that would wait for ever is refused before it is launched."""

import importlib
import re
import struct
from dataclasses import replace

import compiled
import pytest
from refused import says

from kernels import jit, registers
from kernels.async_sparse.family import HERE
from kernels.tensor_core_24 import family, fp8

SYSTEMS = ("async_sparse", "casper_sparse", "nm_cuda_core", "nm_spmm", "tensor_core_24")
KERNELS = [
    kernel
    for module in (*map(importlib.import_module, (f"kernels.{system}" for system in SYSTEMS)), fp8)
    for kernel in module.VARIANTS.values()
    if registers.ARCH in kernel.targets and kernel.source.suffix == ".cu"
]
ENTRIES = {(kernel.source, entry) for kernel in KERNELS for entry in kernel.entries} | {
    (HERE / "gated.cu", "gated<BF16, 256, 3, 5, 2>")
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
def cubins() -> list[jit.Cubin]:
    made = compiled.cubins(MAY_EXCHANGE, (registers.ARCH,)).values()
    return [cubin for cubin in made if registers.exchange(jit._instructions(cubin))]


@pytest.fixture(scope="module")
def of_its_own(tmp_path_factory):
    """A function: (GIVEN, TAKEN, USED, limit) -> the kernel above."""
    folder = tmp_path_factory.mktemp("registers")

    def made(*numbers: int, limit: str = "__launch_bounds__(384, 1)") -> jit.Cubin:
        path = folder / "exchanges.cu"
        path.write_text(SOURCE.replace("LIMIT", limit))
        return jit.compile_cubin(path, f"exchanges<{', '.join(map(str, numbers))}>", registers.ARCH)

    return made


def counts_of(cubin: jit.Cubin):
    return jit._attributes(cubin, ".nv.info")


def counted(cubin: jit.Cubin, count: int) -> jit.Cubin:
    """The same with another count of registers at launch, as another compiler may have it."""
    (at,) = (at for which, at in counts_of(cubin) if which == 0x2F)
    code = bytearray(cubin.code)
    struct.pack_into("<I", code, at + 4, count)
    return replace(cubin, code=bytes(code))


def launched(cubin: jit.Cubin) -> jit.Cubin:
    """As it is launched: with fewer registers than the compiler counts where its kind exchanges them."""
    kind = family.KINDS.get(cubin.source.stem.removeprefix("wgmma_"))
    return jit.launched_with(cubin, family.AT_LAUNCH) if getattr(kind, "exchanging", False) else cubin


def test_what_is_read_is_what_nvdisasm_says(cubins):
    """Of a kernel of every third source: what is exchanged, registers that are named, where branches lead. The walk
    follows these, and BSSY names where threads that go apart meet again."""
    seen, jumps = set(), {*registers._JUMPS, 0x941, registers._BRANCH, registers._TOGETHER}
    for cubin in [*{cubin.source: cubin for cubin in cubins}.values()][::3]:
        code, labels, branches, asked, waiting = jit._instructions(cubin), {}, [], set(), []
        for line in jit.disassemble(cubin).splitlines():
            if label := re.match(r"\s*(\.L_\w+):", line):
                waiting.append(label[1])
            if not (found := re.search(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(\S[^;]*)", line)):
                continue
            at, text = int(found[1], 16), found[2]
            labels, waiting = labels | dict.fromkeys(waiting, at), []
            low, high = struct.unpack_from("<QQ", code, at)
            named, read = {int(x) for x in re.findall(r"\bR(\d+)\b", text)}, registers._named(low, high)
            wide = low & 0x1FF in registers._WIDE
            enough = max(named, default=-1) <= max({*read} - {255}, default=-1)
            assert low & 0xFFF in jumps or wide or enough, text
            assert bool(re.match(r"\w*MMA\b", text)) <= wide <= bool(re.match(r"\w*MMA", text)), text
            asked |= set(re.findall(r"USETMAXREG\.(\w+)\.CTAPOOL (?:UP\d, )?(0x\w+)", text))
            if to := re.match(r"(BRA|BSSY)\b.*`\((\.L_\w+)\)", text):
                branches.append((to[2], at + 16 + (registers._offset(low, high) if to[1] == "BRA" else low >> 32)))
            seen.add(text.split()[0].split(".")[0])
        found = registers.exchange(code)
        assert asked == {("DEALLOC", hex(found.given)), ("TRY_ALLOC", hex(found.taken))}, cubin.entry
        # In the kernel, not in a function behind it.
        assert all(labels[label] == at for label, at in branches if label in labels) and len(branches) > 3, cubin.entry
    assert {"STSM", "LDG", "IMAD", "ISETP", "SYNCS", "HGMMA", "SHFL", "PLOP3", "BSSY"} <= seen


def test_every_kernel_has_the_registers_that_it_exchanges(cubins):
    """At the counts of this compiler, and with one less a thread at some it would not."""
    refused = 0
    for cubin in map(launched, cubins):
        jit.require_registers(cubin)
        (count,) = {struct.unpack_from("<2I", cubin.code, at)[1] for which, at in counts_of(cubin) if which == 0x2F}
        found = registers.exchange(jit._instructions(cubin))
        for threads in (256, 384, 512):
            if found.needed(threads // 128) == count:
                refused += 1
                says(
                    ["may wait for registers for ever"],
                    lambda cubin=cubin, n=count - 1: jit.require_registers(counted(cubin, n)),
                )
    assert len(cubins) > 50 and refused > 40
    jit.require_registers(counted(jit.compile_cubin(*min(ENTRIES - MAY_EXCHANGE), registers.ARCH), 1))


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
    says(["needs 168"], lambda: jit.load(wrong))
    says(["needs 174"], lambda: jit.require_registers(of_its_own(40, 240, 8)))
    assert registers.Exchange(56, 200).needed(2) == 128 and registers.Exchange(32, 160).needed(4) == family.AT_LAUNCH


def test_registers_before_the_exchange_bound_a_smaller_launch(of_its_own):
    """Of a kernel that is launched with fewer registers than the compiler knows of."""
    few = of_its_own(32, 160, 8, limit="__maxnreg__(160)")
    assert 8 <= registers.used_before(jit._instructions(few)) <= 128
    jit.require_registers(jit.launched_with(few, 128))
    used = registers.used_before(jit._instructions(few))
    jit.launched_with(few, used)
    says([f"may use {used} registers"], lambda: jit.launched_with(few, used - 1))
    many = of_its_own(32, 160, 130, limit="__maxnreg__(160)")
    assert registers.used_before(jit._instructions(many)) > 128
    says(
        ["exchanges<32, 160, 130>", "before setmaxnreg", "begins with 128"],
        lambda: jit.launched_with(many, 128),
    )


def test_what_cannot_be_told_is_refused(of_its_own):
    """A jump to an address that only the GPU knows, before the exchange."""
    code = bytearray(jit._instructions(of_its_own(32, 160, 8, limit="__maxnreg__(160)")))
    code[:2] = struct.pack("<H", 0x7949)  # BRX
    says(["0x949", "is not known"], lambda: registers.used_before(bytes(code)))


@pytest.mark.gpu
def test_the_driver_launches_with_the_count_of_the_cubin(device, cubins):
    if jit.arch_of(device) != registers.ARCH:
        pytest.skip("setmaxnreg is compute capability 9.0's")
    for cubin in cubins:
        made = launched(cubin)
        assert jit.load(made).attributes.num_regs == jit.resources(made).registers, cubin.entry
