"""The study of nm_spmm: experiments, facts, tables, figures and claims."""
