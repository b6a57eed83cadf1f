"""Shapes: the source's range of square products, weights of language models, and sizes that fit no tile."""

DENSITY = 0.5  # 2:4

#: m = n = k. The source plots such sizes up to 8192.
SQUARE = {
    "full": (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384),
    "kick": (512, 2048, 4096),
}
#: (m, n, k): layers of Llama models with m outputs, k inputs and n tokens, and two with few tokens.
LLM = {
    "full": (
        (4096, 4096, 11008),
        (11008, 4096, 4096),
        (14336, 8192, 4096),
        (4096, 8192, 14336),
        (28672, 4096, 8192),
        (8192, 512, 8192),
        (8192, 128, 8192),
    ),
    "kick": ((8192, 128, 8192),),
}
#: 4096 and its neighbours: what masking costs, by the size that is no multiple.
RAGGED = {
    "full": (
        (4096, 4096, 4096),
        (4097, 4096, 4096),
        (4096, 4104, 4096),
        (4096, 4098, 4096),
        (4096, 4097, 4096),
        (4096, 4096, 4104),
        (4100, 4104, 4104),
        (1000, 1000, 1000),
        (333, 777, 1111),
    ),
    "kick": ((1000, 1000, 1000),),
}
#: As LLM, with the tokens of decoding; beside SQUARE and LLM where 8-bit operands are multiplied.
FEW = {"full": ((8192, 64, 8192), (8192, 16, 8192), (4096, 32, 4096)), "kick": ((8192, 64, 8192),)}
#: In the layout of a linear layer: n tokens, whose k features lie side by side, as do the m of C.
LINEAR = {
    "full": (
        (4096, 4096, 4096),
        (6144, 6144, 6144),
        (8192, 8192, 8192),
        (12288, 12288, 12288),
        (16384, 16384, 16384),
        (5120, 4096, 5120),
        (11008, 4096, 4096),
        (28672, 4096, 8192),
        (4096, 4096, 11008),
        (1024, 1024, 1024),
    ),
    "kick": ((1024, 1024, 1024),),
}
#: The same with the tokens of decoding.
DECODING = {
    "full": tuple((m, n, k) for m, k in ((4096, 4096), (8192, 8192), (28672, 8192)) for n in (1, 4, 16, 64)),
    "kick": ((4096, 1, 4096), (4096, 16, 4096)),
}
FP8_OUTPUT_SIZES = {"full": (4096, 8192), "kick": (4096,)}
#: experiment -> m = n = k. "alone": where power decides, each contender for a while alone.
CUBES = {
    "square": SQUARE,
    "studies": {"full": (2048, 4096, 8192), "kick": (2048,)},
    "ladder": {"full": (2048, 4096, 8192), "kick": (4096,)},
    "alone": {"full": (4096, 8192, 12288, 16384), "kick": (4096,)},
}
#: experiment -> (m, n, k). "rows": rows of B that begin at multiples of 128, 16, 32, 64 and 128 bytes, then layers with
#: 1000 tokens. "small": products of microseconds, few tiles, and the tokens of decoding.
SHAPES = {
    "llm": LLM,
    "ragged": RAGGED,
    "rows": {
        "full": (
            (4096, 4096, 4096),
            (4096, 4104, 4096),
            (4096, 4112, 4096),
            (4096, 4128, 4096),
            (4096, 4160, 4096),
            (28672, 1000, 8192),
            (14336, 1000, 4096),
            (1536, 1000, 3072),
        ),
        "kick": ((1536, 1000, 3072),),
    },
    "small": {
        "full": (
            (512, 512, 512),
            (1024, 512, 512),
            (512, 512, 2048),
            (2048, 128, 2048),
            (4096, 16, 4096),
            (4096, 32, 4096),
            (8192, 16, 8192),
            (8192, 64, 8192),
        ),
        "kick": ((512, 512, 512),),
    },
}


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes as keyword arguments of `problem`: m, n, k, density (and dtype, or orders).

    preset: "full" or "kick", a part of it that finishes in seconds; else ValueError.
    """
    if preset not in SQUARE:
        raise ValueError(f"preset is {preset!r}, but must be 'full' or 'kick'")

    def shapes(sizes, **more) -> list[dict]:
        return [{"m": m, "n": n, "k": k, "density": DENSITY} | more for m, n, k in sizes]

    found = {name: shapes([(size,) * 3 for size in cubes[preset]]) for name, cubes in CUBES.items()}
    found |= {name: shapes(sizes[preset]) for name, sizes in SHAPES.items()}
    found |= {name: shapes(of[preset], orders="FF") for name, of in (("linear", LINEAR), ("decoding", DECODING))}
    return found | {"float16": shapes([(4096, 4096, 4096)], dtype="float16")}
