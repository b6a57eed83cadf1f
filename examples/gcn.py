"""A training step of a graph convolutional network: two layers, forward and backward.

    python examples/gcn.py [--matrix FILE or name] [--features 128] [--hidden 128] [--classes 32]

    Y = Â relu(Â X W1) W2,    Â = D^-1/2 (A + I) D^-1/2        (Kipf and Welling, ICLR 2017)

Ours is `SparseMatrix`, which PyTorch differentiates; beside it PyTorch's own CSR product in the same code, and CuPy,
which has no gradients, with those written down by hand. Errors are of both weights' gradients, against float64 on the
host.
"""

import numpy as np
import scipy.sparse as sp
from common import Row, matrix, optional, parser, report, run, timed, trial


def normalised(a: sp.csr_array) -> sp.csr_array:
    """Â of the graph of A's pattern without directions: float32."""
    pattern = sp.csr_array((np.ones(a.nnz), a.indices, a.indptr), shape=a.shape)
    both = sp.csr_array(pattern + pattern.T + sp.eye_array(a.shape[0]))
    both.data[:] = 1
    scale = 1 / np.sqrt(both.sum(axis=1))
    return sp.csr_array(sp.diags_array(scale) @ both @ sp.diags_array(scale)).astype(np.float32)


def gradients(a, x, w1, w2, target) -> tuple:
    """Of mean((Y - target)²) with respect to W1 and W2, by hand: any library's arrays; a is symmetric."""
    h = a @ (x @ w1)
    z = h * (h > 0)
    y = a @ (z @ w2)
    g = a @ (2 * (y - target) / (y.shape[0] * y.shape[1]))
    of_h = (g @ w2.T) * (h > 0)
    return x.T @ (a @ of_h), z.T @ g


def step(multiply, x, w1, w2, target) -> tuple:
    """Return the same by PyTorch, which differentiates `multiply`."""
    y = multiply(multiply(x @ w1).relu() @ w2)
    loss = (y - target).square().mean()
    w1.grad = w2.grad = None
    loss.backward()
    return w1.grad, w2.grad


def main(arguments: list[str]) -> None:
    """Run the example."""
    options = parser(__doc__)
    options.add_argument("--matrix", help="a .mtx or .npz file, or a name in SPARSITY_MATRICES")
    options.add_argument("--nodes", type=int, default=100_000, help="of a generated graph")
    for name, size in (("features", 128), ("hidden", 128), ("classes", 32)):
        options.add_argument(f"--{name}", type=int, default=size)
    chosen = options.parse_args(arguments)
    a, name = matrix(chosen.matrix, chosen.nodes, chosen.seed)
    a = normalised(a)
    trial.open_device()
    cupy, torch = optional("cupy"), optional("torch")
    for missing, module in (("torch", torch), ("cupy-cuda13x", cupy)):
        if module is None:
            raise ModuleNotFoundError(f"this example compares three libraries: install {missing}")

    rng = np.random.default_rng(chosen.seed)
    n, f, h, c = a.shape[0], chosen.features, chosen.hidden, chosen.classes
    given = [rng.standard_normal(shape) for shape in ((n, f), (f, h), (h, c), (n, c))]
    given[1] /= np.sqrt(f)
    given[2] /= np.sqrt(h)
    right = gradients(a.astype(np.float64), *given)

    x, w1, w2, target = (torch.tensor(part, dtype=torch.float32).cuda() for part in given)
    w1.requires_grad_()
    w2.requires_grad_()
    ours = trial.SparseMatrix(a)
    parts = (torch.tensor(part).cuda() for part in (a.indptr, a.indices, a.data))
    theirs = torch.sparse_csr_tensor(*parts, size=a.shape)
    rows = []
    for who, multiply in (("ours", ours.matmul), ("PyTorch", lambda b: theirs @ b)):
        found = [part.cpu().numpy() for part in step(multiply, x, w1, w2, target)]
        us = timed(lambda multiply=multiply: step(multiply, x, w1, w2, target))
        rows.append(Row(who, us, worst(found, right)))
    from cupyx.scipy.sparse import csr_matrix

    a_cupy = csr_matrix(sp.csr_matrix(a))
    on_cupy = [cupy.asarray(part, np.float32) for part in given]
    found = [part.get() for part in gradients(a_cupy, *on_cupy)]
    us = timed(lambda: gradients(a_cupy, *on_cupy))
    rows.append(Row("CuPy, gradients by hand", us, worst(found, right)))
    report(
        f"{name}: {n} nodes, {a.nnz} non-zeros, features {f} -> {h} -> {c}; one step",
        rows,
        chosen.record,
    )


def worst(found, right) -> float:
    """Return the larger relative error of the gradients."""
    return max(float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in zip(found, right, strict=True))


if __name__ == "__main__":
    run(main)
