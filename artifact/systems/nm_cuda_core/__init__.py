"""The study of nm_cuda_core: experiments, facts, tables, figures and claims."""
