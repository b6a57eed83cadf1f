"""`plan` and `spmm`: out = alpha · A · B + beta · out with the kernel that suits A; and plans on disk.

A plan is made once: A is converted, a kernel chosen and bound, whose arguments name the places of B and out. A call
puts their addresses there, and launches: nothing else happens, unless B or out are such that the kernel does not take
them as they are (see `Plan`).
"""

import contextlib
import hashlib
import json
import os
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import autotune, formats, jit, tma, workspace
from ..contract import Launch, Operand, require, require_whole, timed, unrehearsed
from ..formats import csr, half
from ..lazy import core
from ..padding import ALIGNMENT
from . import current, dense, direct, explanation, operands, routes
from .current import Buffers
from .dense import Dense, require_no_grad

ORDERS = ("C", "F")
#: Places among the addresses that a launch is laid out for: those of a call, and its buffers' from SCRATCH on.
B, OUT, VALUES, SCRATCH = range(4)
_PLACES = {Operand.B: B, Operand.OUT: OUT, Operand.VALUES: VALUES}
_ONE, _ZERO = 1.0, 0.0  #: alpha and beta where a call names none: no other number is looked at


@dataclass
class Step:
    """A launch of a kernel whose arguments hold addresses that change."""

    kernel: Any
    config: Any
    arguments: list
    places: list[tuple[int, int, tma.Mapped | None]]  #: of `places_of`
    maps: dict[tuple, Any] = field(default_factory=dict)

    def at(self, addresses: tuple[int, ...]) -> tuple:
        """Return the arguments for other addresses; tensor maps, which hold one, are encoded anew and kept by it."""
        arguments = self.arguments
        for place, whose, mapped in self.places:
            arguments[place] = addresses[whose] if mapped is None else self._map(place, addresses[whose], mapped)
        return tuple(arguments)

    def _map(self, place: int, address: int, said: tma.Mapped):
        key = place, address
        return self.maps.get(key) or tma.remember(self.maps, key, tma.encoded(replace(said, address=address)))


def places_of(named: tuple, scratch: dict[int, int]) -> Iterator[tuple[int, int, tma.Mapped | None]]:
    """Yield the places that a bound kernel's arguments name: argument, whose address, and of a tensor map what it says.

    scratch: address of what launches write besides out -> its place, from `SCRATCH` on. An argument that is a Python
    integer is an address: sizes are NumPy's.
    """
    for i, x in enumerate(named):
        mapped = x if isinstance(x, tma.Mapped) else None
        at = x.address if mapped else x
        place = _PLACES[at] if isinstance(at, Operand) else scratch.get(at) if type(at) is int else None
        if place is not None:
            yield i, place, mapped


