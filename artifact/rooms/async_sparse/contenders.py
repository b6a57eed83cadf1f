"""The room's contenders in order, and how figures call and draw them; the kernels need not be there for it."""

from __future__ import annotations

from artifact.drawing import style
from artifact.drawing.style import BASELINE, BEST, HOURGLASS, PUBLISHED, RUNGS

STEPS = ("opt0", "opt1", "opt2", "opt3", "opt4", "opt5")  #: of the source, each on the one before
BRANCHES = ("opt6", "opt6_atomic", "opt6_stealing", "opt7")  #: of the source, each on opt5
OURS = ("unit_ring", "auto")
LADDER = (*STEPS, *BRANCHES, *OURS)
#: Configurations of `kernels.async_sparse.family.TRIALS` that are no variants.
TRIED = (
    "unit_ring_half", "unit_ring_192", "unit_ring_boxes", "unit_ring_groups", "unit_ring_in_order",
)  # fmt: skip
KEPT = "opt5"  #: what the source goes on with
BELL, TRITON, TUNED, BSR = "cusparse_bell", "triton_bsr", "triton_bsr_tuned", "cusparse_bsr"
DENSE, TORCH = "cublas_dense", "cublas_dense_default"
CSR = "cusparse_csr"  #: the fastest of cuSPARSE's algorithms for CSR at each point
CSR_ALGORITHMS = ("cusparse_alg1", "cusparse_alg2", "cusparse_alg3")
WIDTHS = tuple(range(8, 257, 8))  #: WGMMA_N

#: Of this room alone: the shared looks (`style.NAMES`) have no markers left for so many libraries.
NAMES = {
    "opt0": "CUDA cores", "opt1": "WGMMA", "opt2": "TMA", "opt3": "warp specialisation", "opt4": "one arrival",
    "opt5": "no zeroing", "opt6": "persistent", "opt6_atomic": "atomic counter", "opt6_stealing": "work stealing",
    "opt7": "multicast", "unit_ring": "ring of units", "auto": "auto", BELL: "cuSPARSE Blocked-ELL",
    BSR: "cuSPARSE BSR", CSR: "cuSPARSE CSR", TRITON: "Triton bsr_dense_mm", TUNED: "Triton tuned",
    DENSE: "dense cuBLASLt", TORCH: "dense cuBLAS",
}  # fmt: skip
_STEP, _BRANCH, _OURS = RUNGS[3], RUNGS[0], RUNGS[1]
_LIBRARIES = {
    BELL: ("s", "--"), BSR: ("h", "-."), CSR: ("8", ":"), TRITON: ("^", "--"), TUNED: ("v", "-."),
    DENSE: (HOURGLASS, "-"), TORCH: ("P", ":"),
}  # fmt: skip


def tile(width: int) -> str:
    """The contender of the sweep over tiles with this WGMMA_N."""
    return f"opt5_n{width}"


def name(variant: str) -> str:
    """Of the source's steps "opt3, warp specialisation"; of others as everywhere."""
    said = NAMES.get(variant, style.name(variant))
    return f"{variant}, {said}" if variant.startswith("opt") else said


def told(variant: str) -> str:
    """`name` inside a sentence: "opt3 (warp specialisation)"."""
    return f"{variant} ({NAMES[variant]})" if variant.startswith("opt") else name(variant)


def colour(variant: str) -> str:
    """One hue for the source's steps and one for its branches; the kernel it keeps, our best and libraries as in
    every chapter."""
    if variant == KEPT:
        return PUBLISHED
    if variant == OURS[-1]:
        return BEST
    kinds = {
        **dict.fromkeys(STEPS, _STEP),
        **dict.fromkeys(BRANCHES, _BRANCH),
        **dict.fromkeys(OURS, _OURS),
    }
    return kinds.get(variant, BASELINE)


def look(variant: str) -> dict:
    """Colour, marker and line of a contender."""
    if variant in _LIBRARIES:
        marker, line = _LIBRARIES[variant]
    else:
        marker, line = {KEPT: ("o", "-"), OURS[-1]: ("D", "-")}.get(variant, ("d", "--"))
    return {"color": colour(variant), "marker": marker, "linestyle": line}
