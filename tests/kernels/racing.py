"""The tuner without a GPU: GPUs by their numbers, and heats whose times a test makes up."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np

from kernels import autotune, jit
from kernels.autotune import probe, search


def gpu_of(name: str, capability: tuple[int, int], sms: int, most: int) -> SimpleNamespace:
    """What bind and tuner ask of a `cuda.core.Device`; most: bytes of shared memory of a block."""
    properties = SimpleNamespace(
        multiprocessor_count=sms,
        max_shared_memory_per_block_optin=most,
        max_shared_memory_per_multiprocessor=most + 1024,
        l2_cache_size=50 * 2**20,
    )
    stream = SimpleNamespace(sync=lambda: None)
    return SimpleNamespace(
        name=name,
        device_id=0,
        compute_capability=capability,
        properties=properties,
        create_stream=lambda: stream,
        sync=lambda: None,
    )


H200 = gpu_of("NVIDIA H200", (9, 0), 132, 232_448)
H100 = gpu_of("NVIDIA H100 80GB HBM3", (9, 0), 132, 232_448)
H100_PCIE = gpu_of("NVIDIA H100 PCIe", (9, 0), 114, 232_448)
A100 = gpu_of("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166_912)
L4 = gpu_of("NVIDIA L4", (8, 9), 58, 101_376)
B200 = gpu_of("NVIDIA B200", (10, 0), 148, 232_448)
#: Those whose choices are shipped, by their slugs, and the one of them that was measured at all points of the sweeps.
SHIPPED = {"nvidia-h200": H200, "nvidia-h100-80gb-hbm3": H100}
WHOLE = "nvidia-h200"


@dataclass
class Track:
    """Heats as they were asked for; a configuration takes what `us` says."""

    us: Callable[[object, int], float]  #: (configuration, rounds) -> microseconds
    heats: list[tuple[list, int]] = field(default_factory=list)
    hot: list[float] = field(default_factory=list)  #: seconds before each heat that were not counted
    compiled: list[tuple] = field(default_factory=list)

    def race(self, bounds, device, rounds, hot_s=0.0) -> dict:
        self.heats.append((list(bounds), rounds))
        self.hot.append(hot_s)
        return {config: self.us(config, rounds) for config in bounds}


def track(monkeypatch, us: Callable[[object, int], float], *, launch: bool = False) -> Track:
    """Heats are made up and nothing is compiled; nothing is launched, either, unless `launch` says so, and all problems
    are the tuned one, whatever their numbers."""
    made = Track(us)
    monkeypatch.setattr(search, "race", made.race)
    monkeypatch.setattr(jit, "compile_cubin", lambda *job: made.compiled.append(job))
    if not launch:
        for name, what in {
            "run": lambda *_: np.zeros((1, 1), np.float32),
            "copy": lambda output: output,
            "difference": lambda found, right, *_: "others" * int((found != right).any()),
            "jobs": lambda problem: [],
        }.items():
            monkeypatch.setattr(probe, name, what)
        for name in ("magnitudes", "exact"):
            monkeypatch.setattr(probe, name, lambda problem: problem)
    return made


class Kept:
    """The choices of a system, by its problems; `family` is the system's module of that name."""

    def __init__(self, family):
        self.family = family

    def read(self, path) -> dict:
        return autotune.read(self.family.CHOICES, path)

    def write(self, path, p, config) -> None:
        """A choice of today's kernels and compiler."""
        made = autotune.Choice(config, 9.0, autotune.choices.digest(self.family.CHOICES.sources(config)))
        autotune.write(self.family.CHOICES, path, self.family.key(p), made)

    def look_up(self, p, device):
        """The configuration, or None."""
        found = autotune.look_up(
            self.family.CHOICES,
            self.family.key(p),
            device,
            lambda config: self.family.fits(config, p, device),
        )
        return found and found.config

    def in_folders(self, monkeypatch, tmp_path):
        """The user's own folder of the system and the shipped one, both empty, instead of the real ones."""
        own, shipped = tmp_path / "own", tmp_path / "shipped"
        monkeypatch.setenv("SPARSITY_CHOICES", str(own))
        choices = replace(self.family.CHOICES, shipped=shipped)
        monkeypatch.setattr(self.family, "CHOICES", choices)
        return own / choices.room, shipped
