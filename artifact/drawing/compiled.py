"""What a page shows of kernels that it compiles itself, and of a problem that its reader makes up."""

from __future__ import annotations

import importlib
import re

from artifact.drawing import words
from artifact.measure.run import BUDGETS_S, Run, measure_point
from kernels import jit
from kernels.contract import Kernel, Problem

HOPPER = "sm_90a"  #: whose machine code pages show


def instructions(kernel: Kernel, target: str = HOPPER) -> list[str]:
    """SASS of a kernel's first instantiation, an instruction each, without addresses."""
    text = jit.disassemble(jit.compile_cubin(kernel.source, kernel.entries[0], target))
    return [" ".join(op.split()) for op in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", text)]


def tried(run: Run, variant: str, problem: Problem) -> str:
    """What becomes of a variant of the run's room on any problem: checked and timed where `run` measures,
    else compiled. Nothing is recorded.

    Raises ValueError where the room has no such variant or it does not take the problem, and
    `check.WrongResult` where the result is wrong.
    """
    variants = importlib.import_module(f"kernels.{run.room}").VARIANTS
    if variant not in variants:
        raise ValueError(f"variant is {variant!r}, but must be one of {', '.join(variants)}")
    where = f"`{variant}` at {words.shape((problem.m, problem.n, problem.k))}, seed {problem.seed}"
    if run.device is None:
        return f"{where}: not run, because this page measures nothing. {_built(variants[variant])}"
    point = measure_point(problem, run.variants([variant]), run.device, BUDGETS_S[run.preset])
    _, errors, timing = point[variant]
    rate = problem.useful_flops / timing.median_us / 1e6
    return (
        f"{where}: {timing.median_us:,.1f} µs, {rate:,.1f} TFLOP/s (FLOPs are {problem.flops_def}), relative error "
        f"{errors.rel_err:.1e} against float64."
    )


def _built(kernel: Kernel) -> str:
    """Registers and spills of a kernel's first instantiation, for Hopper where it is made for that."""
    if not kernel.entries:
        return f"`{kernel.name}` chooses among the others and has no kernel of its own to compile."
    target = HOPPER if HOPPER in kernel.targets else kernel.targets[-1]
    used = jit.resources(jit.compile_cubin(kernel.source, kernel.entries[0], target))
    return (
        f"Compiled for {target}, `{kernel.entries[0]}` takes {used.registers} registers a thread and spills "
        f"{'some' if used.spills else 'none'}."
    )
