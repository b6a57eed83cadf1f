"""Sparse matrices whose products PyTorch differentiates, as `torch.library` operators that `torch.compile` keeps whole.

    adjacency = SparseMatrix(a)                   # of SciPy, CuPy, PyTorch …, on the GPU
    y = adjacency @ x                             # x.requires_grad: its gradient is Aᵀ · G
    y = adjacency.matmul(x, values=w)             # w (nnz,) in place of A's values, of which (G · xᵀ) at A's places
                                                  # is the gradient

The operators take a number in place of the matrix, since they take tensors and numbers: it is the matrix's for as long
as it lives. Each has a kernel for tensors without data, and derivatives of any order, since the gradients are products
of the same kinds. Where `torch.compile` shall keep one graph, write `matmul`: of an @ it traces tensors alone,
and splits the graph there. PyTorch is imported when it is first needed.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

from .. import formats
from ..contract import require
from ..formats import bcsr, csr, half, intake, nm
from ..lazy import torch
from ..padding import ALIGNMENT
from ..workspace import stream_at
from . import current, dense, operands, plans
from .dense import named
from .direct import LONGEST, Sampled, multiplied

_numbers = itertools.count()
_matrices: weakref.WeakValueDictionary[int, SparseMatrix] = weakref.WeakValueDictionary()


class SparseMatrix:
    """A (m, k) on the GPU for C = A · B in PyTorch; plans are made when a number of columns is first met.

    a: what `plan` takes, with `prune` and its options for a dense array. accuracy: as `plan` has it, of gradients, too.
    tune: whether plans try kernels. device: CUDA's number of the GPU, or A's own. deterministic: whether products and
    gradients have the same bits each time; None: where torch.use_deterministic_algorithms asks for it. Without it,
    kernels of CSR may add the parts of a long row in any order. Leave A's arrays as they are: what changes is given as
    `values`.

    Gradients: of B for all formats: CSR and blocks are transposed as such, once; the transpose of any other is
    multiplied dense, by PyTorch, since it has no pattern that a kernel here reads, and kept in B's dtype. Of A's values
    for CSR, in B's dtype.

    copy, pickle and torch.save take A alone, which then lies on the host until its first product, and from then on
    where that one's B is; plans are made anew.
    """

    def __init__(
        self,
        a,
        *,
        dtype: str | None = None,
        accuracy: str | None = None,
        tune: bool = True,
        deterministic: bool | None = None,
        device: int | None = None,
        prune: str | None = None,
        **pruning,
    ):
        try:
            import torch
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "SparseMatrix multiplies tensors of PyTorch, which is not installed here: install torch", name="torch"
            ) from error
        if getattr(a, "requires_grad", False) and torch.is_grad_enabled():
            raise ValueError(
                "A requires grad, but a SparseMatrix takes its values as they are now: detach it, and give values that "
                "are trained to matmul(b, values=...)"
            )
        with current.settled(current.ordinal_for(a) if device is None else device) as opened:
            dense.need_cupy()
            opened.sync()  # A is there, whatever stream it comes from
            made = operands.operand(a, accuracy=accuracy, dtype=dtype, prune=prune, **pruning)
            self.a = formats.to_device(made)
        self.device = opened  #: a `cuda.core.Device`; None while A lies on the host
        self.accuracy, self.tune, self.deterministic = accuracy, tune, deterministic
        self._enter()

    def _enter(self) -> None:
        """Take a number of its own; nothing has been planned yet."""
        self.shape = operands.size_of(self.a)
        self.number = next(_numbers)
        self._plans: dict[tuple, plans.Plan] = {}
        self._dense: dict = {}  # a dtype -> Aᵀ
        self._longest: dict[bool, int] = {}  # of rows of A, or of Aᵀ, entries
        _matrices[self.number] = self
        self._spmm = operators().spmm

    def __getstate__(self) -> dict:
        """Return what makes the matrix, without what is made of it: what copies and files have."""
        own = "number", "device", "_plans", "_spmm", "_transpose", "_sampled", "_dense", "_longest"  # made anew
        return {name: x for name, x in vars(self).items() if name not in own} | {"a": formats.to_host(self.a)}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state, device=None)
        self._enter()

    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]} x {self.shape[1]}, {type(self.a).__name__}, {self.a.nnz} non-zeros)"

    def matmul(self, b, values=None, transpose: bool = False):
        """C (m, n) = A · B for a tensor B (k, n), row-major, or of a vector (k,) C (m,).

        transpose: C (k, n) = Aᵀ · B (m, n) instead; `x @ matrix` is x · A, (n, k), for x (n, m). values: (nnz,), in
        place of A's, for CSR, in B's dtype; under autocast both are cast to its dtype, as by torch.mm. Raises
        ValueError, one sentence, for anything else.
        """
        # No `require`: the compiler would have to trace its sentence.
        import torch

        if not isinstance(b, torch.Tensor) or b.layout != torch.strided:
            raise ValueError(
                f"B is {type(b).__module__}.{type(b).__name__}, but a SparseMatrix multiplies dense tensors of "
                "PyTorch: make it one, or multiply by a plan"
            )
        if b.dim() == 1:
            return self.matmul(b.unsqueeze(1), values, transpose).squeeze(1)
        if b.dim() != 2:
            raise ValueError(f"B has {b.dim()} dimensions, but must have 2, or 1: bring one matrix")
        if b.shape[0] != self.shape[not transpose]:
            raise ValueError(
                f"B is {' x '.join(map(str, b.shape))}, but A has {self.shape[not transpose]} "
                f"{'rows' if transpose else 'columns'}: bring as many rows"
            )
        require_no_tangent(b, "differentiate backward")
        if values is not None:
            require_no_tangent(values, "differentiate backward")
            b, values = cast(b, b), cast(b, values)
        return self._spmm(b, values, self.number, transpose, self.shape[transpose])

    __matmul__ = matmul

    def __rmatmul__(self, x):
        if getattr(x, "ndim", 0) != 2:
            return self.matmul(x, transpose=True)
        return self.matmul(x.T, transpose=True).T

    # ---- what the operators call

    def multiply(self, b, values, transposed: bool):
        """Return A · B, or Aᵀ · B, by a plan; or where there is none for Aᵀ, by PyTorch."""
        self._settle(b)
        b = b.detach().contiguous()
        changes = values is not None
        require(
            not changes or isinstance(self.a, csr.Csr),
            f"values are given, but A is {type(self.a).__name__}, and only those of CSR change: bring A as CSR",
        )
        if transposed and not isinstance(self.a, csr.Csr | bcsr.Bcsr):
            with torch.autocast(b.device.type, enabled=False):
                return torch.mm(self._dense_transpose(b.dtype), b)
        if changes:
            values = (values[self._transpose[1]] if transposed else values).detach().contiguous()
            if named(b.dtype) in half.DTYPES:
                return self._sixteen_bits(b, values, transposed)
        return self._planned(b, values, transposed)

    def _planned(self, b, values, transposed: bool):
        """Return A · B, or Aᵀ · B, by a plan. values: in its order of entries, or None."""
        bits = torch.are_deterministic_algorithms_enabled() if self.deterministic is None else self.deterministic
        changes = values is not None
        key = transposed, b.shape[1], b.dtype, changes, bits
        if key not in self._plans:
            self._plans[key] = plans.plan(
                self._transpose[0] if transposed else self.a,
                b.shape[1],
                dtype=named(b.dtype),
                accuracy=self.accuracy,
                in_place=changes,
                tune=self.tune,
                device=self.device.device_id,
                deterministic=bits,
            )
        out = torch.empty((self.shape[transposed], b.shape[1]), dtype=b.dtype, device=b.device)
        return self._plans[key](b, out, values=values)

    def _sixteen_bits(self, b, values, transposed: bool):
        """Return A · B, or Aᵀ · B, for values of 16 bits, as they lie; in float32 where no kernel takes those."""
        require(
            values.dtype == b.dtype,
            f"values are {named(values.dtype)} and B {named(b.dtype)}, but must have one dtype: convert one of them",
        )
        a = self._transpose[0] if transposed else self.a
        if transposed not in self._longest:
            with current.settled(self.device.device_id):
                self._longest[transposed] = intake.facts_of(a).longest
        if self._longest[transposed] <= LONGEST:
            of_values, given = replace(a, val=values, facts=None), dense.describe(b, "B")
            done = multiplied(of_values, b, given, None, 1.0, 0.0, None, check=False)
            if done is not None:
                return done
        return self._planned(b.float(), values.float(), transposed).to(b.dtype)

    def sample(self, g, b):
        """(G · Bᵀ) at A's places."""
        self._settle(b)
        return self._sampled(g.detach().contiguous(), b.detach().contiguous())

    def _settle(self, b) -> None:
        """Put A on B's GPU where it is on none yet. Raises ValueError, one sentence, where it is on another."""
        where = dense.describe(b, "B").device
        if self.device is None:
            with current.settled(where) as self.device:
                dense.need_cupy()
                self.a = formats.to_device(self.a)
        require(
            where == self.device.device_id,
            f"B is on GPU {where}, but A on GPU {self.device.device_id}: copy one of them there",
        )

    @functools.cached_property
    def _transpose(self) -> tuple:
        """(Aᵀ in A's format, of CSR the place of its values in A's as a tensor)."""
        with current.settled(self.device.device_id):
            if isinstance(self.a, bcsr.Bcsr):
                return operands.turned(self.a), None
            made, order = operands.transposed(self.a)
        return made, torch.from_dlpack(order)

    def _dense_transpose(self, dtype):
        """Aᵀ as a dense tensor of a dtype, which is kept."""
        if dtype not in self._dense:
            with current.settled(self.device.device_id):
                x = torch.from_dlpack(formats.to_dense(self.a))
                self._dense[dtype] = (x if isinstance(self.a, nm.Nm) else x.t()).to(dtype)  # an `Nm` holds Aᵀ
        return self._dense[dtype]

    @functools.cached_property
    def _sampled(self) -> Sampled:
        require(
            isinstance(self.a, csr.Csr),
            f"the gradient of A's values is made for CSR, but A is {type(self.a).__name__}: bring it as CSR",
        )
        with current.opened(self.device.device_id) as opened:
            return Sampled(self.a, opened)


