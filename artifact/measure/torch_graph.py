"""CUDA graphs of what PyTorch enqueues."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.cache
def _side_stream():
    """One for all first calls, since what PyTorch keeps of freed memory belongs to a stream."""
    import torch

    return torch.cuda.Stream()


def captured(call: Callable[[], Any], pool=None):
    """(CUDA graph of a call, its output), after one call that compiles and chooses, on streams beside the current."""
    import torch

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
