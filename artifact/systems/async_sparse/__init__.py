"""The study of async_sparse: experiments, facts, tables, figures and claims."""
