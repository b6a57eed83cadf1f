"""`plan` and `spmm`: out = alpha · A · B + beta · out with the kernel that suits A; and plans on disk.

A plan is made once: A is converted, a kernel chosen and its arguments laid out, with arrays in the place of B and out.
A call puts their addresses where those stood, and launches: nothing else happens, unless B or out are such that the
kernel does not take them as they are (see `Plan`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import formats, tma
from ..contract import Launch, Operands, Problem, require, require_whole, unrehearsed
from ..formats.csr import INT32_MAX
from ..formats.half import array_of
from ..pitch import ALIGNMENT
from . import buffers, current, dense, direct, expect, operands, routes
from .buffers import Buffers
from .dense import Dense
from .torch_modes import require_no_grad

ORDERS = ("C", "F")
B, OUT, VALUES, SCRATCH = range(4)  #: places whose addresses a call brings, or its buffers from SCRATCH on
_MOST_MAPS = 64
_ONE, _ZERO = 1.0, 0.0  #: alpha and beta where a call names none: no other number is looked at


@dataclass
class Step:
    """A launch of a kernel whose arguments hold addresses that change."""

    kernel: Any
    config: Any
    arguments: list
    places: list[tuple[int, int, tma.Mapped | None]]  #: argument, whose address, and of a tensor map what it says
    maps: dict[tuple[int, int], Any] = field(default_factory=dict)

    def at(self, addresses: tuple[int, ...]) -> tuple:
        """The arguments for other addresses; tensor maps, which hold one, are encoded anew and kept by it."""
        arguments = self.arguments
        for place, whose, mapped in self.places:
            address = addresses[whose]
            arguments[place] = address if mapped is None else self._map(place, address, mapped)
        return tuple(arguments)

    def _map(self, place: int, address: int, said: tma.Mapped):
        found = self.maps.get((place, address))
        if found is None:
            if len(self.maps) >= _MOST_MAPS:
                self.maps.clear()
            found = self.maps[place, address] = tma.tensor_map(
                replace(said, address=address), said.box, said.swizzle, said.ahead
            )
        return found


def steps_of(launch: Launch, made: dict, stand: dict[int, int]) -> list[Step]:
    """The launches of a bound kernel, with places where the addresses of arrays that stand for others are.

    made: what `tma.recorded` saw meanwhile. stand: address -> B, OUT, VALUES, or from `SCRATCH` on. An argument that
    is a Python integer is an address: sizes are NumPy's.
    """
    found = []
    for kernel, config, given in launch.steps:
        places: list[tuple[int, int, tma.Mapped | None]] = []
        arguments = list(given)
        for i, x in enumerate(arguments):
            if type(x) is int and x in stand:
                places.append((i, stand[x], None))
            elif id(x) in made and made[id(x)][1].address in stand:
                mapped = made[id(x)][1]
                places.append((i, stand[mapped.address], mapped))
        for i, _, _ in places:
            arguments[i] = None  # a tensor map would hold the array
        found.append(Step(kernel, config, arguments, places))
    return found


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

    def __init__(self, way: routes.Route, a, n: int, dtype: str, accuracy: str, device, choice: str = ""):
        self.m, self.k = operands.size_of(a)
        self.n, self.dtype, self.accuracy = n, dtype, accuracy
        self.a, self.device = a, device  #: A as the kernels read it; the GPU, a `cuda.core.Device`
        self.room, self.choice = way.room, choice  #: whose kernel it is, and which
        self.b_order, self.out_order = way.b_order, way.c_order
        self.in_place = way.in_place
        self.prepare_ms = 0.0
        self.stream = None
        self._ordinal = device.device_id
        self._steps: list[Step] = []
        self._keep: tuple = ()
        self._own_values = 0
        # How B, and out, lies -> whether the kernel takes it so, and the bytes from its address on.
        self._known: tuple[dict[tuple, tuple], dict[tuple, tuple]] = ({}, {})
        self._flows: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._sizes: tuple[int, ...] = ()  # bytes of scratch
        self._buffers = Buffers(device, ())
        self._of_captures: dict[int, Buffers] = {}
        self._combine: dict[int, tuple] = {}
        self._enqueue: Callable  # cuda.core.launch
        self.deterministic = False  #: whether the same B gives the same bits in every call
        self._notes: list[str] = []
        self._way: routes.Route | None = None

    def __repr__(self) -> str:
        return (
            f"Plan({self.m} x {self.k} by {self.k} x {self.n}, {self.dtype}, {self.accuracy}: "
            f"{self.room}, {self.choice or 'nothing to multiply'})"
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.m, self.k

    @property
    def notes(self) -> tuple[str, ...]:
        """What a caller may want to know: that the choice was made with another compiler, or that a dense product is
        expected to be faster. A sentence each."""
        slower = expect.dense_is_faster(self._way, self.n, self.device) if self._way else ""
        return (*self._notes, *([slower] if slower else []))

    def __reduce__(self):
        raise TypeError("a plan holds kernels of this process: make another with plan(), or use save() and load_plan()")

    def __call__(self, b, out=None, *, values=None, alpha: float = _ONE, beta: float = _ZERO, stream=None):
        """out (m, n), a new array of B's library where none is given; of a B (k,) it is (m,).

        B: (k, n), on the plan's GPU and in its dtype, of any library that speaks DLPack or `__cuda_array_interface__`;
        `Half`, too. values: float32 (nnz,), A's values in this call, for a plan made with in_place. stream: PyTorch's,
        CuPy's, cuda.core's or an address. Raises ValueError, one sentence, for what does not fit the plan.
        """
        if alpha is not _ONE or beta is not _ZERO:
            alpha, beta = dense.factor("alpha", alpha), dense.factor("beta", beta)
        at, how = dense.place(b, "B")
        b_as_it_is, b_first, b_past = self._known[B].get(how) or self._examined(b, how, B)
        if stream is None:
            stream = self.stream
        pointer = dense.current(b, self._ordinal) if stream is None else dense.address_of(stream)
        if out is None:
            require(beta == 0.0, f"beta is {beta!r}, but there is no out to add: give one")
            vector = len(dense.describe(b, "B").shape) == 1
            shape = (self.m,) if vector else (self.m, self.n)
            where = None if stream is None else pointer
            out = dense.empty(b, shape, self.dtype, self.out_order, self._ordinal, where)
        to, how = dense.place(out, "out")
        out_as_it_is, first, past = self._known[OUT].get(how) or self._examined(out, how, OUT)
        values_at = self._own_values if values is None else self._values(values)
        if self.m == 0 or self.n == 0:
            return out
        if at + b_first < to + past and to + first < at + b_past:
            _require_apart(b, out)
        flow = self._flows.get(pointer) or self._flow(pointer)
        if current.now() == self._ordinal:
            self._enqueued(b, at, b_as_it_is, out, to, out_as_it_is, values_at, alpha, beta, pointer, flow)
        else:
            with current.Current(self.device, self._ordinal):
                self._enqueued(b, at, b_as_it_is, out, to, out_as_it_is, values_at, alpha, beta, pointer, flow)
        return out

    def _enqueued(
        self, b, at: int, b_as_it_is: bool, out, to: int, out_as_it_is: bool, values_at: int, alpha, beta, pointer, flow
    ) -> None:
        with self._lock:
            mine = self._buffers_for(pointer)
            if not b_as_it_is or at % ALIGNMENT:
                at = self._staged_b(b, mine, flow)
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
                self._combined(OUT, source, target, alpha, beta, flow)
            mine.done(pointer)

    def _buffers_for(self, pointer: int) -> Buffers:
        """The buffers of a call on the stream at an address, which nothing uses before this call does."""
        if not buffers.is_captured(pointer):
            if not self._buffers.follow(pointer):
                self._buffers = buffers.copy_of(self._sizes, self.device)
                self._buffers.last = pointer
            return self._buffers
        capture = buffers.capture_of(pointer)
        if capture not in self._of_captures:
            self._of_captures[capture] = buffers.copy_of(self._sizes, self.device)
        mine = self._of_captures[capture]
        require(
            mine.follow(pointer),
            "a call in a CUDA graph cannot wait for the one before: join their streams",
        )
        return mine

    def _flow(self, pointer: int):
        made = self._flows[pointer] = dense.opened(pointer, self.device)
        return made

    # ---- what B and out are like

    def _examined(self, array, how: tuple, whose: int) -> tuple[bool, int, int]:
        """Whether the kernel takes an array as it is, and `dense.extent`, kept for all that lie so; ValueError where it
        does not fit."""
        name, rows = ("B", self.k) if whose == B else ("out", self.m)
        x = dense.describe(array, name)
        shapes = [(rows, self.n)] + [(rows,)] * (self.n == 1)
        require(
            x.shape in shapes,
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
        if not self._steps:  # nothing is multiplied, and out is filled from the stage
            takes = whose == B
        else:
            takes = dense.is_laid(x, self.b_order if whose == B else self.out_order)
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
        """A buffer in the kernel's own memory order, kept from its first use on: zeros."""
        if whose not in mine.stages:
            rows, order = (self.k, self.b_order) if whose == B else (self.m, self.out_order)
            address = buffers.zeros(mine, rows * self.n * dense.DTYPES[self.dtype][1])
            mine.stages[whose] = Dense(
                address, (rows, self.n), dense.strides_of(rows, self.n, order), self.dtype, self._ordinal
            )
        return mine.stages[whose]

    def _staged_b(self, b, mine: Buffers, flow) -> int:
        to = self._stage(B, mine)
        self._combined(B, dense.describe(b, "B"), to, 1.0, 0.0, flow)
        return to.ptr

    def _combined(self, whose: int, x: Dense, y: Dense, alpha: float, beta: float, flow) -> None:
        if whose not in self._combine:
            rows = self.k if whose == B else self.m
            self._combine[whose] = dense.combiner(self.dtype, rows, self.n, self.device)
        kernel, config = self._combine[whose]
        self._enqueue(flow, config, kernel, *dense.combine_arguments(x, y, alpha, beta))

    # ---- on disk

    def save(self, path) -> None:
        """Write A as the kernels read it, and the choice: an .npz file without pickled objects, for `load_plan`."""
        from .saved import save

        save(self, path)


