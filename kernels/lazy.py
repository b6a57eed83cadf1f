"""Libraries that are imported when they are first used: modules that need them can be imported, and read, without."""

import importlib
from typing import Any


class Lazy:
    """A module by its name, imported at the first look at what it holds."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


torch = Lazy("torch")
cupy = Lazy("cupy")
driver, runtime = Lazy("cuda.bindings.driver"), Lazy("cuda.bindings.runtime")
