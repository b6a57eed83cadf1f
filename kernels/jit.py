"""NVRTC through cuda.core: a `.cu` file and a template instantiation in, a cubin out, cached on disk.

Compiling needs neither a GPU nor a driver; only `load` does. The resource report and the
disassembly come from the CUDA binary utilities (the wheels nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm, or a CUDA toolkit on the PATH).
"""

import bisect
import contextlib
import functools
import hashlib
import importlib.util
import io
import itertools
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import gpu, registers
from .lazy import core, cupy, driver, nvrtc

ROOT = Path(__file__).resolve().parent
COMMON = ROOT / "common"
#: What the package is called where it is installed; in a checkout it is `kernels`.
INSTALLED = "sparsity_on_trial"
#: Ampere, Ada, Hopper (with its architecture-specific instructions) and Blackwell: what pages show of a kernel, and
#: what the systems' tests compile each for.
TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_120")
#: All families of GPUs that kernels run on: what is routed to is compiled for each (tests/kernels/library).
FAMILIES = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
LEAST = 8, 0  #: compute capability
#: Line information costs no registers and lets Nsight Compute show the source beside the SASS.
OPTIONS = {"std": "c++17", "lineinfo": True}
#: Where this variable is set, but for 0, waits of kernels end: see common/hang_trap.cuh. For tests, not for timings.
HANG_TRAP = "SPARSITY_HANG_TRAP"


#: An instruction of the disassembly, where it lies and what it is; @!PT marks padding, which never executes.
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?!@!PT)(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


#: Where a kernel lies in the cache -> the lock of who compiles it: threads work side by side, but none on another's.
_COMPILING: dict[Path, threading.Lock] = {}
#: ... -> (symbol, code) that could not be kept there, so that a process compiles it once.
_UNKEPT: dict[Path, tuple[str, bytes]] = {}


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
        """Tell whether the kernel uses local memory."""
        return bool(self.stack_bytes or self.local_bytes or self.spill_loads or self.spill_stores)


def cache_folder() -> Path:
    """Where cubins are kept: $SPARSITY_CACHE, unless that is empty; else build/cubin beside `kernels` in a checkout.

    Of the installed package, which is not ours to write to, it is sparsity_on_trial/cubin in the user's own folder of
    caches: $XDG_CACHE_HOME, or ~/.cache where that is not set, or is no absolute path.
    """
    if given := os.environ.get("SPARSITY_CACHE"):
        return Path(given)
    if ROOT.name != INSTALLED:
        return ROOT.parent / "build" / "cubin"
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):
        caches = os.path.expanduser("~/.cache")
    return Path(caches, INSTALLED, "cubin")


def hang_trap() -> bool:
    """Whether kernels are compiled so that a wait for ever ends with its file and line."""
    return os.environ.get(HANG_TRAP, "0") not in ("", "0")


def options() -> dict:
    """Return what kernels are compiled with."""
    return OPTIONS | ({"define_macro": "HANG_TRAP"} if hang_trap() else {})


def arch_of(device) -> str:
    """Return the compile target of a `cuda.core.Device`.

    On Hopper "sm_90a", whose `a` unlocks wgmma, unless it is `Portable`.

    Where the compiler does not know the GPU, it is the nearest lower target of the same major number, whose machine
    code runs there, too. Raises ValueError, one sentence, for a compute capability below 8.0, or one of a family
    that the compiler does not know.
    """
    major, minor = device.compute_capability
    if (major, minor) == (9, 0):
        return "sm_90" if isinstance(device, gpu.Portable) else "sm_90a"
    return _target(major, minor)


