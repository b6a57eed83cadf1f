"""The third part of the trial: prefill of Qwen2.5-7B with sparse attention, FFNs and both (section IV-D, Fig. 8)."""
