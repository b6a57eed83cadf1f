"""What scripts of a system measure apart: CSV beside them, below a line that says on which GPU and when."""

import datetime
import functools
import gc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.contract import Problem
from kernels.lazy import cupy, torch


def read(path: Path) -> pd.DataFrame:
    """Return a CSV file whose comments begin with #."""
    return pd.read_csv(path, comment="#")


def origin(path: Path) -> str:
    """Return the GPU and the day that a file says it is of."""
    return path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(":")[0]


def write(path: Path, script: str, device, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """script: the name of the file that measured; device: a `cuda.core.Device`."""
    table = pd.DataFrame(rows, columns=list(columns)).to_csv(index=False, lineterminator="\n")
    path.write_text(f"# {device.name}, {datetime.date.today()}: see {Path(script).name}\n{table}", encoding="utf-8")


def release(problem: Problem) -> None:
    """Forget a problem's operands, and give their memory back."""
    problem.release()
    cupy.get_default_memory_pool().free_all_blocks()


def free() -> None:
    """Give back what PyTorch keeps of the GPU's memory."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@functools.cache
def _side_stream():
    """One for all first calls, since what PyTorch keeps of freed memory belongs to a stream."""
    return torch.cuda.Stream()


def captured(call: Callable[[], Any], pool=None):
    """(CUDA graph of a call, its output), after one call that compiles and chooses, on streams beside the current."""
    stream = _side_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # the graph's memory is its own
    graph = torch.cuda.CUDAGraph()
    # Encoding a tensor map asks the driver about an address, which only a relaxed capture lets this thread do.
    with torch.no_grad(), torch.cuda.graph(graph, pool=pool, capture_error_mode="relaxed"):
        output = call()
    return graph, output
