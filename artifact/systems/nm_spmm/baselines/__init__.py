"""Baselines of this system alone."""
