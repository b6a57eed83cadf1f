"""Where a prefill's time goes: PyTorch's profiler, by ranges that the model's modules and passes are in."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from contextlib import contextmanager

from artifact.rooms.async_sparse.prefill import model as of
from artifact.rooms.async_sparse.prefill.configurations import PARTS

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
PASSES = 3
DEEPEST = 4  #: ranges that may lie in each other


@contextmanager
def ranges(model):
    """Ranges of the profiler around every FFN and the projections of attention, meanwhile."""
    from torch.profiler import record_function

    handles = []

    def around(module, name: str) -> None:
        begun = []

        def before(*_):
            begun.append(record_function(of.PREFIX + name))
            begun[-1].__enter__()

        def after(*_):
            begun.pop().__exit__(None, None, None)

        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after))

    for name, module in model.named_modules():
        if name.endswith(".mlp"):
            around(module, "ffn")
        elif name.rpartition(".")[2] in PROJECTIONS:
            around(module, "projections")
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def profiled(model, call: Callable) -> dict[str, float]:
    """Part of `PARTS` -> microseconds on the GPU of one call: the median one of `PASSES` by its sum, after one that
    compiles. A single pass, launched by the host and not by a graph, once took half as long again."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.no_grad():
        call()
        torch.cuda.synchronize()
        passes = []
        for _ in range(PASSES):
            with (
                ranges(model),
                profile(activities=both, acc_events=True) as seen,
            ):
                call()
                torch.cuda.synchronize()
            passes.append(summed(seen.events()))
    return sorted(passes, key=lambda parts: sum(parts.values()))[PASSES // 2]


def summed(events: Iterable) -> dict[str, float]:
    """Microseconds of each part, of the profiler's events: the sum of the kernels that begin in a range's span on the
    GPU, the innermost one's; "rest" is what lies in no range.

    Spans themselves would count what the GPU waits for in them, such as memory that PyTorch gets from the driver.
    Raises RuntimeError where no kernel lies in an FFN.
    """
    events = list(events)
    on_host = {e.name for e in events if str(e.device_type).endswith("CPU")}
    on_gpu = [e for e in events if not str(e.device_type).endswith("CPU")]
    spans = sorted(
        (e.time_range.start, e.time_range.end, e.name.removeprefix(of.PREFIX))
        for e in on_gpu
        if e.name.startswith(of.PREFIX)
    )
    begins = [begin for begin, _, _ in spans]
    found = dict.fromkeys(PARTS, 0.0)
    for event in on_gpu:
        if event.name in on_host or event.name.startswith(of.PREFIX):  # a range, or a compiler's
            continue
        begin = event.time_range.start
        at = bisect.bisect_right(begins, begin)
        around = (
            part for _, end, part in reversed(spans[max(0, at - DEEPEST) : at]) if begin < end
        )
        found[next(around, "rest")] += event.time_range.elapsed_us()
    if not found["ffn"] > 0:
        raise RuntimeError(
            "the profiler saw no kernel in an FFN: it needs CUPTI, which a container may withhold"
        )
    return found
