"""The largest eigenvalue of a matrix by power iteration, from several starting vectors at once.

    python examples/power_iteration.py [--matrix FILE or name] [--vectors 32] [--iterations 100]

x <- A x / |A x|, a column for each start: one sparse matrix, many products, so A is converted once and the plan
called again and again. Beside ours, CuPy's and PyTorch's product in the same loop. Times are of one iteration, which
includes the norms; the error is of the eigenvalue, against the same iterations in float64 on the host.
"""

import numpy as np
import scipy.sparse as sp
from common import Row, matrix, optional, parser, report, run, timed, trial


def iterated(multiply, x, iterations: int, xp):
    """(eigenvalue by each column, the vectors) after so many iterations. xp: the library of x."""
    for _ in range(iterations):
        x = step(multiply, x, xp)
    y = multiply(x)
    return (x * y).sum(0), x


def step(multiply, x, xp):
    """Return the next vector of the iteration, with columns of norm 1."""
    y = multiply(x)
    return y / xp.sqrt((y * y).sum(0))


def main(arguments: list[str]) -> None:
    """Run the example."""
    options = parser(__doc__)
    options.add_argument("--matrix", help="a .mtx or .npz file, or a name in SPARSITY_MATRICES")
    options.add_argument("--rows", type=int, default=100_000, help="of a generated matrix")
    options.add_argument("--vectors", type=int, default=32)
    options.add_argument("--iterations", type=int, default=100)
    chosen = options.parse_args(arguments)
    a, name = matrix(chosen.matrix, chosen.rows, chosen.seed)
    a = sp.csr_array(a, dtype=np.float32)
    trial.open_device()
    cupy, torch = optional("cupy"), optional("torch")
    if cupy is None:
        raise ModuleNotFoundError("this example makes its vectors with CuPy: install cupy-cuda13x")

    start = np.random.default_rng(chosen.seed).standard_normal((a.shape[0], chosen.vectors))
    wide = a.astype(np.float64)
    right, _ = iterated(lambda x: wide @ x, start, chosen.iterations, np)
    x = cupy.asarray(start, np.float32)
    made = trial.plan(a, chosen.vectors)
    ours = f"ours ({made.room} {made.choice})"
    # What follows a product is the array library's, so each library is compared with ours on its own arrays.
    rows = [contender(f"{ours}, on CuPy's arrays", made, x, chosen.iterations, right, cupy)]
    from cupyx.scipy.sparse import csr_matrix

    theirs = csr_matrix(sp.csr_matrix(a))
    rows.append(contender("CuPy", lambda x: theirs @ x, x, chosen.iterations, right, cupy))
    if torch is None:
        rows.append(Row("PyTorch", np.nan, np.nan, "is not installed"))
    else:
        parts = (torch.tensor(part).cuda() for part in (a.indptr, a.indices, a.data))
        there = torch.sparse_csr_tensor(*parts, size=a.shape)
        t = torch.tensor(start, dtype=torch.float32).cuda()
        on_theirs = f"{ours}, on PyTorch's tensors"
        rows.insert(0, contender(on_theirs, made, t, chosen.iterations, right, torch))
        rows.append(contender("PyTorch", lambda x: there @ x, t, chosen.iterations, right, torch))
    what = f"{name}: {a.shape[0]} x {a.shape[1]}, {a.nnz} non-zeros, {chosen.vectors} vectors"
    report(f"{what}; eigenvalue {right.max():.6g}", rows, chosen.record)


def contender(name: str, multiply, x, iterations: int, right: np.ndarray, xp) -> Row:
    """Run, check and time one way to multiply."""
    found, _ = iterated(multiply, x, iterations, xp)
    found = np.asarray(found.get() if hasattr(found, "get") else found.cpu()).astype(np.float64)
    error = float(np.abs(found - right).max() / np.abs(right).max())
    return Row(name, timed(lambda: step(multiply, x, xp)), error)


if __name__ == "__main__":
    run(main)
