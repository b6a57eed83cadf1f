"""The tuner of all systems: which of a system's configurations is the fastest for a problem on this GPU.

    probe     a candidate's output against a simple kernel's: only a right one is timed; operands whose product is
              exact, on which the winner must give the simple kernel's bits
    search    `tune`: candidates in, the fastest right one out; `choose`: look up, else tune and keep
    choices   the files that keep choices, keyed by GPU, problem, compiler and kernels

A system says in its `family.py` which configurations exist and which of them a problem's candidates are;
its `launch.py` hands them over, and prepares what was chosen.
"""

from .choices import Choice, Choices, knobs, look_up, read, write
from .search import Rounds, Winner, choose, prepare_choice, tune

__all__ = [
    "Choice",
    "Choices",
    "Rounds",
    "Winner",
    "choose",
    "knobs",
    "look_up",
    "prepare_choice",
    "read",
    "tune",
    "write",
]
