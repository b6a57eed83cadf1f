"""The third part of the trial: prefill of Qwen2.5-7B with sparse attention, FFNs and both (section IV-D, Fig. 8)."""

from artifact.rooms.async_sparse.prefill import experiments, figures, prose, tables

__all__ = ["experiments", "figures", "prose", "tables"]
