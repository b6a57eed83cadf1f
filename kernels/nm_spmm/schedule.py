"""Stream-K: which steps of which tiles of C each block multiplies, so that all multiply equally many.

Osama, Merrill, Cecka, Garland, Owens: "Stream-K: work-centric parallel decomposition for dense
matrix-matrix multiplication on the GPU", PPoPP 2023. The tiles beyond whole waves, and one wave more
where there is one, are cut along k into equal shares; the remaining whole waves are left alone.
"""

import numpy as np

from ..contract import require

#: A block with fewer steps than this spends more on the workspace than on its product.
LEAST_STEPS = 3
MAX_TILES = 1 << 15  # along m, and along n: a part has 16 bits for each


def parts(tiles_m: int, tiles_n: int, steps: int, blocks: int) -> np.ndarray:
    """Return what each block does, in order: int32 (blocks, most, 4), the `Part`s of stream.cu.

    tiles_m, tiles_n: tiles of C along m and n; steps: of a tile along k, at least 1; blocks: that run at
    the same time. Fewer come back where there is not work for all.

    A part is (tile, first, start, others): the row of tiles and, times 65536, its column; the part's
    first step; the steps that the block has done before it; and, if the tile's last step is in it, how
    many blocks before this one have the others of its steps, else -1. Each list is filled up with parts
    of no steps, of which `start` is all the block's steps.

    Raises ValueError for more tiles along m or n than a part can name.
    """
    require(
        max(tiles_m, tiles_n) < MAX_TILES,
        f"C has {tiles_m} x {tiles_n} tiles, but a schedule names at most {MAX_TILES - 1} along each: "
        "multiply in several ranges",
    )
    tiles = tiles_m * tiles_n
    waves, rest = divmod(tiles, blocks)
    shared = rest + blocks * (waves > 0) if rest else 0
    if waves == 0:
        blocks = max(1, min(blocks, tiles * steps // LEAST_STEPS))
    ends = [shared * steps * (block + 1) // blocks for block in range(blocks)]
    lists = []
    for block, end in enumerate(ends):
        begin, mine, done = ends[block - 1] if block else 0, [], 0
        while end > begin:  # from the share's end to its beginning
            tile = (end - 1) // steps
            first = max(begin, tile * steps)
            if end < (tile + 1) * steps:
                others = -1
            else:  # the blocks whose shares end within the tile, and before its end
                others = sum(tile * steps < e < end for e in ends[:block])
            mine.append((tile, first - tile * steps, done, others))
            done += end - first
            end = first
        for tile in range(shared + block, tiles, blocks):
            mine.append((tile, 0, done, 0))
            done += steps
        lists.append((mine, done))
    most = 1 + max(len(mine) for mine, _ in lists)
    table = np.empty((blocks, most, 4), np.int32)
    for block, (mine, done) in enumerate(lists):
        table[block] = (0, 0, done, 0)
        table[block, : len(mine)] = mine
    places = table[:, :, 0].copy()
    table[:, :, 0] = places % tiles_m + (places // tiles_m << 16)
    return table
