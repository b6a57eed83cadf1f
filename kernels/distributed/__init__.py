"""Beyond one GPU: A, B and C over several, or A in host memory.

partition  who has which rows
halo       which rows of B travel
comm       how parts talk: NCCL through PyTorch, MPI, threads
watchdog   a process that dies ends all, with a sentence
backend    where a part is multiplied: a GPU, or the host
split      what is multiplied while rows are on their way
plans      `plan`: all of it
streaming  `streamed`: A in host memory, in panels
generate   matrices made on the devices from a seed
"""

from .backend import Gpu, Host
from .comm import place, run_threads
from .plans import Panels, Part, Plan, plan
from .streaming import Streamed, streamed
from .watchdog import start

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
