"""What only claims of 2:4 on tensor cores need.

One measured ceiling over another, instructions of a kernel, and sizes held against one of them.
"""

import pandas as pd

from artifact.drawing.compiled import instructions
from artifact.measure import records
from artifact.verdicts.evidence import RATES, Evidence, NotMeasured, Values, need, rows
from artifact.verdicts.measures import Reduced
from kernels import tensor_core_24 as system


def ceiling(e: Evidence, experiments, name: str, over: str, rate: str) -> Values:
    """One ceiling that a microbenchmark measured over another.

    `rate` is the column: "tflops" or "gbps".
    """
    found = {which: e.ceiling(which, rate) for which in (name, over)}
    return Values({name: pd.Series([found[name] / found[over]])}, unit="×", data={"found": found, "per": RATES[rate]})


def machine_code(e: Evidence, experiments, op: str, of: str, target: str) -> Values:
    """Return how many instructions `op` the machine code of a kernel of ours for `target` holds.

    Compiled here, of its first instantiation; of a kernel that was measured.
    """
    rows(e, experiments, of)
    try:
        ops = instructions(system.VARIANTS[of], target)
    except FileNotFoundError as missing:  # the disassembler
        raise NotMeasured(f"{missing}.") from None
    return Values({of: pd.Series([float(sum(op in line for line in ops))])}, ".0f", f" {op}", data={"ops": len(ops)})


def share_above_that_at(v: Values, column: str, value: float) -> Reduced:
    """Return the share of the points whose value is over that at `column` = `value`.

    The latter points are not counted themselves.
    """
    here = v.all.index.get_level_values(column) == value
    need(here.any() and not here.all(), f"Nothing was measured at {column} = {value:g} and elsewhere.")
    that, others = records.geomean(v.all[here]), v.all[~here]
    over = others > that
    return Reduced(v, pd.Series([over.mean()]), data={"that": that, "others": others, "over": over})


QUANTITIES = (ceiling, machine_code)
REDUCERS = (share_above_that_at,)
