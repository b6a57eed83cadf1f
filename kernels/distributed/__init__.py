"""Beyond one GPU: A, B and C over several, or A in host memory.

partition  who has which rows, which rows of B travel, and what is multiplied while they do
comm       how parts talk: NCCL through PyTorch, MPI, threads; a process that dies ends all, with a sentence
backend    where a part is multiplied: a GPU, or the host
plans      `plan`: all of it; `streamed`: A in host memory, in panels
generate   matrices made on the devices from a seed
"""

from .backend import Gpu, Host
from .comm import place, run_threads, start
from .plans import Panels, Part, Plan, Streamed, plan, streamed

__all__ = [
    "Gpu",
    "Host",
    "Panels",
    "Part",
    "Plan",
    "Streamed",
    "place",
    "plan",
    "run_threads",
    "start",
    "streamed",
]