def matrix_of(number: int) -> SparseMatrix:
    """Return the matrix behind an operator's number; ValueError where it is gone."""
    found = _matrices.get(number)
    require(
        found is not None,
        f"the SparseMatrix of number {number} is gone: keep it for as long as its products are differentiated",
    )
    return found  # type: ignore[return-value]


@functools.cache
def operators() -> SimpleNamespace:
    """Return the operators `sparsity_on_trial::spmm` and `::sddmm`, registered at the first call."""
    spmm = "(Tensor b, Tensor? values, int matrix, bool transposed, SymInt rows) -> Tensor"
    sddmm = "(Tensor g, Tensor b, int matrix, bool transposed, SymInt nnz) -> Tensor"
    return SimpleNamespace(
        spmm=operator("spmm", spmm, _spmm, lambda b, *how: b.new_empty((how[-1], b.shape[1])), _of_spmm, _keep),
        sddmm=operator("sddmm", sddmm, _sddmm, lambda g, *how: g.new_empty((how[-1],)), _of_sddmm, _keep),
    )


def _spmm(b, values, matrix, transposed, rows):
    return matrix_of(matrix).multiply(b, values, transposed)


def _sddmm(g, b, matrix, transposed, nnz):
    # At the places of Aᵀ, in the order of A's values: the rows change sides.
    return matrix_of(matrix).sample(*((b, g) if transposed else (g, b)))


