"""Which SMs form a GPC (graphics processing cluster), found out by clusters of blocks, which never leave one.

A few pairs of SMs are in clusters of two alone, whatever the launch asks for; they stay apart, as if each were a GPC.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .. import jit
from ..contract import require
from ..lazy import core, cupy

SOURCE = Path(__file__).with_name("gpcs.cu")
SIZES = range(2, 9)  #: of clusters; what one size keeps apart, another joins
WAVES = 3  #: times that a launch has about as many blocks as there are SMs
STAY = 60_000  #: clocks that a block stays, some 40 us


@functools.cache
def places(device_id: int):
    """int32, CuPy: for each SM of a GPU, by its number, its place when the SMs stand GPC by GPC.

    Each place, 0 to SMs - 1, is one SM's; -1 where no SM has the number. Takes some milliseconds, once. Raises
    ValueError where not every SM ran a cluster.
    """
    device = core.Device(device_id)
    sms = device.properties.multiprocessor_count
    shared = device.properties.max_shared_memory_per_block_optin - 1024  # an SM has no room for two
    kernel, stream = jit.loaded(SOURCE, "gpcs", device, shared), device.create_stream()
    clusters: list[np.ndarray] = []
    for size in SIZES:
        out = cupy.empty((WAVES * sms // size, size), cupy.uint32)
        cupy.cuda.get_current_stream().synchronize()
        config = core.LaunchConfig(grid=len(out), cluster=size, block=32, shmem_size=shared)
        core.launch(stream, config, kernel, out.data.ptr, np.int32(STAY))
        stream.sync()
        clusters += [*out.get().astype(np.int64)]
    found = cupy.asarray(placed(clusters, sms))
    cupy.cuda.get_current_stream().synchronize()  # it is there, whatever stream comes next
    return found


def placed(clusters: Sequence[np.ndarray], sms: int) -> np.ndarray:
    """Return what `places` returns, from the numbers of the SMs of clusters: what they join, over any SMs, is a GPC.

    Raises ValueError where they ran on more or fewer than there are SMs.
    """
    numbers = np.unique(np.concatenate(clusters))
    require(
        len(numbers) == sms,
        f"clusters ran on {len(numbers)} of this GPU's {sms} multiprocessors, so nobody knows which of them form a "
        "GPC: use wgmma_keep",
    )
    least, before = np.arange(numbers[-1] + 1), numbers[:0]  # number -> the smallest that it is joined to
    while not np.array_equal(least, before):
        before = least.copy()
        for cluster in clusters:
            least[cluster] = least[cluster].min()
    found = np.full(len(least), -1, np.int32)
    found[numbers[np.argsort(least[numbers], kind="stable")]] = np.arange(sms)
    return found
