"""The shapes of the experiments: those that were asked for, and in `kick` a part of them."""

from __future__ import annotations

from kernels import tensor_core_24 as room

SQUARE = (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
LLM = (
    (4096, 4096, 11008),
    (11008, 4096, 4096),
    (14336, 8192, 4096),
    (4096, 8192, 14336),
    (28672, 4096, 8192),
    (8192, 512, 8192),
    (8192, 128, 8192),
)


def sizes(shapes: list[dict]) -> list[tuple[int, int, int]]:
    return [(shape["m"], shape["n"], shape["k"]) for shape in shapes]


def test_the_sweeps_are_the_sources_and_the_models():
    full = room.sweeps("full")
    assert list(full) == [
        "square",
        "studies",
        "ladder",
        "alone",
        "llm",
        "ragged",
        "rows",
        "small",
        "linear",
        "decoding",
        "float16",
    ]
    assert sizes(full["square"]) == [(size,) * 3 for size in SQUARE]
    assert sizes(full["llm"]) == list(LLM)
    for name in ("studies", "ladder"):
        assert sizes(full[name]) == [(size,) * 3 for size in (2048, 4096, 8192)]
    assert sizes(full["float16"]) == [(4096,) * 3]
    # Few tiles of 64 x 64 on 132 multiprocessors, decoding among them.
    small = sizes(full["small"])
    assert (512, 512, 512) in small and {n for _, n, _ in small} >= {16, 32, 64, 128}
    assert all(-(-m // 64) * -(-n // 64) <= 132 for m, n, _ in small)
    # Half a second each without the others: the sizes at which a GPU is warm by then, all of them in the square sweep.
    assert sizes(full["alone"]) == [(size,) * 3 for size in (4096, 8192, 12288, 16384)]
    assert set(sizes(full["alone"])) <= set(sizes(full["square"]))


def test_ragged_sizes_stand_beside_the_whole_one():
    """What masking costs shows against 4096 cubed: one size off at a time, and n by its alignment."""
    shapes = sizes(room.sweeps("full")["ragged"])
    assert shapes[0] == (4096,) * 3 and len(set(shapes)) == len(shapes)
    off = [[size for size in shape if size != 4096] for shape in shapes]
    assert any(len(sizes) == 1 for sizes in off)
    for unit in (1, 2, 8):  # elements that divide every row of B and C, and no more
        assert any(n % (2 * unit) and n % unit == 0 for _, n, _ in shapes), unit
    for position in range(3):
        assert any(shape[position] % 64 for shape in shapes)
