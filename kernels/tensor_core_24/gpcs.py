"""Which SMs form a GPC (graphics processing cluster), found out by clusters of blocks, which never leave one.

A few pairs of SMs are in clusters of two alone, whatever the launch asks for; they stay apart, as if each were a GPC.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .. import jit
from ..contract import require

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
    import cupy
    from cuda.core import Device, LaunchConfig, launch

    device = Device(device_id)
    properties = device.properties
    sms = properties.multiprocessor_count
    shared = properties.max_shared_memory_per_block_optin - 1024  # an SM has no room for two
    kernel = jit.load(jit.compile_cubin(SOURCE, "gpcs", jit.arch_of(device)), shared)
    stream = device.create_stream()
    clusters = []
    for size in SIZES:
        out = cupy.empty((WAVES * sms // size, size), cupy.uint32)
        cupy.cuda.get_current_stream().synchronize()
        config = LaunchConfig(grid=len(out), cluster=size, block=32, shmem_size=shared)
        launch(stream, config, kernel, out.data.ptr, np.int32(STAY))
        stream.sync()
        clusters += [row.astype(np.int64) for row in out.get()]
    found = cupy.asarray(placed(joined(clusters), sms))
    cupy.cuda.get_current_stream().synchronize()  # it is there, whatever stream comes next
    return found


def joined(clusters: Sequence[np.ndarray]) -> dict[int, int]:
    """Return number of an SM -> the smallest number of an SM that clusters join it to, over any SMs.

    clusters: arrays of numbers.
    """
    numbers = np.unique(np.concatenate(clusters))
    least, before = np.arange(numbers[-1] + 1), numbers[:0]
    while not np.array_equal(least, before):
        before = least.copy()
        for cluster in clusters:
            least[cluster] = least[cluster].min()
    return dict(zip(numbers.tolist(), least[numbers].tolist(), strict=True))


def placed(groups: dict[int, int], sms: int) -> np.ndarray:
    """Return what `places` returns, from number -> GPC.

    Raises ValueError where they are not as many as there are SMs.
    """
    require(
        len(groups) == sms,
        f"clusters ran on {len(groups)} of this GPU's {sms} multiprocessors, so nobody knows which of them form a GPC: "
        "use wgmma_keep",
    )
    found = np.full(max(groups) + 1, -1, np.int32)
    found[sorted(groups, key=lambda number: (groups[number], number))] = np.arange(sms)
    return found
