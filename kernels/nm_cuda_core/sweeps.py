"""The sizes that the report sweeps (its section 4.4), and three of them that finish in seconds."""

DENSITY = 0.5  # 2:4, the only sparsity that the report measures

#: m = n = k of Figs. 2 and 4.
SIZES = {"full": (64, 128, 256, 512, 1024, 2048, 4096, 8192), "kick": (64, 512, 2048)}


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes as keyword arguments of `problem`: m, n, k and density.

    preset: "full" (Figs. 2 and 4 of the report) or "kick" (three of them); else ValueError.
    """
    if preset not in SIZES:
        raise ValueError(f"preset is {preset!r}, but must be 'full' or 'kick'")
    return {"scaling": [{"m": size, "n": size, "k": size, "density": DENSITY} for size in SIZES[preset]]}
