"""Every kernel under compute-sanitizer, on small ragged problems: `python -m artifact.sanitize`, or `make sanitize`."""
