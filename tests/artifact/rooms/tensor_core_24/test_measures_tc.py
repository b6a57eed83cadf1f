"""The measures that only claims of 2:4 on tensor cores need: one ceiling over another, instructions of a kernel,
sizes held against one of them."""

import pytest
import synthetic
from judging import SPEEDUP, evidence, frames, outcome

from artifact.rooms.tensor_core_24 import measures
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED
from kernels import jit


def over(ceiling: str, other: str, low=2.0, high=2.0):
    quantity = {"ceiling": ceiling, "over": other, "rate": "gbps"}
    expect = {"near": [low, high], "factor": 1.02, "partly": 1.2}
    return outcome(evidence(), quantity, "each point", expect, ["ceilings"], "tensor_core_24")


@pytest.mark.parametrize(
    "low,high,expected",
    [(2, 2, REPRODUCED), (1.9, 1.9, PARTLY), (2.2, 2.2, PARTLY), (1, 1, NOT_REPRODUCED)],
)
def test_a_ceiling_over_another(low, high, expected):
    """The L2 of the model delivers twice what its DRAM does."""
    got = over("l2_read", "copy", low, high)
    assert got.verdict == expected and got.measured == "2.00× over copy"
    assert "l2_read 8000 GB/s, copy 4000 GB/s" in got.why


@pytest.mark.parametrize("names", [("wgmma_sp", "copy"), ("copy", "wgmma")])
def test_both_are_needed(names):
    with pytest.raises(NotMeasured, match="The ceiling 'wgmma.*' was not measured"):
        over(*names)


# ---------------------------------------------------------------- sizes held against one of them


@pytest.mark.parametrize(
    "best,expected",
    [({2048: 0.5}, REPRODUCED), ({1024: 1.3, 2048: 1.2}, PARTLY), ({2048: 1.5}, NOT_REPRODUCED)],
)
def test_the_share_of_sizes_above_one_of_them(best, expected):
    """best: speedups at some sizes; elsewhere 1."""
    e = evidence(frames(lambda m, n, k, d: best.get(m, 1.0)))
    reduce = {"share_above_that_at": "m", "value": 2048}
    expect = {"at_least": 0.9, "partly": 0.2}
    got = outcome(e, SPEEDUP, reduce, expect, ["square"], "tensor_core_24")
    assert got.verdict == expected and "of 12 points" in got.measured
    with pytest.raises(NotMeasured, match="at m = 2049 and elsewhere"):
        outcome(e, SPEEDUP, reduce | {"value": 2049}, expect, ["square"], "tensor_core_24")


# ---------------------------------------------------------------- machine code


def of_a_kernel(variant="mma_sp"):
    """Records of the room's published kernel; of which numbers does not matter."""
    rows = synthetic.experiment("square")
    return evidence({"square": rows[rows["variant"] == rows["variant"].iloc[0]].assign(variant=variant)})


def test_instructions_are_counted_in_the_machine_code():
    counts = {
        op: measures.machine_code(of_a_kernel(), ["square"], op, "mma_sp", "sm_89").all.item()
        for op in ("HMMA.SP", "LDSM", "HGMMA")
    }
    assert counts["HMMA.SP"] == 64 and counts["LDSM"] > 0 and counts["HGMMA"] == 0


def test_the_machine_code_is_of_a_kernel_that_was_measured():
    with pytest.raises(NotMeasured, match="'mma_sp' was not measured in square"):
        measures.machine_code(of_a_kernel("any_n"), ["square"], "HMMA.SP", "mma_sp", "sm_89")


def test_without_a_disassembler_instructions_are_not_counted(monkeypatch):
    def missing(*_):
        raise FileNotFoundError("nvdisasm is not there")

    monkeypatch.setattr(measures, "instructions", missing)
    with pytest.raises(NotMeasured, match="nvdisasm is not there."):
        measures.machine_code(of_a_kernel(), ["square"], "HMMA.SP", "mma_sp", "sm_89")


COPY = """
extern "C" __global__ void copy(const float* from, float* to) {
  __shared__ __align__(16) float tile[256];
  unsigned place = (unsigned)__cvta_generic_to_shared(tile + 4 * threadIdx.x);
  asm volatile("cp.async.POLICY.shared.global [%0], [%1], BYTES;" ::"r"(place), "l"(from + 4 * threadIdx.x));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  to[threadIdx.x] = tile[threadIdx.x];
}
"""


@pytest.mark.parametrize("policy,size,exists", [("cg", 16, True), ("cg", 8, False), ("ca", 8, True)])
def test_copies_past_l1_are_of_16_bytes_only(tmp_path, policy, size, exists):
    """What the source found in an example; a statement on the instruction set, so that no record can show it."""
    source = tmp_path / "copy.cu"
    source.write_text(COPY.replace("POLICY", policy).replace("BYTES", str(size)))
    if exists:
        assert jit.compile_cubin(source, "copy", "sm_89").code
    else:
        with pytest.raises(jit.CompileError, match="unexpected value '8', expected to be 16"):
            jit.compile_cubin(source, "copy", "sm_89")
