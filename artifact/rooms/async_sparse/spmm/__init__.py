"""The second half of the trial: real matrices in CSR, which windows, rows and libraries multiply (Table I, Fig. 5)."""
