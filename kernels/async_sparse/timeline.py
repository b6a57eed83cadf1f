"""When a block loads, multiplies and stores: clocks that rungs of the source's ladder read of themselves."""

from __future__ import annotations

from collections.abc import Sequence

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
        for block in range(KEPT[0]):
            seen = (found[block] > 0).all(axis=-1)
            if not seen.any():
                continue
            zero = found[block][seen][:, 0].min()
            for role, group, step in zip(*seen.nonzero(), strict=True):
                begin, end = (float((x - zero) / mhz * 1e3) for x in found[block, role, group, step])
                rows.append(
                    {
                        "variant": variant,
                        "block": block,
                        "role": ROLES[role],
                        "warpgroup": int(group),
                        "step": int(step),
                        "begin_ns": round(begin, 1),
                        "end_ns": round(end, 1),
                    }
                )
    return rows
