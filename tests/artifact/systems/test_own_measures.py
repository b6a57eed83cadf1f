"""Quantities, reducers and expectations of one system alone: what rules with them say of made-up records."""

from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import ALL, evidence, frames, outcome
from refused import refused

from artifact import registry
from artifact.systems.tensor_core_24 import measures
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED
from kernels import jit

RULES = registry.toml(Path(__file__).with_name("own_measures.toml"))
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
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def judged(rule: str, e, **other):
    """The outcome of a rule, in which a test may say something else."""
    return outcome(e, **{"experiments": ALL} | RULES[rule] | other)


def counters(metric: str = "c", **values: float):
    """Evidence with a counter of some contenders, or with some stalls of one."""
    by = {name: {metric: value} for name, value in values.items()}
    if metric == STALL:
        by = {"warp_per_row": {STALL.format(reason): value for reason, value in values.items()}}
    return evidence(counters=synthetic.counters(by))


def speedups(speedup):
    """Evidence of the published kernel's speedup, a number or by point."""
    return evidence(frames(speedup))


def along_densities(column: str, *factors: float):
    """Evidence whose counter, or rate of longer vectors, changes by these factors along the densities."""
    by = dict(zip(synthetic.DENSITIES, factors, strict=True))
    if column == "c":
        table = synthetic.counters({"warp_per_row": {"c": 1.0}})
        return evidence(counters=table.assign(value=table["density"].map(by)))
    first, last = synthetic.experiment("wide", label="vectors of 4"), synthetic.experiment("wide")
    last["tflops"] *= last["density"].map(by)
    return evidence({"wide": pd.concat([first, last], ignore_index=True)})


def changed(change, **how):
    """Evidence of sweeps of which each was changed."""
    return evidence({name: change(df) for name, df in frames(**how).items()})


def level_from(knee: int):
    """Throughput that rises up to a size along N."""
    rate = lambda df: np.minimum(df["n"], knee) * np.where(df["n"] > knee, 0.95, 1.0)  # noqa: E731
    return changed(lambda df: df.assign(tflops=rate(df)))


def prepared(launches: float):
    """A third of the points takes a thousand times as long to prepare."""
    more = lambda df: launches * np.where(df["density"] == 0.05, 1000, 1)  # noqa: E731
    return changed(lambda df: df.assign(prepare_ms=more(df) * df["median_us"] / 1e3))


def added(share: float):
    """Memory that any_n adds, of the values' bytes."""
    more = lambda df: share * 4 * df["nnz"] * (df["variant"] == "any_n")  # noqa: E731
    return changed(lambda df: df.assign(prepare_bytes=1e9 + more(df)))


def ranked(sign: float):
    speedups = {"wide": lambda m, n, k, d: n**0.1 + d, "square": lambda m, n, k, d: (n**0.1 + d) ** (3 * sign)}
    return evidence({name: synthetic.experiment("wide", of).assign(experiment=name) for name, of in speedups.items()})


