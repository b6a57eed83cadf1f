"""A linear layer whose weights are pruned, at the sizes of a language model's.

    python examples/pruned_linear.py [--outputs 4096] [--inputs 4096] [--tokens 4096] [--pattern 2:4 or block]

Y = X Wᵀ in float16, as PyTorch's linear layers have it: X (tokens, inputs) and Y (tokens, outputs) by rows, no bias. W
(outputs, inputs) is pruned by magnitude: 2:4 for sparse tensor cores, or half of its blocks of 64 x 64. Ours is
`SemiStructuredLinear` for 2:4 on compute capability 9.0 with PyTorch, and a plan otherwise. Beside it, the same weights
dense in PyTorch and CuPy, and in PyTorch's own 2:4 or block format, by the same call as its dense ones. Measured is the
product alone: weights are converted before. Errors are against float64 on the host with the pruned weights: what
pruning costs a model is another question.
"""

from importlib import import_module

import numpy as np
from common import Row, optional, parser, report, run, timed, trial


def main(arguments: list[str]) -> None:
    """Run the example."""
    options = parser(__doc__)
    for name, size in (("outputs", 4096), ("inputs", 4096), ("tokens", 4096)):
        options.add_argument(f"--{name}", type=int, default=size)
    options.add_argument("--pattern", choices=("2:4", "block"), default="2:4")
    chosen = options.parse_args(arguments)
    hopper = tuple(trial.open_device().compute_capability) == (9, 0)
    cupy, torch = optional("cupy"), optional("torch")
    if cupy is None:
        raise ModuleNotFoundError("this example makes its operands with CuPy: install cupy-cuda13x")

    rng = np.random.default_rng(chosen.seed)
    w = rng.standard_normal((chosen.outputs, chosen.inputs)).astype(np.float16)
    x = cupy.asarray(rng.standard_normal((chosen.tokens, chosen.inputs)), np.float16)
    if torch is not None and hopper and chosen.pattern == "2:4":
        name, work, kept = of_layer(torch, w, x)
    else:
        name, work, kept = of_plan(cupy.asarray(w), x, chosen.pattern)
    right = x.get().astype(np.float64) @ kept.astype(np.float64).T
    rows = [contender(f"ours ({name})", work, right)]
    dense = cupy.asarray(kept)
    rows.append(contender("CuPy, dense", lambda: x @ dense.T, right))
    if torch is None:
        rows.append(Row("PyTorch", np.nan, np.nan, "is not installed"))
    else:
        rows += of_torch(torch, kept, x, chosen.pattern, right)
    sizes = f"{chosen.tokens} tokens, {chosen.inputs} inputs, {chosen.outputs} outputs"
    report(f"{chosen.pattern}, float16: {sizes}", rows, chosen.record)


def of_layer(torch, w: np.ndarray, x) -> tuple:
    """Return what stands for an nn.Linear: its name, what multiplies, and the weights that are kept."""
    layers = import_module(f"{trial.__name__}.library.semi_structured")
    outputs, inputs = w.shape
    linear = torch.nn.Linear(inputs, outputs, bias=False, device="cuda", dtype=torch.float16)
    linear.weight.data.copy_(torch.tensor(w))
    layer, given = layers.SemiStructuredLinear.of(linear), torch.from_dlpack(x)
    return "SemiStructuredLinear", lambda: layer(given), layer.weight.cpu().numpy()


def of_plan(w, x, pattern: str) -> tuple:
    """Return the same of a plan, which multiplies W by Xᵀ: in its eyes X and Y lie by columns."""
    density = {"block": 0.5}.get(pattern)
    made = trial.plan(w, x.shape[0], order="F", prune=pattern, density=density)
    formats = import_module(f"{trial.__name__}.formats")
    kept = formats.to_dense(formats.to_host(made.a)).reshape(w.shape).astype(np.float16)
    return f"{made.room} {made.choice}", lambda: made(x.T).T, kept


def of_torch(torch, kept: np.ndarray, x, pattern: str, right: np.ndarray) -> list[Row]:
    """PyTorch, dense and in its own format of the pattern, where it has that for these sizes."""
    w, given, linear = torch.tensor(kept).cuda(), torch.from_dlpack(x), torch.nn.functional.linear
    rows = [contender("PyTorch, dense", lambda: linear(given, w), right)]
    name = "PyTorch, 2:4 semi-structured" if pattern == "2:4" else "PyTorch, BSR"
    try:
        if pattern == "2:4":
            own = torch.sparse.to_sparse_semi_structured(w)
        else:
            own = w.to_sparse_bsr((64, 64))
        rows.append(contender(name, lambda: linear(given, own), right))
    except (RuntimeError, NotImplementedError, ValueError) as error:
        rows.append(Row(name, np.nan, np.nan, f"refuses: {str(error).splitlines()[0]}"))
    return rows


def contender(name: str, work, right: np.ndarray) -> Row:
    """Run, check and time one way to multiply."""
    found = work()
    found = np.asarray(found.get() if hasattr(found, "get") else found.cpu()).astype(np.float64)
    error = float(np.linalg.norm(found - right) / np.linalg.norm(right))
    return Row(name, timed(work), error)


if __name__ == "__main__":
    run(main)