class Plan:
    """out = alpha · A · B + beta · out for one A (m, k), and for B (k, n) and out (m, n) of one dtype.

        made = plan(a, n, dtype="float32")
        out = made(b)                       # a new array of B's library
        made(b, out=out, alpha=2, beta=1)   # out = 2 A B + out

    A call launches and returns; work is on the stream given, else on the current one of B's library (PyTorch's, or
    CuPy's). It does nothing but the launch where B and out are in the memory orders of `b_order` and
    `out_order`, begin at multiples of 16 bytes, and alpha is 1 and beta 0. Otherwise it launches a small kernel before
    or after: B in another order or with gaps is copied first, out likewise at last, alpha is applied to what was
    already rounded to the dtype, and beta adds out to it; buffers for that are allocated when they are first needed.
    Kernels that read through TMA hold an address in a tensor map, which is encoded anew for an array not seen before.

    A plan knows nothing of gradients: `SparseMatrix` does. Calls may come on several streams and in several threads:
    where one comes on another stream than the one before, it waits for that one, since they share buffers. A call may
    be captured in a CUDA graph once it has run as it shall be captured; calls in different graphs share nothing. Keep
    the plan until its work is done, and graphs with it are no longer used, and A as it is: some kernels read its
    arrays, some a copy.
    """

    def __init__(
        self,
        way: routes.Route,
        n: int,
        dtype: str,
        accuracy: str,
        device,
        deterministic: bool = False,
        config: Any = None,
        bound: Launch | None = None,
        note: str = "",
        stream=None,
        transposed: bool = False,
    ):
        self.m, self.k = operands.size_of(way.a)
        self.n, self.dtype, self.accuracy = n, dtype, accuracy
        self.a, self.device = way.a, device  #: A as the kernels read it; the GPU, a `cuda.core.Device`
        self.room = way.room  #: whose kernel it is
        self.b_order, self.out_order = tuple(way.orders[0])
        self.in_place, self.stream = way.in_place, stream
        self.deterministic = deterministic  #: whether the same B gives the same bits in every call
        self.transposed = transposed  #: whether `a` is the transpose of what was given
        self._way, self._config = way, config  # what was chosen: None where there is nothing to multiply
        self._note = note
        self._ordinal = device.device_id
        self._own_values = way.a.val.data.ptr if way.in_place else 0
        # How B, and out, lies -> whether the kernel takes it so, and the bytes from its address on.
        self._known: tuple[dict[tuple, tuple], dict[tuple, tuple]] = ({}, {})
        self._lock = threading.Lock()
        bound = bound or Launch("", [], None)
        self.prepare_ms = bound.prepare_ms
        scratch = [x for x in map(half.array_of, bound.scratch) if x.nbytes]
        at = tuple(x.data.ptr for x in scratch)
        places = {address: SCRATCH + i for i, address in enumerate(at)}
        self._steps = [
            Step(kernel, step_config, list(given), list(places_of(named, places)))
            for (kernel, step_config, given), (_, _, named) in zip(bound.steps, bound.named, strict=True)
        ]
        self._keep = bound
        self._sizes = tuple(x.nbytes for x in scratch)
        self._buffers = Buffers(at, keep=scratch)
        self._of_captures: dict[int, Buffers] = {}
        self._flows: dict[int, Any] = {}  #: streams by address
        self._enqueue: Callable = core.launch

    @property
    def choice(self) -> str:
        """Which of the system's kernels it is, and how configured; "" where there is nothing to multiply."""
        return "" if self._config is None else routes.text(self._way, self._config)

    def __repr__(self) -> str:
        return (
            f"Plan({self.m} x {self.k} by {self.k} x {self.n}, {self.dtype}, {self.accuracy}: "
            f"{self.room}, {self.choice or 'nothing to multiply'})"
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Return (m, k), the shape of A."""
        return self.m, self.k

    @property
    def notes(self) -> tuple[str, ...]:
        """What a caller may want to know.

        That the choice was made with another compiler, or that a dense product is expected to be faster. A sentence
        each.
        """
        slower = routes.dense_is_faster(self._way, self.n, self.device) if self._config is not None else ""
        return tuple(note for note in (self._note, slower) if note)

    def explain(self) -> explanation.Explanation:
        """Return what decided, which kernel it made, the time to expect, and what would be faster; `str` words it."""
        with current.opened(self._ordinal):
            how = self._way, self._config, self.n, self.dtype, self.accuracy, self.device
            return explanation.of_plan(*how, self.prepare_ms)

    def batched(self, b, *, stream=None):
        """out (batch, m, n) of B (batch, k, n), arrays of one library: one launch, or one for each of the batch.

        A plan for batch · n columns multiplies all at once. It reads B as it lies where the batch, too, lies as the
        plan reads columns: of b_order "F", a transposed view of (batch, n, k), as a layer's input is; of "C", one of
        (k, batch, n). Elsewhere B is copied. A plan for n columns is called for each. out has the memory order of
        the plan. All calls may be captured in one CUDA graph.
        """
        require(len(b.shape) == 3, f"B has {len(b.shape)} dimensions, but a batch of matrices has 3")
        batch, k, n = b.shape
        if self.n == n:
            dense.describe(b, "B")  # whose library it is
            lines, width = (n, self.m) if self.out_order == "F" else (self.m, n)
            where = None if stream is None else dense.address_of(stream)
            out = dense.empty(b, (batch * lines, width), self.dtype, "C", self._ordinal, where)
            out = out.reshape(batch, lines, width)
            out = out.swapaxes(1, 2) if self.out_order == "F" else out
            for i in range(batch):
                self(b[i], out[i], stream=stream)
            return out
        require(self.n == batch * n, f"B is {batch} times {k} x {n}, but the plan is for {self.n} columns: plan anew")
        by_columns = self.b_order == "F"
        folded = b.swapaxes(1, 2).reshape(batch * n, k).T if by_columns else b.swapaxes(0, 1).reshape(k, batch * n)
        out = self(folded, stream=stream)
        if self.out_order == "F":
            return out.T.reshape(batch, n, self.m).swapaxes(1, 2)
        return out.reshape(self.m, batch, n).swapaxes(0, 1)

    __array_ufunc__ = None  # NumPy and CuPy leave `x @ plan` to the plan

    def __rmatmul__(self, x):
        """Return x · A, (n, k), for a plan of Aᵀ: the transpose of Aᵀ · xᵀ, for which x (n, m) lies as it is.

        A row-major x is a B by columns, which a plan with order="F" takes uncopied where its kernel does (`b_order`).
        """
        require(self.transposed, "x @ plan is x · A for a plan of the transpose: make it with transpose=True")
        return self(x.T).T

    def __reduce__(self):
        raise TypeError("a plan holds kernels of this process: make another with plan(), or use save() and load_plan()")

    def __call__(self, b, out=None, *, values=None, alpha: float = _ONE, beta: float = _ZERO, stream=None):
        """out (m, n), a new array of B's library where none is given; of a B (k,) it is (m,).

        B: (k, n), on the plan's GPU and in its dtype, of any library that speaks DLPack or `__cuda_array_interface__`;
        `Half`, too. values: float32 (nnz,), A's values in this call, for a plan made with in_place. stream: PyTorch's,
        CuPy's, cuda.core's or an address. Raises ValueError, one sentence, for what does not fit the plan.
        """
        if current.now() != self._ordinal:
            with current.opened(self._ordinal):
                return self(b, out, values=values, alpha=alpha, beta=beta, stream=stream)
        if alpha is not _ONE or beta is not _ZERO:
            alpha, beta = dense.factor("alpha", alpha), dense.factor("beta", beta)
        at, how = dense.place(b, "B")
        b_as_it_is, b_first, b_past = self._known[B].get(how) or self._examined(b, how, B)
        if stream is None:
            stream = self.stream
        pointer = dense.current(b, self._ordinal) if stream is None else dense.address_of(stream)
        if out is None:
            require(beta == 0.0, f"beta is {beta!r}, but there is no out to add: give one")
            shape = (self.m,) if len(dense.describe(b, "B").shape) == 1 else (self.m, self.n)
            where = None if stream is None else pointer
            out = dense.empty(b, shape, self.dtype, self.out_order, self._ordinal, where)
        to, how = dense.place(out, "out")
        out_as_it_is, first, past = self._known[OUT].get(how) or self._examined(out, how, OUT)
        values_at = self._own_values if values is None else self._values(values)
        if self.m == 0 or self.n == 0:
            return out
        if at + b_first < to + past and to + first < at + b_past:
            x, y = dense.describe(b, "B"), dense.describe(out, "out")
            said = "is B itself" if x.ptr == y.ptr else "overlaps B in memory"
            require(dense.apart(x, y), f"out {said}: give another array")
        flow = self._flows.get(pointer) or self._flows.setdefault(pointer, workspace.stream_at(pointer, self.device))
        self._lock.acquire()  # `with` takes twice as long
        try:
            mine = self._buffers
            if pointer != mine.last or pointer not in current.LASTING:
                mine = self._buffers_for(pointer)
            if not b_as_it_is or at % ALIGNMENT:
                stage = self._stage(B, mine)
                dense.combine(dense.describe(b, "B"), stage, 1.0, 0.0, self.device, flow)
                at = stage.ptr
            plain = out_as_it_is and not to % ALIGNMENT and beta == 0.0
            addresses = (at, to if plain else self._stage(OUT, mine).ptr, values_at, *mine.scratch)
            if addresses != mine.at:
                mine.ready = [(s.config, s.kernel, s.at(addresses)) for s in self._steps]
                mine.at = addresses
            for config, kernel, arguments in mine.ready:
                self._enqueue(flow, config, kernel, *arguments)
            if not plain or alpha != 1.0:
                target = dense.describe(out, "out")
                source = target if plain else self._stage(OUT, mine)
                dense.combine(source, target, alpha, beta, self.device, flow)
            mine.done(pointer)
        finally:
            self._lock.release()
        return out

    def _buffers_for(self, pointer: int) -> Buffers:
        """Return the buffers of a call on the stream at an address, which nothing uses before this call does."""
        if not current.is_captured(pointer):
            if not self._buffers.follow(pointer):
                self._buffers = current.copy_of(self._sizes)
                self._buffers.last = pointer
            return self._buffers
        capture = current.capture_of(pointer)
        if capture not in self._of_captures:
            self._of_captures[capture] = current.copy_of(self._sizes)
        mine = self._of_captures[capture]
        require(
            mine.follow(pointer),
            "a call in a CUDA graph cannot wait for the one before: join their streams",
        )
        return mine

    # ---- what B and out are like

    def _examined(self, array, how: tuple, whose: int) -> tuple[bool, int, int]:
        """Whether the kernel takes an array as it is, and `dense.extent`, kept for all that lie so.

        ValueError where it does not fit.
        """
        name, rows = ("B", self.k) if whose == B else ("out", self.m)
        x = dense.describe(array, name)
        require(
            x.shape == (rows, self.n) or (self.n == 1 and x.shape == (rows,)),
            f"{name} is {' x '.join(map(str, x.shape))}, but the plan is for "
            f"{rows} x {self.n}: plan anew for another size",
        )
        require(
            x.dtype == self.dtype,
            f"{name} is {x.dtype}, but the plan is for {self.dtype}: convert it"
            + f", or plan with dtype={x.dtype!r}" * (x.dtype in operands.DTYPES),
        )
        require(
            x.device == self._ordinal,
            f"{name} is on GPU {x.device}, but the plan on GPU {self._ordinal}: copy it there",
        )
        if whose == OUT:
            require(not x.readonly, "out may not be written, says its library: give another array")
            require(
                not dense.overlaps_itself(x),
                f"elements of out share memory, since its strides are {tuple(x.strides)}: give an array that is not "
                "expanded",
            )
        order = self.b_order if whose == B else self.out_order
        # Where nothing is multiplied, out is filled from the stage.
        takes = dense.is_laid(x, order) if self._steps else whose == B
        self._known[whose][how] = takes, *dense.extent(x)
        return self._known[whose][how]

    def _values(self, values) -> int:
        require(self.in_place, "values are given, but the plan copied A's: make it with in_place=True")
        require_no_grad(values, "values")
        x = dense.describe(values, "values")
        nnz = self.a.nnz
        require(
            x.shape == (nnz,) and x.dtype == "float32" and x.device == self._ordinal and (nnz < 2 or x.strides == (1,)),
            f"values are {x.dtype} {x.shape} on GPU {x.device}, but must be contiguous float32 {(nnz,)} on GPU "
            f"{self._ordinal}",
        )
        return x.ptr

    # ---- what the kernel does not do itself

    def _stage(self, whose: int, mine: Buffers) -> Dense:
        """Return a buffer in the kernel's own memory order, kept from its first use on: zeros."""
        if whose not in mine.stages:
            rows, order = (self.k, self.b_order) if whose == B else (self.m, self.out_order)
            address = current.zeros(mine, rows * self.n * dense.DTYPES[self.dtype][1])
            strides = (self.n, 1) if order == "C" else (1, rows)
            mine.stages[whose] = Dense(address, (rows, self.n), strides, self.dtype, self._ordinal)
        return mine.stages[whose]

    # ---- on disk

    def save(self, path) -> None:
        """Write A as the kernels read it, and the choice: an .npz file without pickled objects, for `load_plan`."""
        host = formats.to_host(self.a)
        arrays = {f.name: getattr(host, f.name) for f in fields(host) if f.compare}
        plain = {
            name: x if isinstance(x, str) else int(x)
            for name, x in arrays.items()
            if not hasattr(x, "ndim") or isinstance(x, np.integer)
        }
        arrays = {name: x for name, x in arrays.items() if name not in plain}
        about = {
            "version": VERSION,
            "format": type(host).__name__,
            "fields": plain,
            "n": self.n,
            "dtype": self.dtype,
            "accuracy": self.accuracy,
            "b_order": self.b_order,
            "out_order": self.out_order,
            "in_place": self.in_place,
            "deterministic": self.deterministic,
            "transposed": self.transposed,
            "choice": self.choice,
            **_origin(self.room, self.device),
        }
        about["sha256"] = _digest(about, arrays)
        with jit.aside(Path(path).resolve()) as file:  # a link stays one
            np.savez(file, about=np.array(json.dumps(about)), **arrays)
            file.flush()
            os.fsync(file.fileno())


def plan(
    a,
    n: int,
    *,
    dtype: str | None = None,
    order: str = "C",
    out_order: str | None = None,
    accuracy: str | None = None,
    prune: str | None = None,
    density: float | None = None,
    group: int = 32,
    vector: int = 32,
    block: int = 64,
    in_place: bool = False,
    transpose: bool = False,
    tune: bool = True,
    deterministic: bool = False,
    check: bool = True,
    device: int | None = None,
    stream=None,
) -> Plan:
    """Make ready to multiply A (m, k) by any B (k, n): convert A, choose the kernel, lay out its arguments.

    a: a sparse matrix of SciPy, CuPy or PyTorch, one of `formats`, or with `prune` a dense array: see
    `operands.operand`, which takes prune, density, group, vector and block. dtype: of B and out, "float32",
    "bfloat16" or "float16", in any usual spelling; that of A's values where it is None. order, out_order: memory order
    of B and out, "C" or "F", which the kernel takes where it can (`Plan.b_order`). accuracy: "fp32", "tf32", "fp16" or
    "bf16", at least which products have; None: what the dtype holds. `routes` says which kernel that leads to.
    in_place: A is CSR of float32 whose values may change, in place or by `values` of a call. transpose: multiply by Aᵀ
    instead, B being (m, n) and out (k, n): a copy of A is turned on the GPU, once, whose time is in `prepare_ms`; then
    `x @ plan` is x · A. tune: try the
    kernels on A, some tenths of a second, and keep what was learnt; without it, the best by prediction is taken.
    deterministic: the same B gives the same bits in every call; otherwise sums of long rows of CSR are added up in the
    order in which their parts come to an end. check: look at A's indices before kernels follow them.
    device: CUDA's number of the GPU; A's own, or the current one. stream: of calls that name none.

    Waits for the GPU, before and after. Raises ValueError, one sentence, for what no kernel multiplies; NoGpu where
    there is no GPU, or no CuPy, with which A is converted.
    """
    require_whole("n", n, 0, csr.INT32_MAX, "2^31 - 1")
    require(not (transpose and in_place), "values change in place in A, but transpose=True reads a copy: leave one out")
    for name, value in (("order", order), ("out_order", out_order or order)):
        require(value in ORDERS, f"{name} is {value!r}, but must be 'C' or 'F'")
    dtype = operands.dtype_name(dtype) or operands.dtype_named(a)
    asked = operands.resolved(accuracy, dtype)
    with current.opened(current.ordinal_for(a) if device is None else device) as device_now:
        cupy = dense.need_cupy()
        device_now.sync()
        if prune is not None and isinstance(a, np.ndarray):
            a = cupy.asarray(a)  # where pruning is fast
        made = operands.operand(
            a,
            accuracy=accuracy,
            dtype=dtype,
            prune=prune,
            density=density,
            group=group,
            vector=vector,
            block=block,
            check=check,
        )
        made, turned_ms = formats.to_device(made), 0.0
        if transpose:
            with unrehearsed():
                made, turned_ms = timed(lambda: operands.turned(made))
        way = routes.route(
            made,
            dtype,
            asked,
            device_now,
            order=order,
            out_order=out_order or order,
            explicit=accuracy is not None,
            in_place=in_place,
        )
        ready = built(way, int(n), dtype, asked, device_now, tune, "", deterministic, stream, transpose)
        ready.prepare_ms += turned_ms
        return ready


def built(
    way: routes.Route,
    n: int,
    dtype: str,
    accuracy: str,
    device,
    tune: bool,
    choice: str = "",
    deterministic: bool = False,
    stream=None,
    transposed: bool = False,
) -> Plan:
    """Return the plan of a way, on a current device; choice: one made before, which is tried first."""
    config = bound = None
    note = ""
    if 0 not in (*operands.size_of(way.a), n, way.a.nnz):
        p = routes.multiplication(way, n)
        with unrehearsed():
            config = routes.written(way, choice, p, device) if choice else None
            if config is not None:
                with contextlib.suppress(ValueError, AttributeError):  # it holds no longer
                    bound = routes.prepare(way, config, p, device)
            if bound is None:
                trials = (lambda: routes.multiplication(way, n, dense.need_cupy())) if tune else None
                config, note = routes.choose(way, p, device, trials)
                config = routes.in_order(config) if deterministic else config
                bound = routes.prepare(way, config, p, device)
        device.sync()
    return Plan(way, n, dtype, accuracy, device, deterministic, config, bound, note, stream, transposed)


def explain(a, n: int, **how) -> explanation.Explanation:
    """Return what decides how A is multiplied by n columns, by which kernel, in which time, and what would be faster.

    how: arguments of `plan`; without tune, nothing is tried, and a plan is made as quickly as that. Print it.
    """
    return plan(a, n, **{"tune": False} | how).explain()


def spmm(
    a,
    b,
    *,
    alpha: float = _ONE,
    beta: float = _ZERO,
    out=None,
    accuracy: str | None = None,
    stream=None,
    prune: str | None = None,
    density: float | None = None,
    group: int = 32,
    vector: int = 32,
    block: int = 64,
    deterministic: bool = False,
    check: bool = True,
):
    """out (m, n) = alpha · A · B + beta · out, once.

    CSR that lies on the GPU, with values of B's dtype, is multiplied as it is, row by row: the call waits until its
    indices were looked at (check=False leaves that out), and the same call gives the same bits. Anything else is a
    `plan` without trials, its call, and the wait for its end. Who multiplies by the same A again makes a plan, which
    pays for the conversion of A once. Nothing of A is kept. Arguments are those of `plan` and `Plan.__call__`; dtype,
    GPU and memory order are B's.
    """
    given = dense.describe(b, "B")
    if prune is None and accuracy in (None, *operands.ACCURACIES.get(given.dtype, ())[:1]):
        done = direct.multiplied(a, b, given, out, alpha, beta, stream, check)
        if done is not None:
            return done
    require(len(given.shape) in (1, 2), f"B has {len(given.shape)} dimensions, but a matrix has 2")
    n = given.shape[1] if len(given.shape) == 2 else 1
    made = plan(
        a,
        n,
        dtype=given.dtype,
        order=dense.order_of(given),
        accuracy=accuracy,
        prune=prune,
        density=density,
        group=group,
        vector=vector,
        block=block,
        tune=False,
        device=given.device,
        deterministic=deterministic,
        check=check,
    )
    out = made(b, out, alpha=alpha, beta=beta, stream=stream)
    with current.opened(given.device) as device:
        device.sync()  # the plan's memory goes when it does
    return out


# ---------------------------------------------------------------- on disk

VERSION = 2  #: of a plan's file


def _origin(room: str, device) -> dict[str, str]:
    """Return what a choice is of: a system, its kernels by 12 hexadecimal digits, a GPU and a compiler."""
    kernels = autotune.choices.digest((jit.ROOT / room).glob("*.cu"))
    return {"room": room, "gpu": autotune.choices.slug(device), "nvrtc": jit.nvrtc_version(), "kernels": kernels}


def load_plan(path, *, device: int | None = None, tune: bool = True, stream=None) -> Plan:
    """Return the plan that `Plan.save` wrote, on a GPU of CUDA's number, or the current one; stream: as `plan` has it.

    A is checked. The kernel is the one that was chosen; where the GPU, the compiler or the system's kernels are others,
    it is chosen anew. Raises ValueError, one sentence, for a file that is none of these, or is damaged;
    FileNotFoundError, PermissionError; NoGpu.
    """
    about, a = read_plan(path)
    with current.opened(current.ordinal_for(None) if device is None else device) as device_now:
        way = routes.route(
            formats.to_device(a),
            about["dtype"],
            about["accuracy"],
            device_now,
            order=about["b_order"],
            out_order=about["out_order"],
            explicit=True,
            in_place=about["in_place"],
        )
        holds = _origin(way.room, device_now).items() <= about.items()
        return built(
            way,
            about["n"],
            about["dtype"],
            about["accuracy"],
            device_now,
            tune,
            about["choice"] if holds else "",
            about["deterministic"],
            stream,
            about["transposed"],
        )


#: What the JSON text of a saved plan holds.
_ABOUT = {
    "version": int,
    "format": str,
    "fields": dict,
    "n": int,
    "dtype": str,
    "accuracy": str,
    "b_order": str,
    "out_order": str,
    "in_place": bool,
    "deterministic": bool,
    "transposed": bool,
    "room": str,
    "choice": str,
    "gpu": str,
    "nvrtc": str,
    "kernels": str,
    "sha256": str,
}


def read_plan(path) -> tuple[dict, Any]:
    """Return (what a saved plan says of itself, A with NumPy arrays), checked.

    ValueError, one sentence, where it is wrong.
    """
    name = Path(path).name
    try:
        with zipfile.ZipFile(path) as file:  # of what is packed, a small file may become more than memory holds
            packed = [x.filename for x in file.infolist() if x.compress_type != zipfile.ZIP_STORED]
        require(not packed, f"{', '.join(packed)} is compressed")
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        lacking = {"deterministic": False, "transposed": False}  # in older files
        about = lacking | json.loads(str(arrays.pop("about")))
        wrong = [key for key, kind in _ABOUT.items() if type(about[key]) is not kind]
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # readers of archives, arrays and JSON raise many kinds
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__
        raise ValueError(f"{name} is no saved plan ({reason}): save it again") from error
    require(not wrong, f"{name} is no saved plan, since its {', '.join(wrong)} cannot be: save it again")
    require(
        about["version"] == VERSION,
        f"{name} is of version {about['version']}, but {VERSION} is read here: save it again",
    )
    known: Any = {kind.__name__: kind for kind in operands.FORMATS}.get(about["format"])
    names = {f.name for f in fields(known) if f.compare} if known else set()
    require(
        known is not None and names == arrays.keys() | about["fields"].keys(),
        f"{name} holds {about['format']!r} with {', '.join(sorted(arrays))}, which is no format here: save it again",
    )
    require(
        _digest(about, arrays) == about["sha256"],
        f"{name} is damaged, since it has another digest than was written: save it again",
    )
    require_whole(f"n of {name}", about["n"], 0, csr.INT32_MAX, "2^31 - 1")
    operands.resolved(about["accuracy"], about["dtype"])
    for key in ("b_order", "out_order"):
        require(about[key] in ORDERS, f"{key} of {name} is {about[key]!r}, but must be 'C' or 'F'")
    return about, formats.validate(known(**arrays, **about["fields"]))


def _digest(about: dict, arrays: dict) -> str:
    """Of all that a file says and holds, but the digest itself."""
    said = {name: x for name, x in about.items() if name != "sha256"}
    made = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name, x in sorted(arrays.items()):
        made.update(f"{name} {x.dtype.str} {x.shape}\0".encode())
        made.update(np.ascontiguousarray(x).data if x.size else b"")
    return made.hexdigest()
