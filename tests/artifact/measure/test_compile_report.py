"""The compile report: what is counted, and for which entries and targets."""

import sys
import types

import pytest

from artifact.measure import run
from kernels.contract import Kernel


@pytest.mark.parametrize(
    ("mix", "counts"),
    [
        ({"LDG.E.128.CONSTANT": 4, "LDG.E.128": 1, "LDG.E": 2}, {"LDG.128": 5, "LDG.32": 2}),
        ({"LDG.E.U8": 1, "LDS.S16": 1, "STS.64": 3}, {"LDG.8": 1, "LDS.16": 1, "STS.64": 3}),
        ({"LDGSTS.E.BYPASS.128": 2, "SHFL.IDX": 1}, {"LDGSTS.128": 2, "SHFL": 1}),
        ({"FFMA": 7, "FFMA.FTZ": 1, "IMAD.WIDE": 9, "BRA": 1}, {"FFMA": 8}),
        ({"STL.128": 1, "LDL": 2, "RED.E.ADD.F32.FTZ.RN.STRONG.GPU": 1}, {"STL.128": 1, "LDL.32": 2, "RED": 1}),
        (
            {"HMMA.16816.F32.BF16": 2, "HMMA.SP.16832.F32.BF16": 64, "HGMMA.SP.64": 3, "HGMMA.64": 1},
            {"HMMA": 2, "HMMA.SP": 64, "HGMMA.SP": 3, "HGMMA": 1},
        ),
    ],
)
def test_instructions_are_counted_by_width(mix, counts):
    assert run.count_instructions(mix) == counts


def test_the_compile_report_covers_every_target_of_a_kernel_without_a_gpu(monkeypatch, tmp_path):
    jit = pytest.importorskip("kernels.jit")
    source = tmp_path / "copy.cu"
    source.write_text(
        "template <int N> __global__ void copy(const float4* __restrict__ a, float4* b) {\n"
        "  b[threadIdx.x] = a[threadIdx.x * N];\n}\n"
    )
    targets = ("sm_80", "sm_90a")
    kernel = Kernel("copy", source, "", entries=("copy<1>", "copy<2>"), targets=targets)
    one = Kernel("one_gpu", source, "", entries=("copy<4>",), targets=("sm_90a",))
    module = types.ModuleType("kernels.tiny_room")
    module.VARIANTS = {"copy": kernel, "one_gpu": one}
    monkeypatch.setitem(sys.modules, "kernels.tiny_room", module)
    df = run.compile_report("tiny_room")
    assert list(df["target"]) == [*targets, *targets, "sm_90a"] and set(targets) <= set(jit.TARGETS)
    assert list(df["entry"].unique()) == ["copy<1>", "copy<2>", "copy<4>"]
    assert list(df["variant"].unique()) == ["copy", "one_gpu"]
    assert (df["LDG.128"] == 1).all() and (df["STG.128"] == 1).all()
    assert not df["spills"].any() and (df["registers"] > 0).all()
    assert "LDL.32" not in df.columns, "a column of zeros says nothing"
    asked = []
    compile_cubin = jit.compile_cubin
    monkeypatch.setattr(jit, "compile_cubin", lambda *of: asked.append(of[1:]) or compile_cubin(*of))
    few = run.compile_report("tiny_room", ["copy"], "sm_90a")
    assert list(few["entry"]) == ["copy<1>", "copy<2>"] and set(few["target"]) == {"sm_90a"}
    assert sorted(asked) == [("copy<1>", "sm_90a"), ("copy<2>", "sm_90a")], "nothing else is compiled"
