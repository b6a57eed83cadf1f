"""What hardware counters count, in words and with their units, for cells that would else hold a bare number."""

#: Behind a number that is one already: of what it is the share.
_PEAK = "%"
#: Counter -> the unit behind its number, and what it is.
WORDS = {
    "dram__bytes_read.sum": (" bytes", "read from DRAM"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": (_PEAK, "DRAM throughput"),
    "gpu__time_duration.sum": (" ns", "profiled time"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("", "bank conflicts"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": ("", "bank conflicts of loads"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": ("", "bank conflicts of stores"),
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed": (_PEAK, "L1 data pipe in use"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("", "shared-memory wavefronts"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": ("", "shared-memory load wavefronts"),
    "l1tex__t_bytes.sum": (" bytes", "through L1"),
    "l1tex__t_sector_hit_rate.pct": ("%", "sectors that hit in L1"),
    "launch__occupancy_limit_registers": ("", "blocks an SM that registers allow"),
    "launch__occupancy_limit_shared_mem": ("", "blocks an SM that shared memory allows"),
    "launch__registers_per_thread": ("", "registers a thread"),
    "lts__t_sector_hit_rate.pct": ("%", "sectors that hit in L2"),
    "lts__t_sectors_op_read.sum": ("", "sectors read from L2"),
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": (_PEAK, "issue slots of the FMA pipe"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "theoretical occupancy"),
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": (_PEAK, "FMA pipe busy"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": (_PEAK, "tensor cores busy"),
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum": ("", "FMAs"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": (_PEAK, "SM throughput"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": (_PEAK, "achieved occupancy"),
    "smsp__inst_executed.avg.per_cycle_active": ("", "instructions a cycle, of each SM sub-partition"),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": ("%", "bytes of loaded sectors that are used"),
    "smsp__thread_inst_executed_per_inst_executed.ratio": ("", "threads an instruction"),
    "smsp__warps_launched.sum": ("", "warps launched"),
}
WORDS |= {
    f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio": ("", f"warps waiting {what}, for each issue")
    for reason, what in (
        ("barrier", "at a barrier"),
        ("drain", "for stores to drain"),
        ("long_scoreboard", "for memory"),
    )
}
#: Prefixes of bytes.
_BYTES = {1.0: "bytes", 1e3: "kB", 1e6: "MB", 1e9: "GB"}


def words(metric: str, per: float = 1.0) -> tuple[str, str]:
    """(unit, what is counted) of a counter in units of `per`; of one that is not in WORDS, its own name."""
    unit, what = WORDS.get(metric, ("%" if "pct" in metric else "", metric))
    if unit == " bytes" and per in _BYTES:
        return f" {_BYTES[per]}", what
    return unit, what + f", in units of {per:g}" * (per != 1)
