"""What the report's cuBLAS contains: its floor, its middle and its top, by the fit of the published times."""

from __future__ import annotations

import numpy as np
import pandas as pd

from artifact.rooms.nm_cuda_core.figures import Fit, cublas_times, fit_readings
from artifact.rooms.nm_cuda_core.trial import READINGS, of

#: TFLOP/s of an RTX 4070: cores of the report's section 4.1, at the boost clock.
CARD = 2 * 5888 * 2.475e9 / 1e12
#: GB/s of 16 lanes of PCIe 3.0, which the Xeon E5-2650 v2 of its host has.
SLOT = 16 * 8e9 * 128 / 130 / 8e9


def fit(fig2: pd.DataFrame) -> Fit:
    """The published times of cuBLAS as a cost per call, per element and per multiplication."""
    theirs = cublas_times(fig2)
    return fit_readings(theirs.index, theirs)


def contains(published: pd.DataFrame, fig2: pd.DataFrame, compared: pd.DataFrame) -> str:
    """The three parts of the published times, and how far the fit can be trusted. compared:
    `figures.compare_readings`, by reading."""
    parts = "\n".join(f"- {part}" for part in (_floor(published, fig2), _middle(fig2), _top(fig2)))
    return f"{parts}\n\n{_trust(fig2, compared)}"


def _floor(published: pd.DataFrame, fig2: pd.DataFrame) -> str:
    theirs, alone = cublas_times(fig2), of(published, "cublas")
    least = min(alone.index)
    handle, allocation, transfers = (
        (of(published, r) - alone).loc[least] for r in ("cublas_handle", "cublas_allocation", "cublas_transfers")
    )
    return (
        f"**The floor is the handle.** Of the published {theirs.loc[64] * 1e6:.0f} µs at 64³, "
        f"{fit(fig2).constant * 1e6:.0f} µs are a constant. Here a handle costs {handle:.0f} µs a call, allocating "
        f"and freeing three matrices {allocation:.0f} µs, copying them {transfers:.0f} µs, and the multiplication with "
        f"its launch {alone.loc[least]:.0f} µs. The handle is in the public code's loop, and it is the only one large "
        "enough. What the report calls cuBLAS's “launch-overhead regime” is the creation of a library context."
    )


def _middle(fig2: pd.DataFrame) -> str:
    theirs, found = cublas_times(fig2), fit(fig2)
    return (
        f"**The middle looks like copying.** A part grows like n²: {found.square * 4096**2 * 1e3:.0f} of the "
        f"{theirs.loc[4096] * 1e3:.1f} ms at 4096³. As a copy of three matrices it would run at {found.gbps:.0f} GB/s; "
        f"the PCIe 3.0 slot of the report's host passes {SLOT:.1f} at best. Yet section 4.4 excludes copies, and the "
        "code as published has none in its loop. Perhaps another version was measured."
    )


def without_one(theirs: pd.Series) -> list[float]:
    """TFLOP/s of the n³ part with each of the published times left out in turn."""
    rests = [theirs.drop(size) for size in theirs.index]
    return [fit_readings(rest.index, rest).tflops for rest in rests]


def _top(fig2: pd.DataFrame) -> str:
    theirs, found = cublas_times(fig2), fit(fig2)
    rates = without_one(theirs)
    return (
        f"**The top is only bounded.** The part that grows like n³ runs at {found.tflops:.0f} TFLOP/s, and the card "
        f"has {CARD:.0f}; but leaving one of the five points out moves it between {min(rates):.0f} and "
        f"{max(rates):.0f}. Even at 8192³ the n² part is the larger, {found.square * 8192**2 * 1e3:.0f} of "
        f"{theirs.loc[8192] * 1e3:.0f} ms."
    )


def held_out(fig2: pd.DataFrame) -> list[float]:
    """cuBLAS's ms at 1024³ that the text implies: it states a speedup there and the sparse kernels' TFLOP/s."""
    at = fig2[fig2["size"] == 1024].set_index("quantity")
    faster = at.loc[["speedup_cublas"], "low"].iloc[0]
    rates = at.loc[["tflops"], ["high", "low"]].iloc[0]
    return [faster * 1024**3 / rate / 1e9 for rate in rates]


def _trust(fig2: pd.DataFrame, compared: pd.DataFrame) -> str:
    worst, implied = compared["worst_factor"], held_out(fig2)
    given = float(fit(fig2).seconds(np.array([1024]))[0]) * 1e3
    return (
        f"The fit meets its five points within a factor of {worst['published']:.2f}, and one that it has not seen: the "
        f"5.9× at 1024³ mean {implied[0]:.2f} to {implied[1]:.2f} ms, and it gives {given:.2f}. The handle alone, each "
        f"part scaled to fit, comes within {worst[READINGS[-1]]:.1f}. So the published protocol times a library "
        "context and something that costs like a transfer; the multiplication hardly shows. The ledger has two "
        "verdicts for each of these claims: one for the published protocol, one for the kernel alone."
    )
