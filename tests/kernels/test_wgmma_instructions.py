"""common/wgmma.cuh: each shape, type and order of B becomes the instruction of its name, without a GPU."""

from __future__ import annotations

import re

import pytest

from kernels import jit

#: Columns of B that the header has instructions for.
COLUMNS = (8, 16, 32, 64, 96, 128, 160, 192, 224, 256)
SOURCE = """
#include "wgmma.cuh"
__global__ void one(float* out, unsigned long long a, unsigned long long b, uint4 registers, unsigned word)
{
    float d[COLUMNS / 2] = {};
    wgmma_fence();
    INSTRUCTION;
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < COLUMNS / 2; ++i) out[i * 128 + threadIdx.x] = d[i];
}
"""


def instruction(folder, columns: int, call: str) -> str:
    """The HGMMA that a call with these columns becomes, as the disassembly has it."""
    path = folder / "one.cu"
    path.write_text(SOURCE.replace("INSTRUCTION", call).replace("COLUMNS", str(columns)))
    code = jit.disassemble(jit.compile_cubin(path, "one", "sm_90a"))
    (found,) = re.findall(r"HGMMA[^;]*;", code)
    return found


@pytest.mark.parametrize("columns", COLUMNS)
def test_tf32_has_any_columns(tmp_path, columns):
    found = instruction(tmp_path, columns, "WgmmaTf32<COLUMNS>::dense(d, registers, b, 1)")
    assert found.startswith(f"HGMMA.64x{columns}x8.F32.TF32 ") and "tnspB" not in found


@pytest.mark.parametrize("major", ["K_MAJOR", "MN_MAJOR"])
@pytest.mark.parametrize(
    ("columns", "dtype", "call", "name"),
    [
        *((n, "BF16", "dense(d, a, b, 1)", f"HGMMA.64x{n}x16.F32.BF16 ") for n in COLUMNS),
        (64, "F16", "dense(d, a, b, 1)", "HGMMA.64x64x16.F32 "),
        (256, "BF16", "sparse<0>(d, a, b, word, 1)", "HGMMA.SP.64x256x32.F32.BF16 "),
        (16, "F16", "sparse<1>(d, a, b, word, 1)", "HGMMA.SP.64x16x32.F32 "),
        (128, "BF16", "sparse<1>(d, registers, b, word, 1)", "HGMMA.SP.64x128x32.F32.BF16 "),
    ],
)  # fmt: skip
def test_b_is_transposed_where_its_columns_are_contiguous(
    tmp_path, columns, dtype, call, name, major
):
    found = instruction(tmp_path, columns, f"Wgmma<COLUMNS, {dtype}, {major}>::{call}")
    assert found.startswith(name) and ("tnspB" in found) == (major == "MN_MAJOR")


def test_b_is_transposed_unless_something_else_is_said(tmp_path):
    assert "tnspB" in instruction(tmp_path, 64, "Wgmma<COLUMNS, BF16>::dense(d, a, b, 1)")
