"""What `ncu` runs: every contender launched once at every shape, each after a marker.

    python -m artifact.profiling.ncu_target '{"room": …, "shapes": […], "contenders": […], "seed": 0}'

A system is a module in `kernels`: its name, or "room.part" for a part of one. Contenders are prepared outside the
profiled range. Inside it an empty kernel is launched before each of them, so that all kernels up to the next marker
are that contender's.
"""

import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any

from artifact import registry
from artifact.measure import device

MARKER = "contender_marker"


def main(task: Mapping[str, Any]) -> None:
    """Launch what a task names, each launch after a marker kernel, for ncu to profile."""
    from cuda.bindings import driver
    from cuda.core import LaunchConfig, Program, ProgramOptions, launch

    opened = device.require().open()
    system = importlib.import_module(f"kernels.{task['room']}")
    others = registry.contenders(system.BASELINES, opened)
    options = ProgramOptions(arch="sm_{}{}".format(*opened.compute_capability))
    code = Program(f'extern "C" __global__ void {MARKER}() {{}}', "c++", options).compile("cubin")
    marker, config = code.get_kernel(MARKER), LaunchConfig(grid=1, block=1)

    stream = opened.create_stream()
    for shape in task["shapes"]:
        problem = system.problem(**shape, seed=task["seed"])
        bounds: Any = [
            others[name](problem) if name in others else system.prepare(name, problem, opened)
            for name in task["contenders"]
        ]
        opened.sync()
        driver.cuProfilerStart()
        for bound in bounds:
            launch(stream, config, marker)
            bound.launch(stream)
            stream.sync()
        driver.cuProfilerStop()
        bounds = bound = None
        problem.release()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
