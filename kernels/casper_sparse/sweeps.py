"""Shapes of the source's three sweeps (its section V), and smaller ones that finish in seconds.

The source names wide, square and tall matrices and a target S, and gives neither a size nor a value of S: those
here are ours, powers of two along the axis that a sweep varies.
"""

#: Our values of the source's S, "the target sparsity percentage": per cent of K that a row holds at most.
S_PERCENT = (0.5, 1.0, 5.0)

#: experiment -> list of (m, n, k)
FULL = {
    "wide": [(4096, n, 4096) for n in (512, 1024, 2048, 4096, 8192, 16384, 32768)],
    "square": [(size, size, size) for size in (1024, 2048, 4096, 8192, 16384)],
    "tall": [(2**e, 256, 2048) for e in range(15, 21)],
}
KICK = {
    "wide": [(4096, n, 4096) for n in (512, 2048)],
    "square": [(size, size, size) for size in (1024, 4096)],
    "tall": [(2**e, 256, 2048) for e in (15, 17)],
}


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes as keyword arguments of `problem`: m, n, k and density = S / 100.

    preset: "full" (for Figs. 4-6 of the source, at sizes of ours) or "kick" (two sizes of each); else ValueError.
    """
    chosen = {"full": FULL, "kick": KICK}.get(preset)
    if chosen is None:
        raise ValueError(f"preset is {preset!r}, but must be 'full' or 'kick'")
    return {
        experiment: [{"m": m, "n": n, "k": k, "density": s / 100} for s in S_PERCENT for m, n, k in shapes]
        for experiment, shapes in chosen.items()
    }
