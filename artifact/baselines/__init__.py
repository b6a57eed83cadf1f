"""What systems are compared with: one module for a library, or for the CPU. `artifact.registry` finds them.

Each module offers `contenders(device)` -> name in the records -> callable(problem) -> PreparedKernel; the names begin
with a module's. A system names the modules that multiply its operands in its BASELINES; "cublas.dense" are those
that the module calls `dense`. What only one system is
compared with, another system's kernel say, is such a module in its own `artifact/systems/<system>/baselines/`.
"""
