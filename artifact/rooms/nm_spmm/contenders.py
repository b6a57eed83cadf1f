"""Who is measured in which experiment, and on which GPU: the chapter's view of `kernels.nm_spmm`."""

from __future__ import annotations

from collections.abc import Container
from functools import partial

from kernels import jit, tuning
from kernels import nm_spmm as room
from kernels.nm_spmm import family, ladder

#: Our rungs in their order: name -> configuration, idea, prediction; those tried and not kept likewise.
RUNGS, TRIALS = family.RUNGS, family.TRIALS
LADDER = [v for v in family.KERNELS if v in room.VARIANTS]
FOR_FEW = [v for v in LADDER if RUNGS[v][0].split > 1]  #: rungs that cut K, for few tiles
#: Type -> its kernel and library, of the tensor cores.
DTYPES = {"tf32": ["tf32", "cublas_tf32"], "bfloat16": ["bf16", "cublas_bf16"]}
PAPER = ["v1", "v2", "v3"]
#: What the authors ran, as they ran it: nmSPARSE, V3 with the best tile and number of shares, and their fourth tile.
AS_RUN = ["nmsparse_vw32", "v3_searched", "square"]
#: Who stands for nmSPARSE, to the letter first -> what tables call it.
NMSPARSE = {"nmsparse_vw32": "nmSPARSE, rebuilt", "nm_baseline": "nmSPARSE-style"}
ABOUT_C = [v for v in LADDER if v not in FOR_FEW]
#: Experiment -> contenders. Rungs of ours, and what is AS_RUN, are left out where a record does not have them.
CONTENDERS = {
    "stepwise": [*PAPER, *ABOUT_C, "auto", "cublas", "nm_baseline", "nmsparse_vw32"],
    "sizes": ["small", "medium", "large", "square", "auto", "cublas"],
    "llama": ["v3", "auto", "cublas", "nm_baseline", "nmsparse_vw32"],
    "anchors": [
        *("v3", "v3_split_k", "v3_searched", "ahead"),
        *LADDER[-1 - len(FOR_FEW) :],
        *("auto", "cublas", "nm_baseline", "nmsparse_vw32"),
    ],
    "packing": ["v3_packed", "v3_unpacked"],
    "tried": ["bulk", "rolled", "turned", *TRIALS],
    "vectors": ["v3", "auto"],
    "ragged": ["v3", "auto", "cublas"],
    "unstructured": ["v3", "auto", "nm_baseline", "nmsparse_vw32", "cublas"],
}


def nmsparse_in(contenders: Container[str]) -> str:
    """Who stands for nmSPARSE among these: our kernel in its style where they lack nmSPARSE's to the letter."""
    return next((v for v in NMSPARSE if v in contenders), "nm_baseline")


def takes(name: str, arch: str) -> bool:
    """Whether a contender is for GPUs of `arch`: libraries are, and kernels that are compiled for it or for all."""
    targets = room.VARIANTS[name].targets if name in room.VARIANTS else jit.TARGETS
    if name in TRIALS:
        targets = family.HOPPER
    # `auto` tries what the GPU has.
    return name == "auto" or arch in targets or set(targets) == set(jit.TARGETS)


def trials(device) -> dict:
    """What was tried beside the ladder, as contenders of a measurement."""
    return {name: partial(ladder.bind, name, device=device) for name in TRIALS}


def rows_of_a_step(rung: str, keep: int, group: int) -> int:
    """Compressed rows that a step of a rung multiplies."""
    return family.rows(RUNGS[rung][0], keep, group)


def chosen_tile(gpu: str, key: tuple[int, ...]) -> tuple[int, int] | None:
    """Rows and columns of a block of the configuration that `auto` takes on `gpu`, by the choices that are
    shipped; None where there is none. key: m, n, k, keep, group, vector."""
    path = family.CHOICES.shipped / f"{gpu}.csv"
    choice = tuning.read(family.CHOICES, path).get(key) if path.is_file() else None
    return (choice.config.bm, choice.config.bn) if choice else None
