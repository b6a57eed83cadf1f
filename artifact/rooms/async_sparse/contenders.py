"""The room's contenders in order, and how figures call and draw them; the kernels need not be there for it."""

from __future__ import annotations

from artifact.drawing import style

STEPS = ("opt0", "opt1", "opt2", "opt3", "opt4", "opt5")  #: of the source, each on the one before
BRANCHES = ("opt6", "opt6_atomic", "opt6_stealing", "opt7")  #: of the source, each on opt5
OURS = ("unit_ring", "auto")
LADDER = (*STEPS, *BRANCHES, *OURS)
#: Configurations of `kernels.async_sparse.family.TRIALS` that are no variants.
TRIED = ("unit_ring_half", "unit_ring_192", "unit_ring_boxes", "unit_ring_groups", "unit_ring_in_order")
KEPT = "opt5"  #: what the source goes on with
BELL, TRITON, TUNED, BSR = "cusparse_bell", "triton_bsr", "triton_bsr_tuned", "cusparse_bsr"
DENSE, TORCH = "cublas_dense", "cublas_dense_default"
CSR = "cusparse_csr"  #: the fastest of cuSPARSE's algorithms for CSR at each point
CSR_ALGORITHMS = ("cusparse_alg1", "cusparse_alg2", "cusparse_alg3")
TILES = {f"opt5_n{width}": width for width in range(8, 257, 8)}  #: contender of the sweep over tiles -> WGMMA_N

# ---- of matrices in CSR: windows, and rows
WCSR, WHOLE = "wcsr", "wcsr_whole"  #: the source's kernel for windows; no window cut
WINDOWS, EXACT = "windows", "windows_exact"  #: ours: TF32, and 3xTF32 for float32
UNION = "union_rows"  #: ours: CUDA cores in exact float32, groups of rows over the union of their columns
AUTO_TF32, AUTO_FP32 = "auto_tf32", "auto_fp32"  #: ours: the fastest of each accuracy
UNION_HALF, AUTO_HALF = "union_half", "auto_half"  #: the same with B and C in 16 bits
#: The parts of both kernels for windows as variants and trials, in the order in which a page tells of them.
PARTS = (
    *(WCSR, WHOLE, "wcsr_c256", "wcsr_c1024", "wcsr_c2048", "wcsr_n64", "wcsr_n256"),
    *("windows_64", "windows_32", WINDOWS, "windows_8", "windows_16_whole", "windows_16_in_order", "windows_16_narrow"),
)
#: That take CSR.
ROWS = (WCSR, WHOLE, WINDOWS, EXACT, UNION, UNION_HALF, AUTO_FP32, AUTO_TF32, AUTO_HALF)

#: Of this room alone: the shared looks (`style.NAMES`) have no markers left for so many libraries.
NAMES = {
    "opt0": "CUDA cores",
    "opt1": "WGMMA",
    "opt2": "TMA",
    "opt3": "warp specialisation",
    "opt4": "one arrival",
    "opt5": "no zeroing",
    "opt6": "persistent",
    "opt6_atomic": "atomic counter",
    "opt6_stealing": "work stealing",
    "opt7": "multicast",
    "unit_ring": "ring of units",
    "auto": "auto",
    BELL: "cuSPARSE Blocked-ELL",
    BSR: "cuSPARSE BSR",
    CSR: "cuSPARSE CSR",
    TRITON: "Triton bsr_dense_mm",
    TUNED: "Triton tuned",
    DENSE: "dense cuBLASLt",
    TORCH: "dense cuBLAS",
    WCSR: "WCSR",
    WHOLE: "WCSR, windows whole",
    WINDOWS: "windows of 16, TF32",
    EXACT: "windows of 16, 3×TF32",
    UNION: "rows over their union",
    AUTO_FP32: "auto, FP32",
    AUTO_TF32: "auto, TF32",
    UNION_HALF: "rows over their union, 16 bits",
    AUTO_HALF: "auto, 16 bits",
    "wcsr_c256": "WCSR, tasks of 256",
    "wcsr_c1024": "WCSR, tasks of 1024",
    "wcsr_c2048": "WCSR, tasks of 2048",
    "wcsr_n64": "WCSR, tiles of 64",
    "wcsr_n256": "WCSR, tiles of 256",
    "windows_8": "windows of 8",
    "windows_32": "windows of 32",
    "windows_64": "windows of 64",
    "windows_16_whole": "windows of 16, none cut",
    "windows_16_in_order": "windows of 16, as they lie",
    "windows_16_narrow": "windows of 16, narrow tiles",
}
#: Whom figures show, for their looks: what the source keeps first and our best last.
ORDER = (KEPT, *dict.fromkeys((*LADDER[:-1], *PARTS, *ROWS)), OURS[-1])


def name(variant: str) -> str:
    """Call a contender: of the source's steps "opt3, warp specialisation", others as everywhere."""
    said = NAMES.get(variant, style.name(variant))
    return f"{variant}, {said}" if variant.startswith("opt") else said


def told(variant: str) -> str:
    """Call a contender inside a sentence: "opt3 (warp specialisation)"."""
    return f"{variant} ({NAMES[variant]})" if variant.startswith("opt") else name(variant)


def called(variant: str) -> str:
    """Call a contender where matrices are in CSR: the source's kernel for blocks is its BCSR there."""
    return f"BCSR ({KEPT})" if variant == KEPT else name(variant)


#: The kernel that one builds on: a step on the one before, a branch and ours on the one that the source keeps, our last
#: rung on our first.
BEFORE = dict(zip(STEPS[1:], STEPS, strict=False)) | dict.fromkeys((*BRANCHES, OURS[0]), KEPT) | {OURS[1]: OURS[0]}
#: What figures call contenders.
CALLED = {variant: name(variant) for variant in NAMES}
