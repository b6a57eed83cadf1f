"""Where a prefill's time goes: PyTorch's profiler, by ranges that the model's modules and passes are in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager

from artifact.rooms.async_sparse.prefill import model as of
from artifact.rooms.async_sparse.prefill.configurations import PARTS

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


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
    """Part of `PARTS` -> microseconds on the GPU of one call, after one that compiles."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.no_grad():
        call()
        torch.cuda.synchronize()
        with (
            ranges(model),
            profile(activities=both, acc_events=True) as seen,
        ):
            call()
            torch.cuda.synchronize()
    return summed(seen.events())


def summed(events: Iterable) -> dict[str, float]:
    """Microseconds of each part, of the profiler's events; "rest" is what lies in no range.

    An event on the host has the device time of all that it called; where the profiler could not tell what a range
    called, the range's own span on the device stands for it. Raises RuntimeError where no kernel lies in an FFN.
    """
    events = list(events)
    on_host = [e for e in events if str(getattr(e, "device_type", "")).endswith("CPU")]
    found = dict.fromkeys(PARTS, 0.0)
    spans = dict.fromkeys(PARTS, 0.0)
    total = sum(e.device_time_total for e in on_host if e.cpu_parent is None)
    for event in events:
        part = event.name.removeprefix(of.PREFIX)
        if part == event.name:
            continue
        if str(event.device_type).endswith("CPU"):
            found[part] += event.device_time_total
        else:
            spans[part] += event.time_range.elapsed_us()
    for part, us in spans.items():
        if not found[part] > 0:
            found[part] = us
            total += us
    if not found["ffn"] > 0:
        raise RuntimeError("the profiler saw no kernel in an FFN: it needs CUPTI, which a container may withhold")
    found["rest"] = max(0.0, total - sum(found.values()))
    return found
