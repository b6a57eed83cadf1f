"""A contender in a CUDA graph, on a GPU."""

from artifact.measure import bench, verification
from kernels.contract import PreparedKernel, Problem


def check_captured(
    bound: PreparedKernel, problem: Problem, reference: verification.Reference, gpu
) -> verification.Errors:
    """Launch, capture, poison the output and replay: the errors of the replay, which must be right."""
    stream = gpu.create_stream()
    verification.check(bound, problem, reference, stream)
    graph = bench.capture(bound.name, bound, stream)
    try:
        bound.result().fill(float("nan"))
        gpu.sync()
        graph.launch(stream)
        stream.sync()
        return verification.compare(bound.result(), reference)
    finally:
        graph.close()
