"""When a block loads, multiplies and stores: clocks that rungs of the source's ladder read of themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..contract import Problem, require
from . import published

#: As trace.cuh has them: blocks, roles, warpgroups and steps that are kept.
KEPT = (8, 3, 3, 64)
ROLES = ("load", "multiply", "store")


def timeline(problem: Problem, device, variants: Sequence[str] = published.TRACED, sm_mhz: float = 0.0) -> list[dict]:
    """Rows of what the first thread blocks of a launch did (Figs. 3 and 4b), the second launch of each variant.

    variant, block (its number in the grid), role ("load": from the request of a step until a thread that
    waits for it sees it there; "multiply": from then until its wgmma are done; "store": until C has left
    shared memory, or registers), warpgroup, step, begin_ns, end_ns from the block's first clock on. sm_mhz:
    the clock that turns cycles into time; 0 asks the device for its highest. Raises ValueError for a
    variant that keeps no clocks.
    """
    import cupy

    mhz = sm_mhz or device.properties.clock_rate / 1e3
    stream = device.create_stream()
    rows = []
    for variant in variants:
        require(
            variant in published.TRACED,
            f"{variant} keeps no clocks: choose one of {', '.join(published.TRACED)}",
        )
        spans = cupy.zeros((*KEPT, 2), cupy.int64)
        cupy.cuda.get_current_stream().synchronize()
        bound = published.bind(variant, problem, device, spans)
        for _ in range(2):  # the first one finds a cold instruction cache
            bound.launch(stream)
        stream.sync()
        found = spans.get()
        seen = (found > 0).all(axis=-1)
        zero = np.where(seen, found[..., 0], found.max()).min(axis=(1, 2, 3), keepdims=True)[..., None]
        ns = ((found - zero) / mhz * 1e3).round(1)
        for block, role, group, step in np.argwhere(seen).tolist():
            begin, end = ns[block, role, group, step].tolist()
            at = {"variant": variant, "block": block, "role": ROLES[role], "warpgroup": group, "step": step}
            rows.append(at | {"begin_ns": begin, "end_ns": end})
    return rows