def _keep(ctx, inputs, output):
    *tensors, ctx.matrix, ctx.transposed, _ = inputs
    ctx.save_for_backward(*tensors)


def _of_spmm(ctx, grad):
    b, values = ctx.saved_tensors
    of_b, of_values, *others = ctx.needs_input_grad
    return (
        operators().spmm(grad, values, ctx.matrix, not ctx.transposed, b.shape[0]) if of_b else None,
        operators().sddmm(grad, b, ctx.matrix, ctx.transposed, values.shape[0]) if of_values else None,
        *(None for _ in others),
    )


def _of_sddmm(ctx, grad):
    g, b = ctx.saved_tensors
    of_g, of_b, *others = ctx.needs_input_grad
    return (
        operators().spmm(b, grad, ctx.matrix, ctx.transposed, g.shape[0]) if of_g else None,
        operators().spmm(g, grad, ctx.matrix, not ctx.transposed, b.shape[0]) if of_b else None,
        *(None for _ in others),
    )


# ---------------------------------------------------------------- what operators and layers share


def require_no_tangent(x, instead: str) -> None:
    """Raise ValueError, one sentence, where a tensor carries a forward derivative, which operators here would drop.

    instead: what to do, the end of the sentence.
    """
    from torch.autograd import forward_ad

    if getattr(forward_ad, "_current_level", -1) >= 0 and forward_ad.unpack_dual(x).tangent is not None:
        raise ValueError(f"the input has a forward derivative, which operators here do not carry on: {instead}")


