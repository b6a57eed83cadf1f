"""Problems of N:M on a GPU, and on one that is not there, for the tests of this folder."""

from hypothesis import strategies as st
from products import SEED

from kernels import nm_spmm as system
from kernels.contract import Problem
from kernels.nm_spmm import operands

DTYPES = {"tf32": "tf32", "bf16": "bfloat16"}  #: of the variants that are not for float32
FLOAT32 = tuple(name for name in system.VARIANTS if name not in (*DTYPES, "auto"))
#: keep, group, vector: the paper's, few and many rows, narrow and wide vectors, windows that are no power of two.
PATTERNS = (
    *((keep, 32, 32) for keep in (32, 16, 12, 8, 4)),
    *((2, 4, 32), (3, 5, 4), (16, 32, 4), (8, 16, 128), (1, 4, 8), (8, 32, 96), (31, 32, 64)),
)
SIZE = st.sampled_from((1, 4, 31, 32, 61, 64, 96, 128, 130, 256, 300, 512))


def point(m: int, n: int, k: int, keep: int = 12, group: int = 32, vector: int = 32, **more) -> Problem:
    """A problem of keep:group, of the run's seed."""
    return operands.problem(m, n, k, keep / group, SEED % 2**32, group=group, vector=vector, **more)
