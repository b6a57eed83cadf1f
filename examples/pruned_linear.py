"""A linear layer whose weights are pruned, at the sizes of a language model's.

    python examples/pruned_linear.py [--outputs 4096] [--inputs 4096] [--tokens 4096] [--pattern 2:4 or block]

Y (outputs, tokens) = W X in float16, W pruned by magnitude: 2:4 for sparse tensor cores, or half of its blocks of
64 x 64. Beside ours, the same weights dense in PyTorch and CuPy, and in PyTorch's own 2:4 or block format. Errors are
against float64 on the host with the pruned weights: what pruning costs a model is another question.
"""

from __future__ import annotations

import numpy as np
from common import Row, optional, parser, report, run, timed, trial


def main(arguments: list[str]) -> None:
    options = parser(__doc__)
    for name, size in (("outputs", 4096), ("inputs", 4096), ("tokens", 4096)):
        options.add_argument(f"--{name}", type=int, default=size)
    options.add_argument("--pattern", choices=("2:4", "block"), default="2:4")
    chosen = options.parse_args(arguments)
    trial.open_device()
    cupy, torch = optional("cupy"), optional("torch")
    if cupy is None:
        raise ModuleNotFoundError("this example makes its operands with CuPy: install cupy-cuda13x")

    rng = np.random.default_rng(chosen.seed)
    w = rng.standard_normal((chosen.outputs, chosen.inputs)).astype(np.float16)
    x = cupy.asarray(rng.standard_normal((chosen.inputs, chosen.tokens)), np.float16)
    density = {"block": 0.5}.get(chosen.pattern)
    made = trial.plan(cupy.asarray(w), chosen.tokens, prune=chosen.pattern, density=density)
    kept = pruned(made.a, w.shape)
    right = kept.astype(np.float64) @ x.get().astype(np.float64)
    rows = [contender(f"ours ({made.room} {made.choice})", lambda: made(x), right)]
    dense = cupy.asarray(kept)
    rows.append(contender("CuPy, dense", lambda: dense @ x, right))
    if torch is None:
        rows.append(Row("PyTorch", np.nan, np.nan, "is not installed"))
    else:
        rows += of_torch(torch, kept, x, chosen.pattern, right)
    sizes = f"{chosen.outputs} x {chosen.inputs} by {chosen.tokens} tokens"
    report(f"{chosen.pattern}, float16: {sizes}", rows, chosen.record)


def pruned(a, shape: tuple[int, int]) -> np.ndarray:
    """The weights that a plan multiplies, dense, float16."""
    from importlib import import_module

    formats = import_module(f"{trial.__name__}.formats")
    dense = formats.to_dense(formats.to_host(a))
    return dense.reshape(shape).astype(np.float16)


def of_torch(torch, kept: np.ndarray, x, pattern: str, right: np.ndarray) -> list[Row]:
    """PyTorch, dense and in its own format of the pattern, where it has that for these sizes."""
    w, b = torch.tensor(kept).cuda(), torch.from_dlpack(x)
    rows = [contender("PyTorch, dense", lambda: w @ b, right)]
    name = "PyTorch, 2:4 semi-structured" if pattern == "2:4" else "PyTorch, BSR"
    try:
        if pattern == "2:4":
            own = torch.sparse.to_sparse_semi_structured(w)
        else:
            own = w.to_sparse_bsr((64, 64))
        rows.append(contender(name, lambda: own @ b, right))
    except (RuntimeError, NotImplementedError, ValueError) as error:
        rows.append(Row(name, np.nan, np.nan, f"refuses: {str(error).splitlines()[0]}"))
    return rows


def contender(name: str, work, right: np.ndarray) -> Row:
    found = work()
    found = np.asarray(found.get() if hasattr(found, "get") else found.cpu()).astype(np.float64)
    error = float(np.linalg.norm(found - right) / np.linalg.norm(right))
    return Row(name, timed(work), error)


if __name__ == "__main__":
    run(main)