@pytest.mark.parametrize(
    ("rule", "made", "expected", "said"),
    [
        ("use", lambda: counters(warp_per_row=93, cusparse_alg2=92), REPRODUCED, "cusparse_best 92% of the DRAM's"),
        ("use", lambda: counters(warp_per_row=70, cusparse_alg2=65), PARTLY, "warp_per_row 70% of the DRAM's"),
        ("use", lambda: counters(warp_per_row=93, cusparse_alg2=20), PARTLY, ""),  # only one of the two
        ("use", lambda: counters(warp_per_row=30, cusparse_alg2=20), NOT_REPRODUCED, ""),
        ("prepared", lambda: prepared(3), REPRODUCED, "median 3 launches"),
        ("prepared", lambda: prepared(50), PARTLY, "median 50 launches"),
        ("prepared", lambda: prepared(500), NOT_REPRODUCED, "median 500 launches"),
        ("somewhere", lambda: speedups({"wide": 0.7, "square": 0.8, "tall": 1.1}), REPRODUCED, "in 3 of 9 scenarios"),
        (
            "somewhere",
            lambda: speedups({"wide": 0.7, "square": 0.8, "tall": 1.1}),
            REPRODUCED,
            "1.10× over cuSPARSE (tall",
        ),
        ("somewhere", lambda: speedups(1.0), NOT_REPRODUCED, "best scenario"),
        ("somewhere", lambda: speedups(lambda m, n, k, d: 1.1 if n == 512 else 0.5), PARTLY, "best scenario"),
        ("stall", lambda: counters(STALL, long_scoreboard=4.2, wait=1.0, barrier=2.0), REPRODUCED, "the largest stall"),
        ("stall", lambda: counters(STALL, long_scoreboard=4.2, wait=1.0, selected=9.0), REPRODUCED, ""),  # no stall
        ("stall", lambda: counters(STALL, long_scoreboard=1.5, wait=1.0, barrier=2.0), NOT_REPRODUCED, ""),
        ("knee", lambda: level_from(2048), REPRODUCED, "any_n from N = 2048 on"),
        ("knee", lambda: level_from(1024), PARTLY, "any_n from N = 1024 on"),  # one step off
        ("knee", lambda: level_from(4096), PARTLY, ""),
        ("knee", lambda: level_from(8192), NOT_REPRODUCED, ""),
        ("ideal", lambda: speedups(lambda m, n, k, d: 0.9 / d), REPRODUCED, "of the ideal speedup over cusparse_best"),
        ("ideal", lambda: speedups(lambda m, n, k, d: 0.7 / d), PARTLY, ""),
        ("ideal", lambda: speedups(1.0), NOT_REPRODUCED, ""),  # of 20 to 200
        # FLOPs are as the density, 1 : 2 : 10, read from the highest density down.
        ("count", lambda: along_densities("c", 1, 2, 10), NOT_REPRODUCED, "0 of 2 steps fall"),  # the same for each
        ("count", lambda: along_densities("c", 1, 1.8, 8), REPRODUCED, "2 of 2 steps fall"),
        ("count", lambda: along_densities("c", 1, 1.93, 9.4), PARTLY, "0 of 2 steps fall"),  # 6% over all
        ("count", lambda: along_densities("c", 1, 2.1, 8), PARTLY, "1 of 2 steps fall"),
        ("count", lambda: along_densities("c", 1, 2.1, 11), NOT_REPRODUCED, ""),
        ("count_of_two", lambda: counters(warp_per_row=9, any_n=10), REPRODUCED, "1 of 1 steps fall"),
        ("count_of_two", lambda: counters(warp_per_row=11, any_n=10), NOT_REPRODUCED, ""),
        ("transition", evidence, REPRODUCED, "56% sparsity"),
        ("transition", evidence, REPRODUCED, "ridge at 15.0 FLOP/B"),
        ("transition", evidence, REPRODUCED, "L2: 85%"),
        ("labels", lambda: along_densities("label", 1.2, 1.2, 1.2), REPRODUCED, ""),
        ("labels", lambda: along_densities("label", 1.2, 1.2, 1.0), PARTLY, ""),
        ("labels", lambda: along_densities("label", 1.2, 1.0, 0.9), NOT_REPRODUCED, ""),
        ("labels", lambda: along_densities("label", 1.04, 1.04, 1.04), NOT_REPRODUCED, ""),  # within 5%
        ("memory", lambda: added(0.11), REPRODUCED, ""),
        ("memory", lambda: added(0.15), PARTLY, ""),
        ("memory", lambda: added(0.3), NOT_REPRODUCED, ""),
        ("memory", lambda: added(-0.05), NOT_REPRODUCED, ""),
        ("rank", lambda: ranked(1.0), REPRODUCED, "warp_per_row square 1.00"),
        ("rank", lambda: ranked(-1.0), NOT_REPRODUCED, "warp_per_row square -1.00"),
        ("ceiling", evidence, REPRODUCED, "2.00× over copy"),
        ("ceiling", evidence, REPRODUCED, "l2_read 8000 GB/s, copy 4000 GB/s"),
        ("above", lambda: speedups(lambda m, n, k, d: {2048: 0.5}.get(m, 1.0)), REPRODUCED, "12 of 12 points"),
        ("above", lambda: speedups(lambda m, n, k, d: {1024: 1.3, 2048: 1.2}.get(m, 1.0)), PARTLY, "3 of 12 points"),
        ("above", lambda: speedups(lambda m, n, k, d: {2048: 1.5}.get(m, 1.0)), NOT_REPRODUCED, "0 of 12 points"),
    ],
)
def test_a_rule_of_one_systems_own(rule, made, expected, said):
    got = judged(rule, made())
    assert got.verdict == expected and said in f"{got.measured} {got.why}"


@pytest.mark.parametrize(
    ("rule", "made", "other", "why"),
    [
        ("stall", lambda: counters(STALL, long_scoreboard=4.2, selected=1.0), {}, "long_scoreboard among others"),
        ("knee", lambda: evidence().only({"n": [512, 1024]}), {}, "three sizes"),
        ("count_of_two", lambda: counters(warp_per_row=1, any_n=0), {}, "a value of 0"),
        ("count_elsewhere", lambda: counters(any_n=1), {}, "Nothing was measured of any_n at density 70 %"),
        ("labels", evidence, {}, "two sizes"),
        ("rank", lambda: ranked(1.0), {"experiments": ["square"]}, "nothing to hold against wide"),
        ("above", evidence, {"reduce": {"share_above_that_at": "m", "value": 2049}}, "at m = 2049 and elsewhere"),
    ],
)
def test_a_rule_says_what_was_not_measured(rule, made, other, why):
    refused(why, judged, rule, made(), kind=NotMeasured, **other)


# ---------------------------------------------------------------- machine code


def counted(op: str, variant="mma_sp"):
    """How many of an instruction a kernel has that one was measured of; of which numbers does not matter."""
    rows = synthetic.experiment("square").query("variant == 'any_n'").assign(variant=variant)
    return measures.machine_code(evidence({"square": rows}), ["square"], op, "mma_sp", "sm_89").all.item()


def test_instructions_are_counted_in_the_machine_code_of_a_kernel_that_was_measured(monkeypatch):
    assert counted("HMMA.SP") == 64 and counted("LDSM") > 0 and counted("HGMMA") == 0
    refused("'mma_sp' was not measured in square", counted, "HMMA.SP", "any_n", kind=NotMeasured)
    monkeypatch.setattr(jit, "disassemble", Mock(side_effect=FileNotFoundError("nvdisasm is not there")))
    refused("nvdisasm is not there.", counted, "HMMA.SP", kind=NotMeasured)


@pytest.mark.parametrize("policy,size,exists", [("cg", 16, True), ("cg", 8, False), ("ca", 8, True)])
def test_copies_past_l1_are_of_16_bytes_only(tmp_path, policy, size, exists):
    """What 2:4's source found in an example; a statement on the instruction set, so that no record can show it."""
    source = tmp_path / "copy.cu"
    source.write_text(COPY.replace("POLICY", policy).replace("BYTES", str(size)))
    with nullcontext() if exists else pytest.raises(jit.CompileError, match="unexpected value '8', expected to be 16"):
        jit.compile_cubin(source, "copy", "sm_89")
