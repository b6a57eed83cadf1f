"""The study of casper_sparse: experiments, facts, tables, figures and claims."""