@functools.cache
def _target(major: int, minor: int) -> str:
    said = f"this GPU has compute capability {major}.{minor}"
    least = ".".join(map(str, LEAST))
    if (major, minor) < LEAST:
        raise ValueError(f"{said}, but kernels need {least} or later: use an A100, an RTX 30, or what came after")
    known = [x for x in _nvrtc_knows() if x // 10 == major and x % 10 <= minor]
    if not known:
        raise ValueError(
            f"{said}, for which NVRTC {nvrtc_version()} does not compile: install a newer nvidia-cuda-nvrtc"
        )
    return f"sm_{max(known)}"


def _nvrtc_knows() -> list[int]:
    """Compute capabilities that the compiler makes machine code for, times 10."""
    return nvrtc.nvrtcGetSupportedArchs()[1]


def compile_cubin(
    source: Path, entry: str, arch: str, *, include: Iterable[str | Path] = (), anew: bool = False
) -> Cubin:
    """Compile one instantiation `entry` of the kernel template in `source` for `arch`.

    include: folders of headers that are not ours, such as the toolkit's, which our own kernels do without.
    anew: past the cache, which stays as it is. NVRTC orders some of its work by addresses, so a compilation in about
    70 gives other, equally right machine code than the rest: another order, a load in two halves, registers.

    A cubin that the cache holds whole is read instead; a cache that cannot be written is said once,
    on stderr, and done without; the process then keeps what it compiled. Any number of threads may
    compile at a time. Raises FileNotFoundError for a missing source, CompileError with NVRTC's log
    otherwise.
    """
    source = Path(source)
    if not source.is_file():
        raise FileNotFoundError(f"kernel source {source.name} does not exist in {source.parent.name}/")
    folders = tuple(map(str, include))
    if anew:
        code, symbol = _nvrtc(source, entry, arch, folders)
        return Cubin(source, entry, arch, symbol, code)
    told = (with_includes(source, folders), entry, arch, repr(options()), nvrtc_version(), *folders)
    key = hashlib.sha256("\0".join(told).encode()).hexdigest()[:24]
    stem = cache_folder() / f"{source.stem}-{arch}-{key}"
    cubin, meta = stem.with_suffix(".cubin"), stem.with_suffix(".json")
    with _COMPILING.setdefault(stem, threading.Lock()):
        cached = _cached(cubin, meta, entry)
        if cached:
            return Cubin(source, entry, arch, cached[1], cached[0])
        symbol, code = _UNKEPT.pop(stem, ("", b""))
        if not code:
            code, symbol = _nvrtc(source, entry, arch, folders)
        about = {"entry": entry, "symbol": symbol, "sha256": hashlib.sha256(code).hexdigest()}
        # The .json goes last: a cubin without it counts as absent, so an interrupted write is harmless.
        if not _keep({cubin: code, meta: json.dumps(about).encode()}):
            _UNKEPT[stem] = symbol, code
        return Cubin(source, entry, arch, symbol, code)


def launched_with(cubin: Cubin, count: int) -> Cubin:
    """Return the same machine code, launched with `count` registers a thread, fewer than the compiler says it has.

    For kernels whose warpgroups exchange registers (setmaxnreg): ptxas holds each instruction against what a thread
    has at launch, also behind a setmaxnreg that gives it more (error C7602). So such a kernel is compiled for what it
    has then, by `__maxnreg__`, and the count that the driver reads, EIATTR_REGCOUNT of the cubin's .nv.info, is set to
    what it begins with. That its code does with them before its setmaxnreg is read in it (`registers.used_before`).
    Raises ValueError where that does not hold or cannot be told, and where the cubin names no count, or a smaller one.
    """
    counts = [at for which, at in _attributes(cubin, ".nv.info") if which == _REGISTER_COUNT]
    if len(counts) != 1:
        raise ValueError(
            f"the cubin of {cubin.entry} for {cubin.arch} counts the registers of {len(counts)} kernels instead of one"
        )
    place = counts[0] + 4  # after the symbol's number
    (had,) = struct.unpack_from("<I", cubin.code, place)
    if had < count:
        raise ValueError(
            f"{cubin.entry} has {had} registers a thread, so it cannot be launched with {count}: compile it with a "
            "larger __maxnreg__"
        )
    _look_at_registers(cubin, registers.require_before, count)
    code = bytearray(cubin.code)
    struct.pack_into("<I", code, place, count)
    return replace(cubin, code=bytes(code))


#: Attributes of .nv.info, as cuobjdump calls them: EIFMT_SVAL, EIATTR_REGCOUNT, EIATTR_MAX_THREADS.
_WITH_SIZE, _REGISTER_COUNT, _MOST_THREADS = 0x04, 0x2F, 0x05


def _attributes(cubin: Cubin, section: str) -> Iterable[tuple[int, int]]:
    """(which, where its bytes are) of the attributes with a size in a section; none where there is none such."""
    at, length = _sections(cubin).get(section, (0, 0))
    end = at + length
    # An attribute is how it is kept, which one, and the number of its bytes, or where there is a word alone, that.
    while at < end:
        kept, which, size = struct.unpack_from("<BBH", cubin.code, at)
        if kept == _WITH_SIZE:
            yield which, at + 4
        at += 4 + (size if kept == _WITH_SIZE else 0)


def require_registers(cubin: Cubin) -> None:
    """Raise ValueError, one sentence, where warpgroups wait for more registers than a launch gives their block.

    What it gives is the cubin's count, which the driver reads, to the threads of __launch_bounds__, or as many as an
    SM has registers for. Kernels of other architectures than `registers.ARCH` exchange none.
    """
    if cubin.arch != registers.ARCH or _look_at_registers(cubin, registers.exchange) is None:
        return
    count = min(
        struct.unpack_from("<2I", cubin.code, at)[1]
        for which, at in _attributes(cubin, ".nv.info")
        if which == _REGISTER_COUNT
    )
    threads = (
        math.prod(struct.unpack_from("<3I", cubin.code, at))
        for which, at in _attributes(cubin, f".nv.info.{cubin.symbol}")
        if which == _MOST_THREADS
    )
    _look_at_registers(cubin, registers.require_enough, count, next(threads, None))


def _look_at_registers(cubin: Cubin, look: Callable[..., Any], *numbers):
    """look(machine code, *numbers), and what it finds wrong is said of the entry."""
    try:
        return look(_instructions(cubin), *numbers)
    except ValueError as error:
        raise ValueError(
            f"{cubin.entry}, as NVRTC {nvrtc_version()} compiles it, may wait for registers for ever ({error}): use "
            "the version that requirements/gpu.lock names"
        ) from error


def load(cubin: Cubin, dynamic_shared_bytes: int = 0):
    """Load a cubin on the current device: a `cuda.core.Kernel` ready for `cuda.core.launch`.

    More than 48 KiB of shared memory, dynamic and static together, have to be asked for once per
    kernel, which this does. Raises ValueError, one sentence, where the GPU has less, or where the kernel would wait for
    registers for ever (`require_registers`).
    """
    require_registers(cubin)
    kernel = core.ObjectCode.from_cubin(cubin.code).get_kernel(cubin.symbol)
    if not dynamic_shared_bytes:
        return kernel
    handle, device = driver.CUkernel(int(kernel.handle)), core.Device().device_id
    attributes = driver.CUfunction_attribute
    found = driver.cuKernelGetAttribute(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, handle, device)
    static = gpu.succeeded(found, f"the driver does not say what {cubin.entry} occupies ({{}})")
    if static + dynamic_shared_bytes > 48 * 1024:
        most = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        gpu.succeeded(
            driver.cuKernelSetAttribute(most, dynamic_shared_bytes, handle, device),
            f"{cubin.entry} asks for {dynamic_shared_bytes} bytes of shared memory a block beside {static} static "
            "ones, which this GPU refuses ({}): choose a smaller tile",
            ValueError,
        )
    return kernel


@functools.cache
def ready(source: Path, entry: str, arch: str):
    """Return a kernel that needs no dynamic shared memory, compiled and loaded once in a process."""
    return load(compile_cubin(source, entry, arch))


_loaded: dict[tuple, tuple] = {}
#: Seconds for which files are taken to be as they were: who edits a kernel and runs it again needs longer.
_UNCHANGED_S = 0.1


def loaded(source: Path, entry: str, device, dynamic_shared_bytes: int = 0):
    """Return a kernel on a `cuda.core.Device`, compiled and loaded.

    The one of the last time, unless a file was changed.
    """
    key = source, entry, device.device_id, arch_of(device), dynamic_shared_bytes
    kernel, files, seen = _loaded.get(key, (None, (), 0.0))
    now = time.monotonic()
    if kernel is not None and now - seen < _UNCHANGED_S:
        return kernel
    if kernel is None or any(os.stat(path).st_mtime_ns != at for path, at in files):
        files = tuple((path, os.stat(path).st_mtime_ns) for path in map(str, _reached(source)))
        kernel = load(compile_cubin(source, entry, arch_of(device)), dynamic_shared_bytes)
    _loaded[key] = kernel, files, now
    return kernel


def most_clusters(kernel, config, device) -> int:
    """Clusters of a launch, `cuda.core.LaunchConfig`, that a GPU runs at the same time."""
    return kernel.occupancy.max_active_clusters(config, stream=device.default_stream)


def run_on_cupy_stream(source: Path, entry: str, threads: int, block: int, *arguments) -> None:
    """Enqueue a kernel of at least `threads` threads, in blocks of `block`, where CuPy works.

    That is its current device and stream. arguments: NumPy scalars and addresses.
    """
    device = core.Device(cupy.cuda.Device().id)
    device.set_current()
    kernel = ready(source, entry, arch_of(device))
    stream = device.create_stream(StreamAt(cupy.cuda.get_current_stream().ptr))
    core.launch(stream, core.LaunchConfig(grid=-(-threads // block), block=block), kernel, *arguments)


class StreamAt:
    """Hands the stream at an address, of another library, to cuda.core (the `__cuda_stream__` protocol)."""

    def __init__(self, pointer: int):
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def resources(cubin: Cubin) -> Resources:
    """Return registers, shared memory, stack and spills of a kernel, from cuobjdump and the SASS."""
    return reports([cubin])[0][0]


def instruction_mix(cubin: Cubin) -> dict[str, int]:
    """Return static count of each instruction with its modifiers, e.g. {"LDG.E.128": 4, "FFMA": 16}."""
    return reports([cubin])[0][1]


def reports(cubins: Iterable[Cubin]) -> list[tuple[Resources, dict[str, int]]]:
    """`resources` and `instruction_mix` of each, kept on disk.

    Whoever has many kernels asks for all at once: the disassembler takes a quarter of a second to begin, and then
    hardly longer for fifty kernels of one architecture than for one.
    """
    cubins = list(cubins)
    # This file is part of the key, because what is read from the tools' output may change with it.
    here = Path(__file__).read_bytes()
    paths = [_kept(cubin, ".report.json", here) for cubin in cubins]
    found: dict[Path, Any] = {path: _read_report(path) for path in paths}
    missing = {path: cubin for path, cubin in zip(paths, cubins, strict=True) if found[path] is None}
    archs = {cubin.arch for cubin in missing.values()}
    groups = [{path: cubin for path, cubin in missing.items() if cubin.arch == arch} for arch in archs]
    # The time goes to the tools' own processes, so threads suffice.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        mixes = itertools.chain.from_iterable(pool.map(lambda group: _mixes([*group.values()]), groups))
        usage = dict(zip(missing, pool.map(_usage, missing.values()), strict=True))
        for path, mix in zip(itertools.chain(*groups), mixes, strict=True):
            found[path] = _report(usage[path], mix)
            _keep({path: json.dumps(found[path]).encode()})
    return [(Resources(**found[path]["resources"]), dict(found[path]["mix"])) for path in paths]


def disassemble(cubin: Cubin) -> str:
    """Return the SASS of the entry, one instruction a line, as nvdisasm prints it; kept on disk."""
    path = _kept(cubin, ".sass", b"")
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8")
    text = _tool("nvdisasm", cubin.code, cubin, "--print-code", "--no-dataflow")
    text = text.split(f"\n.text.{cubin.symbol}:", 1)[1].split("\n//----", 1)[0]
    _keep({path: text.encode()})
    return text


def _kept(cubin: Cubin, suffix: str, reader: bytes) -> Path:
    """Where the cache keeps what the binary utilities say of a cubin, as `reader` reads it."""
    key = hashlib.sha256(reader + cubin.symbol.encode() + cubin.code).hexdigest()[:24]
    return cache_folder() / f"{key}{suffix}"


def _read_report(path: Path) -> dict | None:
    """Return a report from the cache; None where it has none, or not a whole one."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        used, mix = Resources(**report["resources"]), report["mix"]
        counts = [*vars(used).values(), *mix.values()]
        return report if mix and all(type(count) is int for count in counts) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _report(usage: Mapping[str, int], mix: Mapping[str, int]) -> dict:
    """Return what is kept of a kernel."""
    used = {
        "registers": usage["REG"],
        "shared_bytes": usage["SHARED"],
        "stack_bytes": usage["STACK"],
        "local_bytes": usage["LOCAL"],
        "spill_loads": sum(n for op, n in mix.items() if op.split(".")[0] == "LDL"),
        "spill_stores": sum(n for op, n in mix.items() if op.split(".")[0] == "STL"),
    }
    return {"resources": used, "mix": dict(mix)}


def _usage(cubin: Cubin) -> dict[str, int]:
    """Return what cuobjdump says of the entry: REG, STACK, SHARED and LOCAL."""
    # A kernel that is no template is in every cubin of its file; only the entry is meant.
    text = _tool("cuobjdump", cubin.code, cubin, "--dump-resource-usage")
    (line,) = re.findall(rf"Function {re.escape(cubin.symbol)}:\s*\n(.*)", text)
    return {k: int(v) for k, v in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", line)}


def _mixes(cubins: list[Cubin]) -> list[Counter]:
    """Return the instruction mix of each of several kernels of one architecture.

    Their instructions are disassembled as if they followed each other in memory, which takes one process for all.
    """
    code = [_instructions(cubin) for cubin in cubins]
    ends = list(itertools.accumulate(map(len, code)))
    target = cubins[0].arch.replace("sm_", "SM")
    listing = _tool("nvdisasm", b"".join(code), cubins[0], "--binary", target)
    mixes: list[Counter] = [Counter() for _ in cubins]
    for line in listing.splitlines():
        if match := _INSTRUCTION.search(line):
            mixes[bisect.bisect(ends, int(match[1], 16))][match[2]] += 1
    return mixes


def _instructions(cubin: Cubin) -> bytes:
    """Return the machine code of the entry alone: the section .text.<symbol> of the cubin."""
    name = f".text.{cubin.symbol}"
    sections = _sections(cubin)
    if name not in sections:
        raise ValueError(f"the cubin of {cubin.entry} for {cubin.arch} has no section {name!r}")
    offset, length = sections[name]
    return cubin.code[offset : offset + length]


def _sections(cubin: Cubin) -> dict[str, tuple[int, int]]:
    """Name -> (offset, bytes) of each section of the cubin, which is an ELF file of 64 bits."""
    code = cubin.code
    (start,) = struct.unpack_from("<Q", code, 40)
    size, count, names = struct.unpack_from("<3H", code, 58)
    # Of a section's header: where its name begins, where it begins, its bytes.
    heads = [struct.unpack_from("<I20x2Q", code, start + size * i) for i in range(count)]
    called = heads[names][1]
    return {
        code[called + at : code.index(b"\0", called + at)].decode(): (offset, length) for at, offset, length in heads
    }


def _nvrtc(source: Path, entry: str, arch: str, folders: tuple[str, ...]) -> tuple[bytes, str]:
    log = io.StringIO()
    given = core.ProgramOptions(
        name=source.name,
        arch=arch,
        include_path=[str(source.parent), str(COMMON), *folders],
        **options(),
    )
    try:
        text = source.read_text(encoding="utf-8-sig")  # NVRTC takes a byte-order mark for code
        compiled = core.Program(text, "c++", given).compile("cubin", name_expressions=(entry,), logs=log)
    except Exception as error:  # cuda.core raises its own NVRTCError, which it does not export
        raise CompileError(f"{source.name}: {entry} does not compile for {arch}: {error}\n{log.getvalue()}") from error
    symbol = compiled.symbol_mapping[entry]
    return bytes(compiled.code), symbol.decode() if isinstance(symbol, bytes) else symbol


def with_includes(source: Path, folders: Iterable[str | Path] = ()) -> str:
    """Return the source and every header of ours that it reaches: the cache must see a changed header.

    folders: where else headers may lie, after the file's own folder and `COMMON`.
    """
    return "\0".join(text for _, text in sorted(_reached(source, folders).items()))


def _reached(source: Path, folders: Iterable[str | Path] = ()) -> dict[Path, str]:
    """Return the source and every header of ours that it reaches: path -> text."""
    seen: dict[Path, str] = {}
    todo = [source]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen[path] = path.read_text(encoding="utf-8-sig", errors="replace")
        for name in re.findall(r'^\s*#include\s+"([^"]+)"', seen[path], re.MULTILINE):
            places = (path.parent, COMMON, *map(Path, folders))
            found = [place / name for place in places if (place / name).is_file()]
            todo += [p.resolve() for p in found[:1]]
    return seen


@functools.cache
def nvrtc_version() -> str:
    """Of the compiler, such as "13.0": another one makes other machine code of the same source."""
    return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))


@functools.cache
def _tool_path(name: str) -> str:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for tool in Path(folder).glob(f"*/bin/{name}"):
            return str(tool)
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is neither in the environment nor on the PATH: install nvidia-cuda-{name}")
    return path


def _tool(name: str, code: bytes, of: Cubin, *flags: str) -> str:
    """Return what a binary utility prints about a file that holds `code`; `of` is whose it is, or the first one's."""
    # cuobjdump looks for nvdisasm on the PATH.
    path = os.pathsep.join((str(Path(_tool_path("nvdisasm")).parent), os.environ.get("PATH", "")))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        result = subprocess.run(
            [_tool_path(name), *flags, file.name],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"PATH": path},
        )
    if result.returncode:
        raise RuntimeError(f"{name} failed on {of.entry} ({of.arch}): {result.stderr.strip()}")
    return result.stdout


def _cached(cubin: Path, meta: Path, entry: str) -> tuple[bytes, str] | None:
    """(code, symbol) from the cache; None where it has none, or not what was written there, of this entry."""
    try:
        about, code = json.loads(meta.read_text(encoding="utf-8")), cubin.read_bytes()
        whole = about["sha256"] == hashlib.sha256(code).hexdigest() and about["entry"] == entry
        return (code, about["symbol"]) if whole and isinstance(about["symbol"], str) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _keep(files: dict[Path, bytes]) -> bool:
    """Whether files of the cache were written, one after the other; where that fails, say so once and go on without."""
    try:
        for path, data in files.items():
            # What lies there is run: nobody else may put something there, whatever the umask.
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            with aside(path) as file:
                file.write(data)
    except OSError as error:
        _say_once(
            f"The folder of compiled kernels, {cache_folder()}, cannot be written "
            f"({error.strerror or error}), so every run compiles anew: make room there, or set "
            "SPARSITY_CACHE to another folder."
        )
        return False
    return True


@functools.cache
def _say_once(message: str) -> None:
    print(message, file=sys.stderr)


@contextlib.contextmanager
def aside(path: Path):
    """Yield a binary file beside `path` to write to, which takes its place once it is whole."""
    temporary = f"{path}.{os.urandom(8).hex()}"
    # mkstemp would make it private, but others may share the cache, as far as the umask lets them.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
