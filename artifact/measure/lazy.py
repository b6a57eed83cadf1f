"""Libraries for a GPU, imported when they are first used: modules that need them can be imported, and read, without."""

from kernels.lazy import Lazy, cupy, driver, torch

__all__ = ["cupy", "driver", "runtime", "torch"]

runtime = Lazy("cuda.bindings.runtime")
