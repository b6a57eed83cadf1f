"""The study of tensor_core_24: experiments, facts, tables, figures and claims."""