def autocast_dtype(x):
    """Return the dtype that autocast asks for where a tensor x is; None where it is off."""
    import torch

    kind = x.device.type
    on = kind in ("cuda", "cpu") and torch.is_autocast_enabled(kind)  # what torch.compile can follow
    return torch.get_autocast_dtype(kind) if on else None


def cast(x, tensor):
    """Return a tensor as autocast has nn.Linear cast it for an input x.

    In its dtype where it is on, but for float64 and integers.
    """
    dtype = autocast_dtype(x)
    if dtype is None or not tensor.is_floating_point() or tensor.dtype.itemsize == 8:
        return tensor
    return tensor.to(dtype)


def size(x) -> str:
    """Return a tensor's shape in words: "4096 x 512"."""
    return " x ".join(map(str, x.shape))


# ---------------------------------------------------------------- what layers take


def taken(x, there, features: int, what: str = "") -> tuple:
    """(x, there) as a layer multiplies them, cast where autocast asks for it.

    ValueError, one sentence, where it does not: see `require_input`.
    """
    import torch

    if not isinstance(x, torch.Tensor):
        raise ValueError(f"the input is {type(x).__name__}, but a layer takes a tensor of PyTorch: convert it")
    x, there = cast(x, x), cast(x, there)
    require_input(x, there, features, what)
    require_no_tangent(x, "multiply by the dense layer")
    return x, there


def require_input(x, there, features: int, what: str = "") -> None:
    """Raise ValueError, one sentence, unless an input has a layer's features, and lies as and where `there` does.

    what: of the layer `there` is, whose dtype the input must have, one of 16 bits; "": it may have another.
    All are read by address: of another input, memory of somebody else. torch.compile keeps these as guards.
    """
    if len(x.shape) == 0 or x.shape[-1] != features:
        has = f"{x.shape[-1]} features" if len(x.shape) else "no dimension"
        raise ValueError(
            f"the input has {has}, but the layer takes {features} features: bring as many, or another layer"
        )
    if x.device != there.device:
        raise ValueError(f"the input is on {x.device}, but the layer on {there.device}: move one of them with to()")
    if x.layout != there.layout:
        raise ValueError(
            f"the input is a tensor in {x.layout}, but a layer multiplies dense ones: convert it with to_dense()"
        )
    if what and (x.dtype != there.dtype or x.dtype.itemsize != 2 or not x.dtype.is_floating_point):
        raise ValueError(
            f"the input is {x.dtype} and the layer's {what} are {there.dtype}, but both must be bfloat16 or both "
            "float16: convert them with to(), or use autocast"
        )


def require_bias(bias, outputs: int) -> None:
    """Raise ValueError, one sentence, unless a bias is none, or has a number for each output."""
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise ValueError(f"the bias is {size(bias)}, but there are {outputs} outputs: one number for each")


# ---------------------------------------------------------------- where they are launched


@functools.cache
def gpu_of(ordinal: int):
    """Return the GPU as a `cuda.core.Device`, whose context is PyTorch's."""
    with current.opened(ordinal) as device:
        return device


@contextmanager
def launching(x):
    """Make a tensor's GPU the current one, as it mostly is, and yield its current stream, a `cuda.core.Stream`.

    Encoding a tensor map asks the driver about an address, which a capture forbids.
    """
    ordinal, mode = x.get_device(), nullcontext()
    with mode if torch.cuda.current_device() == ordinal else torch.cuda.device(ordinal):
        if torch.cuda.is_current_stream_capturing():
            mode = current.capturing_goes_on()
        with mode:
            yield stream_at(dense.current(x, ordinal), gpu_of(ordinal))


def aligned(x):
    """Return an input without gaps, at an address that the copy engine takes."""
    x = x.contiguous()  # as it is, from every layer that comes before an FFN
    return x.clone() if x.data_ptr() % ALIGNMENT else x


# ---------------------------------------------------------------- operators


def operator(name: str, schema: str, work: Callable, fake: Callable, backward: Callable, keep: Callable | None = None):
    """Return an operator of `torch.library`, which is registered. fake: the same of tensors without data.

    backward, keep: of (ctx, gradients) and (ctx, inputs, output), as autograd calls them.
    """
    made = torch.library.custom_op(f"sparsity_on_trial::{name}", work, mutates_args=(), schema=schema)
    made.register_fake(fake)
    made.register_autograd(backward, setup_context=keep)
    return getattr(torch.ops.sparsity_on_trial, name).default
