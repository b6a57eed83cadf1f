"""Hardware counters, as Nsight Compute collects them."""
