"""Which kernels are which part of a prefill, of events as PyTorch's profiler gives them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from artifact.rooms.async_sparse.prefill import parts
from artifact.rooms.async_sparse.prefill.configurations import PARTS


def event(name: str, begin: float, end: float, where: str = "DeviceType.CUDA"):
    span = SimpleNamespace(start=begin, end=end, elapsed_us=lambda: end - begin)
    return SimpleNamespace(name=name, device_type=where, time_range=span)


def test_kernels_count_in_the_innermost_range_and_waiting_in_none():
    host = [
        event(name, 0, 1, "DeviceType.CPU") for name in ("part: ffn", "part: norms", "compiled")
    ]
    gpu = [
        event("part: ffn", 10, 100), event("compiled", 20, 40), event("gemm", 20, 30), event("gemm", 70, 95),
        event("part: ffn", 200, 300), event("part: norms", 220, 240), event("norm", 225, 235), event("gemm", 250, 260),
        event("copy", 150, 157), event("late", 300, 304),
    ]  # fmt: skip
    found = parts.summed([*host, *reversed(gpu)])
    assert found == dict.fromkeys(PARTS, 0.0) | {"ffn": 45.0, "norms": 10.0, "rest": 11.0}


def test_without_a_kernel_in_an_ffn_there_is_no_table():
    with pytest.raises(RuntimeError, match="no kernel in an FFN"):
        parts.summed([event("part: ffn", 0, 9), event("gemm", 10, 20)])
