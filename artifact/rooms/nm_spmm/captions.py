"""Alternative texts, captions and folds of the chapter's figures, by the figure's name."""

from __future__ import annotations

from collections.abc import Callable

from artifact.drawing import cells
from artifact.drawing.findings import dots, each, ends, means
from artifact.rooms.nm_spmm.trial import BIG, ROOM

STEPS = {
    "alt": ends("Useful work in per cent of the FMA ceiling", "per_cent", "density"),
    "caption": f"Step by step at {BIG}³ (the paper's Fig. 7). Violet, joined: shares of its own peak that the paper "
    "states for an A100.",
}
PIPELINE = each(
    "Steps of a block as bars for loads, fragments and multiply-adds; the last ends, in ns",
    "end",
    "schedule",
)
SAID = {
    "format": {
        "alt": "A small N:M matrix with windows of four rows and vectors of four columns, its compressed values, "
        "and its index matrix",
        "caption": "Vector-wise N:M (the paper's Fig. 1): B, its values, and the position of each vector in its "
        "window.",
    },
    "working-set": {
        "alt": "Rows of A that each of the four vectors of a block needs in a step, at 50% and 87.5% sparsity, and "
        "below those that any of them needs",
        "caption": "What a block of 128 columns needs of A in one step (the paper's Fig. 2). Hatched rows are "
        "needed by no vector.",
    },
    "footprint": {
        "alt": ends(
            "Per cent of the rows of A that a block needs, over its number of vectors",
            "per_cent",
            "vectors",
            "case",
        ),
        "caption": "The same over all blocks and steps: the rows of A that are needed, in per cent of those of a step.",
    },
    "blocking": {
        "alt": "C in blocks of 64 by 128, a block in warp tiles of 64 by 32, a warp tile in the thread tiles of its "
        "lanes, and a thread's 8 by 8",
        "caption": "Hierarchical blocking (the paper's Fig. 3), large configuration. In A and C, m is contiguous.",
    },
    "packing": {
        "alt": "The index of a block's vectors, the rows of A they need, col_info as the list of these, the index "
        "rewritten into that list, and the layout of the values",
        "caption": "Preprocessing of one block and step (the paper's Fig. 4 and Listing 3).",
    },
    "transition": {
        "alt": means(
            "Arithmetic intensity by Eq. 3 over sparsity, and the sparsity at which each kind of staging falls "
            "below a GPU's ridge",
            "crossing",
            "kind",
            "gpu",
        ),
        "caption": f"Eq. 3 for the large block of Table I and for the whole product at {BIG}³, against the ridge of "
        "the paper's GPUs (Table III) and of this one (measured).",
    },
    "pipeline-moderate": {
        "alt": PIPELINE,
        "caption": "The pipeline at 50% sparsity (the paper's Fig. 5), with durations from this GPU's measured "
        "ceilings.",
    },
    "pipeline-high": {
        "alt": PIPELINE,
        "caption": "The pipeline at 87.5% sparsity (the paper's Fig. 6), with durations from this GPU's measured "
        "ceilings.",
    },
    "steps": STEPS,
    "stepwise": STEPS | {"fold": "With our rungs, nmSPARSE and cuBLAS"},
    "sizes": {
        "alt": means(
            "Per cent of the FMA ceiling for the six sizes of Table II at five sparsities",
            "per_cent",
        ),
        "caption": "Efficiency for the matrices of Table II (the paper's Fig. 8). Violet, joined: the fastest of the "
        "authors' three kernels, as they published its times, over the peak of their GPU.",
    },
    "llama-means": {
        "alt": means("Mean speedups over cuBLAS of four sparsities", "mean", "contender", "gpu"),
        "caption": "Geometric means and ranges of the speedups over cuBLAS (the paper's Fig. 9).",
    },
    "llama": {
        "alt": means("Speedup over cuBLAS at a hundred points", "speedup", at="density"),
        "caption": "Speedup over cuBLAS on the same GPU. Lines without markers: the authors' series, on an A100.",
        "fold": "All hundred points",
    },
    "llama-gpus": {
        "alt": means(
            "Speedup over cuBLAS at a hundred points on this GPU; the published series are of three others",
            "speedup",
            at="density",
        ),
        "caption": "Fig. 9 of every GPU: auto on this one, the published series on the paper's.",
        "fold": "All hundred points of each GPU",
    },
    "anchors": {
        "alt": means("Speedup over cuBLAS at nine shapes and in the mean", "speedup", "contender", "density"),
        "caption": "Speedup over cuBLAS in the same run. Hollow: the authors' kernels, in another run beside cuBLAS. "
        "On the right, auto over theirs.",
    },
    "shares": {
        "alt": each(
            "Tiles of twelve blocks over the steps of the product; the last block ends at step",
            "end",
            "schedule",
        ),
    },
    "trials": {
        "alt": means("Dot plot over what was tried: speed over the rung that it builds on", "came", "trial"),
        "caption": "What was expected of each trial, and what came.",
    },
    "few-tiles": {
        "alt": dots,
        "caption": "How many times as fast as V3, where there are fewer tiles of 64 × 128 than SMs.",
    },
    "roofline": {
        "alt": ends(
            "Roofline by Eq. 3 and as counted for DRAM, L2 and shared memory; useful TFLOP/s",
            "tflops",
            "density",
        ),
        "caption": f"Roofline at {BIG}³ (the paper's Fig. 10). Hollow: shares of its peak that the paper states, "
        "under our ceiling.",
    },
    "vectors": {
        "alt": ends("Useful TFLOP/s over the length of a vector", "tflops", "vector"),
        "caption": "Vector length and window. Full: auto; hollow: V3.",
    },
    "tensor": {
        "alt": ends("Speedup over dense cuBLAS of the same type", "speedup", "density"),
        "caption": "Speedup over dense cuBLAS of the same type, and the sparsity from which on each line wins.",
    },
}


def showing() -> Callable[..., None]:
    """`show(drawn, name)` of the chapter: `cells.figures` with what is said here; what is given goes first."""
    show = cells.figures(ROOM)
    return lambda drawn, name, **given: show(drawn, name, **SAID[name] | given)
