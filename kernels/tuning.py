"""What the rooms' autotuners share: trials, timed as the harness times, and the files that keep choices.

A file of choices belongs to one GPU. A room ships the choices that were made on the GPUs that it was
measured on, in choices/<gpu>.csv; what a user's own GPU chooses goes to the folder
$SPARSITY_CHOICES, else `choices` beside the cubins, in build/, and comes first.
"""

from __future__ import annotations

import csv
import os
import re
import threading
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path

import numpy as np

from kernels import jit
from kernels.contract import Bound

#: Bytes that are overwritten before each launch, and how many times the L2 at least.
FLUSH_BYTES, FLUSH_FACTOR = 2**28, 4


def race(bounds: Mapping[Hashable, Bound], device, rounds: int) -> dict:
    """name -> median of `rounds` launches in microseconds, cold L2, after one that is not counted.

    Events around a launch, with an L2 that was overwritten before, all bounds in a new random order
    in every round. device: a current `cuda.core.Device`.
    """
    import cupy

    names = list(bounds)
    stream = device.create_stream()
    flush = cupy.empty(max(FLUSH_FACTOR * device.properties.l2_cache_size, FLUSH_BYTES), cupy.uint8)
    device.sync()
    samples = {name: [] for name in names}
    order = np.random.default_rng(0)
    with cupy.cuda.Stream.from_external(stream) as on:
        for number in range(rounds + 1):
            events = {}
            for i in order.permutation(len(names)):
                flush.fill(number % 2)
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record(on)
                bounds[names[i]].launch(stream)
                end.record(on)
                events[names[i]] = begin, end
            stream.sync()
            for name, pair in events.items() if number else ():
                samples[name].append(cupy.cuda.get_elapsed_time(*pair) * 1e3)
    return {name: float(np.median(us)) for name, us in samples.items()}


def write_rows(path: Path, columns: Iterable[str], rows: Iterable[Iterable]) -> None:
    """A CSV file in place of the one that is there; it is written aside and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with aside.open("w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(columns)
            table.writerows(rows)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def parse_knobs(text: str, make: type):
    """A configuration, a dataclass of numbers, texts and flags, from "bm=128 bn=256 ahead=True"."""
    values = {}
    for part in text.split():
        name, value = part.split("=")
        kind = type(getattr(make(), name))
        if kind is bool and value not in ("True", "False"):
            raise ValueError(f"{name} is {value}, but must be True or False")
        values[name] = value == "True" if kind is bool else kind(value)
    return make(**values)


def own_folder(room: str = "") -> Path:
    """Where the choices of this user's GPUs are kept."""
    return Path(os.environ.get("SPARSITY_CHOICES", jit.cache_folder().parent / "choices")) / room


def slug(device) -> str:
    """The GPU's name as the records' folders have it."""
    return re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")
