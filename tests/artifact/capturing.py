"""A contender in a CUDA graph, on a GPU."""

from artifact.measure import bench, check
from kernels.contract import Bound, Problem


def check_captured(bound: Bound, problem: Problem, reference: check.Reference, gpu) -> check.Errors:
    """Launch, capture, poison the output and replay: the errors of the replay, which must be right."""
    stream = gpu.create_stream()
    check.check(bound, problem, reference, stream)
    graph = bench.capture(bound.name, bound, stream)
    try:
        bound.result().fill(float("nan"))
        gpu.sync()
        graph.launch(stream)
        stream.sync()
        return check.compare(bound.result(), reference)
    finally:
        graph.close()