def _require_apart(b, out) -> None:
    x, y = dense.describe(b, "B"), dense.describe(out, "out")
    if not dense.apart(x, y):
        said = "is B itself" if x.ptr == y.ptr else "overlaps B in memory"
        raise ValueError(f"out {said}: give another array")


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
    in_place: A is CSR of float32 whose values may change, in place or by `values` of a call. tune: try the
    kernels on A, some tenths of a second, and keep what was learnt; without it, the best by prediction is taken.
    deterministic: the same B gives the same bits in every call; otherwise sums of long rows of CSR are added up in the
    order in which their parts come to an end. check: look at A's indices before kernels follow them.
    device: CUDA's number of the GPU; A's own, or the current one. stream: of calls that name none.

    Waits for the GPU, before and after. Raises ValueError, one sentence, for what no kernel multiplies; NoGpu where
    there is no GPU, or no CuPy, with which A is converted.
    """
    require_whole("n", n, 0, INT32_MAX, "2^31 - 1")
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
        way = routes.route(
            formats.to_device(made),
            dtype,
            asked,
            device_now,
            order=order,
            out_order=out_order or order,
            explicit=accuracy is not None,
            in_place=in_place,
        )
        return built(way, int(n), dtype, asked, device_now, tune, stream=stream, deterministic=deterministic)


def built(
    way: routes.Route,
    n: int,
    dtype: str,
    accuracy: str,
    device,
    tune: bool,
    choice: str = "",
    stream=None,
    deterministic: bool = False,
) -> Plan:
    """The plan of a way, on a current device; choice: one made before, which is tried first."""
    from cuda.core import launch as enqueue

    made = Plan(way, way.a, n, dtype, accuracy, device)
    made.stream, made._enqueue, made.deterministic = stream, enqueue, deterministic
    notes: list[str] = []
    if made.m == 0 or n == 0 or made.k == 0 or way.a.nnz == 0:
        return made
    cupy = dense.need_cupy()
    problem, b, c = routes.stand_ins(way, n)
    with unrehearsed():
        with tma.recorded() as maps:
            bound = _bound(way, choice, problem, device)
        if bound is None:
            trials = (lambda: routes.problem(way, n, cupy)[0]) if tune else None
            choice, bind = routes.choose(way, problem, device, trials, deterministic, notes)
            with tma.recorded() as maps:
                bound = bind()
    made.choice, made._notes, made._way = choice, notes, way
    device.sync()
    require(
        isinstance(bound, Launch) and not bound.accumulates,
        f"{way.room} {made.choice} is no list of launches that a plan can repeat",
    )
    stand = {b.data.ptr: B, c.data.ptr: OUT}
    if way.in_place:
        made._own_values = way.a.val.data.ptr
        stand[made._own_values] = VALUES
    scratch = [array_of(x) for x in bound.scratch if array_of(x).nbytes]
    needed = set(stand.values())
    stand |= {x.data.ptr: SCRATCH + i for i, x in enumerate(scratch)}
    made._sizes = tuple(x.nbytes for x in scratch)
    made._buffers = Buffers(device, tuple(x.data.ptr for x in scratch), keep=scratch)
    made._steps = steps_of(bound, maps, stand)
    found = {whose for step in made._steps for _, whose, _ in step.places}
    require(
        found >= needed,
        f"the arguments of {way.room} {made.choice} do not show where B and out are",
    )
    made.prepare_ms = bound.prepare_ms
    made._keep = _kept(bound, problem.device(), {x.data.ptr for x in (b, c)})
    return made


def _bound(way: routes.Route, choice: str, problem: Problem, device) -> Launch | None:
    """The kernel of a choice that was made before; None where there is none, or it holds no longer."""
    if not choice or not routes.holds(way, choice, problem, device):
        return None
    try:
        return routes.bind(way, choice, problem, device)
    except (ValueError, AttributeError):
        return None


def _kept(bound: Launch, ops: Operands, stand: set[int]) -> tuple:
    """What the arguments point to, without the arrays that stood for B and out, whose memory is free again."""

    def stands(x) -> bool:
        data = getattr(array_of(x), "data", None)
        return getattr(data, "ptr", None) in stand

    for name in ("a", "b", "c"):
        if stands(getattr(ops, name)):
            setattr(ops, name, None)
    arguments = [id(step[2]) for step in bound.steps]
    return tuple(x for x in bound.keep if not stands(x) and id(x) not in arguments)


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
        found = direct.brought(a)
        if found is not None:
            done = direct.multiplied(found, b, given, out, alpha, beta, stream, check)
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
    with current.Current(made.device, made._ordinal):
        made.device.sync()  # the plan's memory goes when it does
    return out
