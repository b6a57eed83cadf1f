"""Claims of the sources as data, and the verdicts on them from records."""
