"""Libraries for a GPU, imported when they are first used: modules that need them can be imported, and read, without."""

from kernels.lazy import Lazy, torch

__all__ = ["cupy", "driver", "runtime", "torch"]

cupy = Lazy("cupy")
driver, runtime = Lazy("cuda.bindings.driver"), Lazy("cuda.bindings.runtime")
