"""Another cuSPARSELt beside the one of the records: a node has its own version, and the lock may install a newer one.

    SPARSITY_CUSPARSELT=FILE python -m artifact.systems.tensor_core_24.libraries --records FOLDER

measures `auto` and the best algorithm of the library that FILE is, at all squares and layers, these in both layouts, in
a run of its own, since a process has one version. The records lie in libraries/<version> below the system's
(FOLDER/<gpu>/tensor_core_24).
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from artifact import command, paths
from artifact.measure import device, records, run as harness
from artifact.measure.run import Run
from artifact.systems.tensor_core_24 import experiments
from kernels import tensor_core_24 as system
from kernels.contract import require

EXPERIMENTS = ("square", "llm")
LINEAR = ("linear", "decoding")  #: in the layout of a linear layer
NAMES = ("auto", "cusparselt")


def begin(root: Path, preset: str = "full") -> Run:
    """Open a measurement on the GPU that is here, with the cuSPARSELt that answers; `device.NoGpu` without one.

    Raises ValueError, one sentence, where no cuSPARSELt answers. Records of another machine are set aside.
    """
    info = device.require()
    opened = info.open()
    machine = device.describe(opened) | {"sources": device.sources(experiments.SYSTEM)}
    require(bool(machine["cusparselt"]), f"no cuSPARSELt answers here: let {device.CUSPARSELT} name its file")
    folder = root / info.slug / experiments.SYSTEM / records.LIBRARIES / machine["cusparselt"]
    harness.set_aside(folder, machine, seed=0)
    records.write_machine(folder, machine)
    return Run(experiments.SYSTEM, "measure", "measure", info.slug, preset, 0, folder, machine, opened)


def measure(run: Run) -> None:
    """Measure `NAMES` at the shapes of `EXPERIMENTS` and `LINEAR` that the library takes.

    Points that are there are kept.
    """
    for name in (*EXPERIMENTS, *LINEAR):
        experiments.measure(
            run, name, NAMES, [s for s in system.sweeps(run.preset)[name] if s["n"] % experiments.TOKENS == 0]
        )


def read(run: Run, experiments_of: Sequence[str] = EXPERIMENTS) -> dict[str, pd.DataFrame]:
    """Return version → records of these experiments, for all versions that have them all beside the run's own."""
    files = {
        folder.name: [folder / f"{name}.csv" for name in experiments_of]
        for folder in (run.folder / records.LIBRARIES).glob("*")
        if folder.name != run.machine["cusparselt"]
    }
    return {
        version: experiments.together(*map(records.read, files[version]))
        for version in sorted(files, key=lambda version: [int(part) for part in version.split(".")])
        if all(path.is_file() for path in files[version])
    }


@command.program(
    "artifact.systems.tensor_core_24.libraries",
    __doc__,
    command.option("--records", type=Path, default=paths.RECORDS, help="folder of records"),
    command.option("--preset", default="full", choices=("full", "kick")),
)
def main(options: command.Options) -> None:
    """Measure with the cuSPARSELt that answers, and say which one it is."""
    run = begin(options.records, options.preset)
    print(f"cuSPARSELt {run.machine['cusparselt']}, into {run.folder.name}", flush=True)
    measure(run)


if __name__ == "__main__":
    raise SystemExit(main())
