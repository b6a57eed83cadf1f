"""Libraries that are imported when they are first used: modules that need them can be imported, and read, without."""

import importlib
import threading
from typing import Any

#: Two threads that import cuda.core for the first time at once break each other's import.
_IMPORT = threading.RLock()


class Lazy:
    """A module by its name, imported at the first look at what it holds."""

    __slots__ = ("_name", "__dict__")

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        with _IMPORT:
            module = importlib.import_module(self._name)
        if self._name.startswith(("cuda.", "torch")):  # every launch asks: now names are looked up in the module's own
            self.__dict__ = vars(module)
        return getattr(module, name)


cupy, torch = Lazy("cupy"), Lazy("torch")
core = Lazy("cuda.core")
driver, nvrtc, runtime = (Lazy(f"cuda.bindings.{name}") for name in ("driver", "nvrtc", "runtime"))
