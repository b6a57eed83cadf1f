"""Why a plan is as it is: what of A decides, which kernel that makes, how long it takes, and what would be faster.

Times are predictions, and `on` says of which GPU. Of CSR on Hopper they are the model's that proposes kernels, and
cuSPARSE's a sum of the same terms, fitted to launches on an H100 and an H200 (`async_sparse.any_csr`). Everything else
follows from the ceilings of the GPU that is here (`routes`).
"""

from dataclasses import dataclass
from typing import Any

from ..async_sparse import any_csr
from ..formats import csr
from . import operands, routes

#: Rows whose shared columns are told.
TOGETHER = (4, 16)
MODELLED = "an H100 or H200"


@dataclass(frozen=True)
class Explanation:
    """What a plan rests on; `str` has it in words. Times are None where nothing says them."""

    m: int
    n: int
    k: int
    nnz: int  #: that are stored
    dtype: str  #: of B
    accuracy: str
    kernel: str  #: the system whose kernel it is, and its configuration
    prepare_ms: float  #: that making it of A took
    on: str  #: the GPU that times are expected on
    longest: int | None = None  #: non-zeros of the longest row
    #: Rows that lie side by side -> non-zeros that a column of theirs has, on average.
    shared: tuple[tuple[int, float], ...] = ()
    expected_us: float | None = None  #: of a multiplication
    dense_us: float | None = None  #: of one by a dense A
    cusparse_us: float | None = None  #: of the fastest of cuSPARSE's algorithms for CSR

    @property
    def paid(self) -> float | None:
        """Return the multiplications after which making it has paid beside cuSPARSE; None: never, or nobody knows."""
        if self.expected_us is None or self.cusparse_us is None or self.cusparse_us <= self.expected_us:
            return None
        return self.prepare_ms * 1e3 / (self.cusparse_us - self.expected_us)

    @property
    def advice(self) -> str:
        """Return what to do, a sentence."""
        if self.expected_us is None:
            return "Nothing tells how long this takes here: time it."
        others = {"a dense product": self.dense_us, "cuSPARSE": self.cusparse_us}
        known = {what: us for what, us in others.items() if us is not None}
        best = min(known, key=known.__getitem__, default="")
        if best and known[best] < self.expected_us:
            return f"Expect {best} to be faster: {_us(known[best])} against {_us(self.expected_us)}."
        if self.paid is None:
            return "Expect this to be the fastest."
        return f"Expect this to be the fastest, beside cuSPARSE from {max(1, round(self.paid))} multiplications on."

    def __str__(self) -> str:
        rows = [("kernel", self.kernel), ("prepared", f"in {self.prepare_ms:.3g} ms")]
        for what, us in (("expected", self.expected_us), ("dense", self.dense_us), ("cuSPARSE", self.cusparse_us)):
            rows += [(what, f"{_us(us)} on {self.on}")] if us is not None else []
        shared = "".join(f"; {rows} rows share a column {times:.2f} times" for rows, times in self.shared)
        longest = "" if self.longest is None else f", {self.longest} in the longest"
        return "\n".join(
            (
                f"{self.m} x {self.k} by {self.k} x {self.n}: {self.nnz} non-zeros, {self.dtype}, {self.accuracy}",
                f"{self.nnz / max(1, self.m):.3g} non-zeros a row{longest}{shared}",
                *(f"{what:<9} {said}" for what, said in rows),
                self.advice,
            )
        )


def of_plan(
    way: routes.Route, config: Any, n: int, dtype: str, accuracy: str, device: Any, prepare_ms: float
) -> Explanation:
    """Return what a plan's way and configuration rest on; config: None where there is nothing to multiply."""
    a, (m, k) = way.a, operands.size_of(way.a)
    kernel = "nothing to multiply" if config is None else f"{way.room}, {routes.text(way, config)}"
    given: dict[str, Any] = {"m": m, "n": n, "k": k, "nnz": int(a.nnz), "dtype": dtype, "accuracy": accuracy}
    given |= {"kernel": kernel, "prepare_ms": prepare_ms, "on": str(device.name)}
    of = routes.ceilings(device)
    if config is not None and of is not None:
        given["dense_us"], given["expected_us"] = routes.both(routes.work_of(way, n), of)
    if config is None or not isinstance(a, csr.Csr):
        return Explanation(**given)
    ours = isinstance(config, any_csr.Config)
    found = any_csr.statistics(a, at_a_glance=not (ours and config.order))
    columns = dict(zip(any_csr.HEIGHTS, found.columns[""], strict=True))
    given |= {"longest": found.longest, "shared": tuple((h, found.nnz / max(1, columns[h])) for h in TOGETHER)}
    if ours and tuple(device.compute_capability) == (9, 0):
        kind = dtype if dtype != "float32" else "tf32"
        given |= {"expected_us": any_csr.expected_us(config, found, n, kind), "on": MODELLED}
        given["cusparse_us"] = any_csr.library_us(found, n, kind)
    return Explanation(**given)


def _us(us: float) -> str:
    return f"{us:.3g} us" if us < 1000 else f"{us / 1000:.3g} ms"
