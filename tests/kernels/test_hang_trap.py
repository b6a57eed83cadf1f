"""A wait for ever: in a build with the trap it ends with the file and the line where it was called."""

import re
import subprocess
import sys
from pathlib import Path

import compiled
import pytest

from kernels import async_sparse, jit, nm_spmm, tensor_core_24
from kernels.async_sparse import windows

#: Of each kind of wait a kernel that has it: rings, hand-overs of sums, clusters, exchanged registers.
KERNELS = (
    (async_sparse.VARIANTS["unit_ring"].source, async_sparse.VARIANTS["unit_ring"].entries[0]),
    (async_sparse.VARIANTS["opt7"].source, async_sparse.VARIANTS["opt7"].entries[0]),
    (windows.UNION_SOURCE, windows.Union(4).entry()),
    (windows.HALF_SOURCE, windows.Union(4).entry("bfloat16")),
    *(
        (kernel.source, kernel.entries[0])
        for kernel in (
            nm_spmm.VARIANTS["stream"],
            nm_spmm.VARIANTS["cluster"],
            nm_spmm.VARIANTS["bf16"],
            tensor_core_24.VARIANTS["wgmma_three"],
            tensor_core_24.VARIANTS["wgmma_stream_k"],
            tensor_core_24.VARIANTS["wgmma_refilling"],
        )
    ),
)

WAITS = {
    "a barrier at which nobody arrives": """
#include "mbarrier.cuh"
__global__ void waits(unsigned*)
{
    __shared__ Barrier never;
    if (threadIdx.x == 0) barrier_init(&never, 1);
    __syncthreads();
    wait(&never, 0);  // here
}
""",
    "sums that nobody leaves": """
#include "handover.cuh"
__global__ void waits(unsigned* counts)
{
    await(reinterpret_cast<Handover*>(counts));  // here
}
""",
    "a barrier that is reached": """
#include "handover.cuh"
#include "mbarrier.cuh"
__global__ void waits(unsigned* counts)
{
    __shared__ Barrier full;
    if (threadIdx.x == 0) barrier_init(&full, 1);
    __syncthreads();
    if (threadIdx.x == 0) arrive(&full), leave(reinterpret_cast<Handover*>(counts));
    wait(&full, 0);
    await(reinterpret_cast<Handover*>(counts));
}
""",
}

#: By itself, since a trap ends the context of the whole process.
LAUNCH = """
import sys
from pathlib import Path
import cupy
from cuda.core import Device, LaunchConfig, launch
from kernels import jit
device = Device()
device.set_current()
stream = device.create_stream()
kernel = jit.load(jit.compile_cubin(Path(sys.argv[1]), "waits", jit.arch_of(device)))
counts = cupy.zeros(2, cupy.uint32)
device.sync()
launch(stream, LaunchConfig(grid=1, block=32), kernel, counts.data.ptr)
stream.sync()
print("came to an end")
"""


@pytest.mark.parametrize(("source", "entry"), KERNELS, ids=[entry for _, entry in KERNELS])
def test_both_builds_compile_and_one_of_them_traps(monkeypatch, source, entry):
    """Registers are exchanged in both, so that what hangs with the trap hangs without."""
    monkeypatch.delenv(jit.HANG_TRAP, raising=False)
    usual = jit.compile_cubin(source, entry, "sm_90a")
    monkeypatch.setenv(jit.HANG_TRAP, "1")
    trapping = jit.compile_cubin(source, entry, "sm_90a")
    jit.require_registers(trapping)
    (_, plain), (_, mix) = jit.reports([usual, trapping])
    assert compiled.count(mix, "BPT") and not compiled.count(plain, "BPT")
    assert compiled.count(mix, "USETMAXREG") == compiled.count(plain, "USETMAXREG")
    assert set(re.findall(rb"[\w.]*/?(\w+\.cuh?)\0", trapping.code)), "a wait that does not end has a file to name"


def test_waits_that_turn_are_those_that_end():
    """What polls by itself, without counting its turns, would hang in a build with the trap as well."""
    polls = re.compile(r"try_wait|test_wait|ld\.acquire|__nanosleep|= \*\(volatile|while \(!?\*")
    texts = {path.name: path.read_text() for path in jit.ROOT.rglob("*.cu*")}
    found = {name for name, text in texts.items() if polls.search(text)}
    assert {"mbarrier.cuh", "handover.cuh", "scan.cuh"} <= found
    # Those of gpcs.cu stay for some time.
    assert all("turns.count(" in texts[name] for name in found - {"gpcs.cu"})


@pytest.mark.gpu
@pytest.mark.parametrize("which", list(WAITS))
def test_a_wait_for_ever_ends_with_file_and_line(device, tmp_path, monkeypatch, which):
    path = tmp_path / "waits.cu"
    path.write_text(WAITS[which])
    here = [number for number, line in enumerate(WAITS[which].splitlines(), 1) if line.endswith("// here")]
    monkeypatch.setenv(jit.HANG_TRAP, "1")
    run = subprocess.run(
        [sys.executable, "-c", LAUNCH, str(path)],
        cwd=Path(jit.ROOT).parent,
        capture_output=True,
        text=True,
        timeout=180,
    )
    if here:
        assert run.returncode, "the launch of a kernel that traps is an error"
        assert f"waits.cu:{here[0]}: block (0, 0, 0)" in run.stdout, run.stdout + run.stderr
        assert "came to an end" not in run.stdout
    else:
        assert run.returncode == 0 and run.stdout == "came to an end\n", run.stderr
