"""What the library's routes lead to compiles for every family of GPUs, not only for those that pages show."""

import compiled
import pytest

from kernels import casper_sparse, jit, nm_spmm, padding, tensor_core_24
from kernels.async_sparse import any_csr, windows
from kernels.formats import half
from kernels.library import dense, families

#: Those that the systems' own tests leave out.
OTHERS = tuple(target for target in jit.FAMILIES if target not in jit.TARGETS)
#: Groups of single rows have so few registers that some spill a little (`windows.BLOCKS`).
MOST_LOADS = 16


def routed() -> dict[str, list[tuple]]:
    """What it is -> (source, entry) of each kernel that a plan on no Hopper may launch; of blocks: `test_blocks`."""
    halves = [(c, dtype) for c in any_csr.POOLS["half"] for dtype in half.DTYPES]
    groups = [c for c in any_csr.POOLS["fp32"] if isinstance(c, windows.Union)]
    fitted = [windows.fitted(c, n) for c in groups for n in (64, 65)]
    return {
        "CSR float32": [(windows.UNION_SOURCE, c.entry()) for c in fitted],
        "CSR 16 bits": [(windows.HALF_SOURCE, c.entry(dtype)) for c, dtype in halves],
        "2:4": _entries(tensor_core_24, "mma_sp"),
        "N:M float32": _entries(nm_spmm, "wide"),
        "values that change": _entries(casper_sparse, "split_rows"),
        "around them": [
            (padding.SOURCE, padding.ENTRIES[16]),
            (dense.SOURCE, f"combine<{dense.DTYPES['bfloat16'][0]}>"),
        ],
    }


def _entries(system, variant: str) -> list[tuple]:
    kernel = system.VARIANTS[variant]
    return [(kernel.source, entry) for entry in kernel.entries]


@pytest.mark.parametrize("what", routed())
def test_every_family_has_the_kernels_that_are_routed_to(what):
    jobs = dict.fromkeys(routed()[what])
    reports = compiled.reports(compiled.cubins(jobs, OTHERS))
    assert len(reports) == len(jobs) * len(OTHERS) > 0
    for (entry, target), (used, mix) in reports.items():
        assert mix["EXIT"] and not any(op.startswith(("HGMMA", "UTMA")) for op in mix), entry
        assert used.spill_loads <= MOST_LOADS and used.stack_bytes <= 4 * MOST_LOADS, f"{entry} on {target}: {used}"


def test_the_table_has_every_family_that_is_compiled_for_and_each_gets_something():
    assert sorted(map(jit.arch_of, families.FAMILIES)) == sorted(jit.FAMILIES)
    table = families.table()
    for asked, row in table.items():
        for family in families.FAMILIES:
            hopper, said = family.compute_capability == (9, 0), row[family.name]
            assert (said == families.NONE) == (asked == ("N:M", "bfloat16") and not hopper)
            assert ("wgmma" in said or "copy engine" in said) <= hopper, (asked, family.name)
