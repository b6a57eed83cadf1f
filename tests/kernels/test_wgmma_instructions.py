"""common/wgmma.cuh: each shape, type and order of B becomes the instruction of its name, without a GPU."""

import re

import pytest

from kernels import jit

#: Columns of B that the header has instructions for.
COLUMNS = (8, 16, 32, 64, 96, 128, 160, 192, 224, 256)
KERNEL = """
#include "wgmma.cuh"
__global__ void several(float* out, unsigned long long a, unsigned long long b, uint4 registers, unsigned word)
{
    BLOCKS
}
"""
BLOCK = """{
    float d[COLUMNS / 2] = {};
    wgmma_fence();
    INSTRUCTION;
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < COLUMNS / 2; ++i) out[i * 128 + threadIdx.x] += d[i];
}
"""
#: Columns, type, a call, and the instruction that it becomes.
CASES = (
    *((n, "BF16", "dense(d, a, b, 1)", f"HGMMA.64x{n}x16.F32.BF16 ") for n in COLUMNS),
    (64, "F16", "dense(d, a, b, 1)", "HGMMA.64x64x16.F32 "),
    (256, "BF16", "sparse<0>(d, a, b, word, 1)", "HGMMA.SP.64x256x32.F32.BF16 "),
    (16, "F16", "sparse<1>(d, a, b, word, 1)", "HGMMA.SP.64x16x32.F32 "),
    (128, "BF16", "sparse<1>(d, registers, b, word, 1)", "HGMMA.SP.64x128x32.F32.BF16 "),
)


def instructions(folder, calls: list[tuple[int, str]]) -> list[str]:
    """The HGMMAs that calls with these columns become, one after the other, as the disassembly has them."""
    blocks = (BLOCK.replace("INSTRUCTION", x).replace("COLUMNS", str(n)) for n, x in calls)
    path = folder / "several.cu"
    path.write_text(KERNEL.replace("BLOCKS", "".join(blocks)))
    found = re.findall(r"HGMMA[^;]*;", jit.disassemble(jit.compile_cubin(path, "several", "sm_90a")))
    assert len(found) == len(calls)
    return found


def test_tf32_has_any_columns(tmp_path):
    call = "WgmmaTf32<COLUMNS>::dense(d, registers, b, 1)"
    for n, found in zip(COLUMNS, instructions(tmp_path, [(n, call) for n in COLUMNS]), strict=True):
        assert found.startswith(f"HGMMA.64x{n}x8.F32.TF32 ") and "tnspB" not in found


@pytest.mark.parametrize("major", ["K_MAJOR", "MN_MAJOR"])
def test_b_is_transposed_where_its_columns_are_contiguous(tmp_path, major):
    calls = [(n, f"Wgmma<COLUMNS, {dtype}, {major}>::{call}") for n, dtype, call, _ in CASES]
    for (*_, name), found in zip(CASES, instructions(tmp_path, calls), strict=True):
        assert found.startswith(name) and ("tnspB" in found) == (major == "MN_MAJOR")
