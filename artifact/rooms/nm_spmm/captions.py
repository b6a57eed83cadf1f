"""Alternative texts and folds of the chapter's figures, by the figure's name; captions are blocks of chapter.md."""

from __future__ import annotations

from collections.abc import Callable

from artifact.book.text import Text
from artifact.drawing import cells
from artifact.drawing.findings import dots, each, ends, means
from artifact.rooms.nm_spmm.trial import ROOM

STEPS = {
    "alt": ends("Useful work in per cent of the FMA ceiling", "per_cent", "density"),
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
    },
    "working-set": {
        "alt": "Rows of A that each of the four vectors of a block needs in a step, at 50% and 87.5% sparsity, and "
        "below those that any of them needs",
    },
    "footprint": {
        "alt": ends(
            "Per cent of the rows of A that a block needs, over its number of vectors",
            "per_cent",
            "vectors",
            "case",
        ),
    },
    "blocking": {
        "alt": "C in blocks of 64 by 128, a block in warp tiles of 64 by 32, a warp tile in the thread tiles of its "
        "lanes, and a thread's 8 by 8",
    },
    "packing": {
        "alt": "The index of a block's vectors, the rows of A they need, col_info as the list of these, the index "
        "rewritten into that list, and the layout of the values",
    },
    "transition": {
        "alt": means(
            "Arithmetic intensity by Eq. 3 over sparsity, and the sparsity at which each kind of staging falls "
            "below a GPU's ridge",
            "crossing",
            "kind",
            "gpu",
        ),
    },
    "pipeline-moderate": {
        "alt": PIPELINE,
    },
    "pipeline-high": {
        "alt": PIPELINE,
    },
    "steps": STEPS,
    "stepwise": STEPS | {"fold": "With our rungs, nmSPARSE and cuBLAS"},
    "sizes": {
        "alt": means(
            "Per cent of the FMA ceiling for the six sizes of Table II at five sparsities",
            "per_cent",
        ),
    },
    "llama-means": {
        "alt": means("Mean speedups over cuBLAS of four sparsities", "mean", "contender", "gpu"),
    },
    "llama": {
        "alt": means("Speedup over cuBLAS at a hundred points", "speedup", at="density"),
        "fold": "All hundred points",
    },
    "llama-gpus": {
        "alt": means(
            "Speedup over cuBLAS at a hundred points on this GPU; the published series are of three others",
            "speedup",
            at="density",
        ),
        "fold": "All hundred points of each GPU",
    },
    "anchors": {
        "alt": means("Speedup over cuBLAS at nine shapes and in the mean", "speedup", "contender", "density"),
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
    },
    "few-tiles": {
        "alt": dots,
    },
    "roofline": {
        "alt": ends(
            "Roofline by Eq. 3 and as counted for DRAM, L2 and shared memory; useful TFLOP/s",
            "tflops",
            "density",
        ),
    },
    "vectors": {
        "alt": ends("Useful TFLOP/s over the length of a vector", "tflops", "vector"),
    },
    "tensor": {
        "alt": ends("Speedup over dense cuBLAS of the same type", "speedup", "density"),
    },
}


def showing(text: Text) -> Callable[..., None]:
    """`show(drawn, name)` of the chapter: `cells.figures` with what is said here, and the block caption_NAME."""
    show = cells.figures(ROOM)
    return lambda drawn, name: show(drawn, name, caption=text(f"caption_{name.replace('-', '_')}"), **SAID[name])
