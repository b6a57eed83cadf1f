"""The shapes of the paper's figures, those that other measurements of its code name, and our own."""

from .analysis import TABLE_2

#: Kept shares of the paper's four sparsities, 50, 62.5, 75 and 87.5% (section IV-A).
DENSITIES = (0.5, 0.375, 0.25, 0.125)
STEP = (4096, 4096, 4096)
#: (n, k) of the linear layers of Llama 1B-like to 65B, and the tokens, of the 100 points of Fig. 9.
LAYERS = (
    (2048, 2048),
    (6144, 2048),
    (2048, 5632),
    (5632, 2048),
    (4096, 4096),
    (12288, 4096),
    (4096, 11008),
    (11008, 4096),
    (5120, 5120),
    (15360, 5120),
    (5120, 13824),
    (13824, 5120),
    (6656, 6656),
    (19968, 6656),
    (6656, 17920),
    (17920, 6656),
    (8192, 8192),
    (24576, 8192),
    (8192, 22016),
    (22016, 8192),
)
TOKENS = {"full": (256, 512, 1024, 2048, 4096), "kick": (256,)}
#: (m, n, k) at which the authors' own kernels were measured (artifact/systems/nm_spmm/others/<gpu>/anchors.csv).
ANCHORS = (
    (512, 512, 512),
    (512, 1024, 1024),
    (1024, 2048, 2048),
    (2048, 4096, 4096),
    (4096, 4096, 4096),
    (256, 4096, 4096),
    (4096, 11008, 4096),
    (4096, 22016, 8192),
)
LARGE = (8192, 8192, 8192)
#: Sizes that are no multiples of a tile, a window or four.
RAGGED = (
    (4096, 4096, 4096),
    (4097, 4096, 4096),
    (4096, 4097, 4096),
    (4096, 4096, 4097),
    (1001, 1003, 1005),
    (333, 777, 1111),
)
#: Vector lengths and pruning windows at 2048 cubed.
VECTORS, GROUPS = (4, 8, 16, 32, 64, 128), (4, 8, 16, 32)


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes as keyword arguments of `problem`: m, n, k, density (vector, group, dtype).

    preset: "full" or "kick", a part of it that finishes in seconds; else ValueError.
    """
    if preset not in TOKENS:
        raise ValueError(f"preset is {preset!r}, but must be 'full' or 'kick'")
    full = preset == "full"
    densities = DENSITIES if full else (0.5, 0.125)
    all_densities = (1.0, *densities)
    cube = (2048, 2048, 2048)
    layers = [(m, n, k) for m in TOKENS[preset] for n, k in (LAYERS if full else LAYERS[:1])]
    large = (LARGE,) if full else ()
    return {
        "stepwise": _cross((STEP,), all_densities),
        "sizes": _cross([size for _, size in TABLE_2.values()][: None if full else 2], all_densities),
        "llama": _cross(layers, densities),
        "anchors": _cross((*ANCHORS, *large) if full else ANCHORS[:2], densities),
        "unstructured": _cross(ANCHORS[:4] if full else ANCHORS[:1], densities),
        "packing": _cross((STEP,), densities),
        "tried": _cross((STEP,), densities),
        "vectors": [
            shape | {"vector": vector, "group": group}
            for group in (GROUPS if full else GROUPS[-1:])
            for vector in (VECTORS if full else (4, 32))
            for shape in _cross((cube,), [d for d in (0.5, 0.25, 0.125) if d * group >= 1])
        ],
        "ragged": _cross(RAGGED if full else RAGGED[-1:], (0.5,)),
        "tensor": [
            shape | {"dtype": dtype, "vector": vector}
            for dtype in ("tf32", "bfloat16")
            for vector, sizes in (((32, (STEP,)), (128, (STEP, LARGE))) if full else ((128, (STEP,)),))
            for shape in _cross(sizes, (1.0, 0.5, 0.25, 0.125, 0.0625) if full else densities)
        ],
    }


def _cross(sizes, densities) -> list[dict]:
    return [{"m": m, "n": n, "k": k, "density": density} for m, n, k in sizes for density in densities]
