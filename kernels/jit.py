"""NVRTC through cuda.core: a `.cu` file and a template instantiation in, a cubin out, cached on disk.

Compiling needs neither a GPU nor a driver; only `load` does. The resource report and the
disassembly come from the CUDA binary utilities (the wheels nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm, or a CUDA toolkit on the PATH).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COMMON = ROOT / "common"
#: Ampere, Ada, Hopper (with its architecture-specific instructions) and Blackwell.
TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_120")
#: Line information costs no registers and lets Nsight Compute show the source beside the SASS.
OPTIONS = {"std": "c++17", "lineinfo": True}


#: An instruction of the disassembly; @!PT marks padding, which never executes.
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?!@!PT)(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


#: Two threads that import cuda.core for the first time at once break each other's import.
_IMPORT = threading.Lock()


class CompileError(RuntimeError):
    """NVRTC refused a kernel; the message holds the compiler's own log."""


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel: machine code for exactly one architecture."""

    source: Path
    entry: str  #: the template instantiation, e.g. "warp_per_row<8>"
    arch: str
    symbol: str  #: the mangled name of `entry` in `code`
    code: bytes


@dataclass(frozen=True)
class Resources:
    """What one thread (registers, stack, local) and one block (shared) of a kernel occupy."""

    registers: int
    shared_bytes: int  #: statically allocated; on sm_90 and later 1 KiB of it is the driver's
    stack_bytes: int
    local_bytes: int
    spill_loads: int  #: LDL instructions in the disassembly
    spill_stores: int  #: STL instructions in the disassembly

    @property
    def spills(self) -> bool:
        return bool(self.stack_bytes or self.local_bytes or self.spill_loads or self.spill_stores)


def cache_folder() -> Path:
    """Where cubins are kept: $SPARSITY_CACHE, else build/cubin beside the package."""
    return Path(os.environ.get("SPARSITY_CACHE", ROOT.parent / "build" / "cubin"))


def arch_of(device) -> str:
    """The compile target of a `cuda.core.Device`: on Hopper "sm_90a", whose `a` unlocks wgmma."""
    major, minor = device.compute_capability
    return f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")


def compile_cubin(source: Path, entry: str, arch: str) -> Cubin:
    """Compile one instantiation `entry` of the kernel template in `source` for `arch`.

    Raises FileNotFoundError for a missing source, CompileError with NVRTC's log otherwise.
    """
    source = Path(source)
    if not source.is_file():
        raise FileNotFoundError(
            f"kernel source {source.name} does not exist in {source.parent.name}/"
        )
    key = hashlib.sha256(
        "\0".join((with_includes(source), entry, arch, repr(OPTIONS), nvrtc_version())).encode()
    ).hexdigest()[:24]
    stem = cache_folder() / f"{source.stem}-{arch}-{key}"
    cubin, meta = stem.with_suffix(".cubin"), stem.with_suffix(".json")
    if cubin.is_file() and meta.is_file():
        return Cubin(
            source, entry, arch, json.loads(meta.read_text())["symbol"], cubin.read_bytes()
        )

    code, symbol = _nvrtc(source, entry, arch)
    stem.parent.mkdir(parents=True, exist_ok=True)
    # The .json goes last: a cubin without it counts as absent, so an interrupted write is harmless.
    _replace(cubin, code)
    _replace(meta, json.dumps({"entry": entry, "symbol": symbol}).encode())
    return Cubin(source, entry, arch, symbol, code)


def load(cubin: Cubin, dynamic_shared_bytes: int = 0):
    """Load a cubin on the current device: a `cuda.core.Kernel` ready for `cuda.core.launch`.

    Above 48 KiB, dynamic shared memory has to be asked for once per kernel, which this does.
    """
    from cuda.bindings import driver
    from cuda.core import Device, ObjectCode

    kernel = ObjectCode.from_cubin(cubin.code).get_kernel(cubin.symbol)
    if dynamic_shared_bytes > 48 * 1024:
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (error,) = driver.cuKernelSetAttribute(
            attribute, dynamic_shared_bytes, driver.CUkernel(int(kernel.handle)), Device().device_id
        )
        if error != driver.CUresult.CUDA_SUCCESS:
            raise ValueError(
                f"{cubin.entry} asks for {dynamic_shared_bytes} bytes of shared memory a block, "
                f"which this GPU refuses ({error.name}): choose a smaller tile"
            )
    return kernel


def run_on_cupy_stream(source: Path, entry: str, threads: int, block: int, *arguments) -> None:
    """Enqueue a kernel of at least `threads` threads, in blocks of `block`, where CuPy works.

    That is its current device and stream. arguments: NumPy scalars and addresses.
    """
    import cupy
    from cuda.core import Device, LaunchConfig, launch

    device = Device(cupy.cuda.Device().id)
    device.set_current()
    kernel = load(compile_cubin(source, entry, arch_of(device)))
    stream = device.create_stream(_CupyStream(cupy.cuda.get_current_stream().ptr))
    launch(stream, LaunchConfig(grid=-(-threads // block), block=block), kernel, *arguments)


class _CupyStream:
    """Hands a CuPy stream to cuda.core (the `__cuda_stream__` protocol)."""

    def __init__(self, pointer: int):
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def resources(cubin: Cubin) -> Resources:
    """Registers, shared memory, stack and spills of a kernel, from cuobjdump and the SASS."""
    return Resources(**_report(cubin)["resources"])


def instruction_mix(cubin: Cubin) -> dict[str, int]:
    """Static count of each instruction with its modifiers, e.g. {"LDG.E.128": 4, "FFMA": 16}."""
    return _report(cubin)["mix"]


def disassemble(cubin: Cubin) -> str:
    """The SASS of the entry, one instruction a line, as nvdisasm prints it."""
    text = _tool("nvdisasm", cubin, "--print-code", "--no-dataflow")
    return text.split(f"\n.text.{cubin.symbol}:", 1)[1].split("\n//----", 1)[0]


def _report(cubin: Cubin) -> dict:
    """What the binary utilities say of a cubin; kept on disk, since asking them takes a while."""
    # This file is part of the key, because what is read from the tools' output may change with it.
    key = hashlib.sha256(Path(__file__).read_bytes() + cubin.symbol.encode() + cubin.code)
    path = cache_folder() / f"{key.hexdigest()[:24]}.report.json"
    if path.is_file():
        return json.loads(path.read_text())
    found = map(_INSTRUCTION.search, disassemble(cubin).splitlines())
    mix = Counter(match.group(1) for match in found if match)
    # A kernel that is no template is in every cubin of its file; only the entry is meant.
    usage = _tool("cuobjdump", cubin, "--dump-resource-usage")
    (line,) = re.findall(rf"Function {re.escape(cubin.symbol)}:\s*\n(.*)", usage)
    field = {k: int(v) for k, v in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", line)}
    report = {
        "resources": {
            "registers": field["REG"],
            "shared_bytes": field["SHARED"],
            "stack_bytes": field["STACK"],
            "local_bytes": field["LOCAL"],
            "spill_loads": sum(n for op, n in mix.items() if op.split(".")[0] == "LDL"),
            "spill_stores": sum(n for op, n in mix.items() if op.split(".")[0] == "STL"),
        },
        "mix": dict(mix),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, json.dumps(report).encode())
    return report


def _nvrtc(source: Path, entry: str, arch: str) -> tuple[bytes, str]:
    with _IMPORT:
        from cuda.core import Program, ProgramOptions
    log = io.StringIO()
    options = ProgramOptions(
        name=source.name, arch=arch, include_path=[str(source.parent), str(COMMON)], **OPTIONS
    )
    try:
        compiled = Program(source.read_text(), "c++", options).compile(
            "cubin", name_expressions=(entry,), logs=log
        )
    except Exception as error:  # cuda.core raises its own NVRTCError, which it does not export
        raise CompileError(
            f"{source.name}: {entry} does not compile for {arch}: {error}\n{log.getvalue()}"
        ) from error
    symbol = compiled.symbol_mapping[entry]
    return bytes(compiled.code), symbol.decode() if isinstance(symbol, bytes) else symbol


def with_includes(source: Path) -> str:
    """The source and every header of ours that it reaches: the cache must see a changed header."""
    seen: dict[Path, str] = {}
    todo = [source]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen[path] = path.read_text()
        for name in re.findall(r'^\s*#include\s+"([^"]+)"', seen[path], re.MULTILINE):
            found = [p for p in (path.parent / name, COMMON / name) if p.is_file()]
            todo += [p.resolve() for p in found[:1]]
    return "\0".join(text for _, text in sorted(seen.items()))


@functools.cache
def nvrtc_version() -> str:
    """Of the compiler, such as "13.0": another one makes other machine code of the same source."""
    from cuda.bindings import nvrtc

    return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))


@functools.cache
def _tool_path(name: str) -> str:
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        for path in Path(folder).glob(f"*/bin/{name}"):
            return str(path)
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(
            f"{name} is neither in the environment nor on the PATH: install nvidia-cuda-{name}"
        )
    return path


def _tool(name: str, cubin: Cubin, *flags: str) -> str:
    # cuobjdump looks for nvdisasm on the PATH.
    path = os.pathsep.join((str(Path(_tool_path("nvdisasm")).parent), os.environ.get("PATH", "")))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin.code)
        file.flush()
        result = subprocess.run(
            [_tool_path(name), *flags, file.name],
            capture_output=True,
            text=True,
            env=os.environ | {"PATH": path},
        )
    if result.returncode:
        raise RuntimeError(
            f"{name} failed on {cubin.entry} ({cubin.arch}): {result.stderr.strip()}"
        )
    return result.stdout


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)  # mkstemp makes it private, but others may share the cache
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
