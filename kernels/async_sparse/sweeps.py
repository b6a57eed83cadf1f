"""The shapes of the source's Table III, those of other models' layers, and our own."""

from ..contract import require

#: gate_proj of Qwen2.5-7B (section IV-D): rows and columns of the weight.
GATE = (18944, 3584)
#: Columns of B, the tokens, and kept shares of Table III; 50 and 70% sparsity are ours.
TOKENS = (1024, 4096, 16384, 65536)
DENSITIES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.01)
#: (m, k) of weights of other models: Llama 2 7B, 13B and 70B, Qwen2.5-7B's other projection, Mistral.
LAYERS = (
    (4096, 4096),
    (11008, 4096),
    (4096, 11008),
    (13824, 5120),
    (28672, 8192),
    (3584, 18944),
    (14336, 4096),
)
WIDE = 16384  #: tokens of what is not a sweep over them
BLOCKS = (16, 32, 64, 128)
#: Sizes that are no multiples of a block, a tile or eight.
RAGGED = (
    (18944, 16384, 3584),
    (18943, 16384, 3584),
    (18944, 16383, 3584),
    (18944, 16384, 3583),
    (1001, 1003, 1005),
    (333, 77, 1111),
)


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes as keyword arguments of `problem`: m, n, k, density (block, dtype, layout).

    Real matrices are no shapes: "ablation", "tile_n", "spmm" and others take them from the system's list. preset:
    "full" or "kick", a part of it that finishes in seconds; else ValueError.
    """
    require(preset in ("full", "kick"), f"preset is {preset!r}, but must be 'full' or 'kick'")
    full = preset == "full"
    (m, k), linear = GATE, {"layout": "linear"}
    tokens = TOKENS if full else TOKENS[:1]
    densities = DENSITIES if full else (0.1,)
    return {
        "gate_proj": [{"m": m, "n": n, "k": k, "density": d, **linear} for n in tokens for d in densities],
        "ladder": [{"m": m, "n": WIDE, "k": k, "density": 0.1}],
        "tried": [
            {"m": m, "n": WIDE, "k": k, "density": d, **linear} for d in ((0.2, 0.1, 0.05, 0.01) if full else (0.1,))
        ],
        "blocks": [
            {"m": m, "n": WIDE, "k": k, "density": 0.1, "block": block, **linear}
            for block in (BLOCKS if full else BLOCKS[-1:])
        ],
        "shapes": [
            {"m": rows, "n": n, "k": columns, "density": d, **linear}
            for rows, columns in (LAYERS if full else LAYERS[:1])
            for n in (8192,)
            for d in ((0.2, 0.05) if full else (0.2,))
        ],
        "half": [
            {"m": m, "n": WIDE, "k": k, "density": 0.1, "dtype": dtype, **linear}
            for dtype in (("bfloat16", "float16", "tf32") if full else ("float16",))
        ],
        "ragged": [
            {"m": rows, "n": n, "k": columns, "density": 0.1, **linear}
            for rows, n, columns in (RAGGED if full else RAGGED[-1:])
        ],
    }
