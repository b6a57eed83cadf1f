"""The same bits twice: which configurations add up in an order that depends on nothing but the plan.

Float32 sums depend on the order of their additions. On one GPU that order is a configuration's own, for every launch,
but where several blocks add to one element of C as they come to it:

    CSR       union_rows, union_half   groups of rows that are cut into three parts or more    unless `in_order`
              windows                  windows likewise: x + y is y + x, of three the order counts    unless `in_order`
              split_rows               rows that are cut into three items or more    `in_order`: rows stay whole
              wcsr, the source's       windows cut into three tasks or more    `in_order`: windows stay whole

Everything else repeats its bits. Blocks that claim tiles from a counter (unit_ring, gated) claim whole sums: who has a
tile changes, what is added when does not. What is cut along k elsewhere is added up in one order: by N:M's stream
kernel and clusters, and by split-K, stream-K and the last wave of 2:4 and FP8. So is what `sddmm` sums, and what parts
of a distributed product add to each other. What no route leads to: the published N:M kernels with split-K (v3_split_k,
v3_searched, double_buffer) add by atomics, too.

The order does depend on the configuration, which trials may choose anew (`Plan.choice` tells), on the number of
columns, and where tiles are shared out among SMs on the GPU.
"""

from dataclasses import replace
from typing import Any

from ..async_sparse.windows import Union, WcsrTile, Windows

#: Of casper_sparse, whose configurations are names: adds by atomics -> the same with rows whole.
WHOLE = {"split_rows": "in_flight"}


def is_deterministic(config: Any) -> bool:
    """Whether every launch of a configuration gives the same bits.

    config: of a family of `autotune.Choices`, of wcsr, or the name of one of casper_sparse's kernels.
    """
    return in_order(config) == config


def in_order(config: Any) -> Any:
    """Return the configuration itself where it `is_deterministic`, else the same that adds up in one order."""
    if isinstance(config, Union | Windows):
        return config if config.chunk == 0 else replace(config, in_order=True)
    if isinstance(config, WcsrTile):
        return replace(config, chunk=0)
    if isinstance(config, str):
        return WHOLE.get(config, config)
    return config
