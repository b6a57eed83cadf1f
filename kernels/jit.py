"""NVRTC through cuda.core: a `.cu` file and a template instantiation in, a cubin out, cached on disk.

Compiling needs neither a GPU nor a driver; only `load` does. What a kernel occupies is read in its cubin; the
disassembly comes from nvdisasm (the wheel nvidia-cuda-nvdisasm, or a CUDA toolkit on the PATH).
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
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import gpu, registers
from .lazy import core, driver, nvrtc

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
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?!@!PT)(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)[^;]*")


#: Where a kernel lies in the cache -> the lock of who compiles it: threads work side by side, but none on another's.
_COMPILING: dict[Path, threading.Lock] = {}
#: ... -> what could not be kept there, so that a process compiles it once.
_UNKEPT: dict[Path, bytes] = {}


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
    """What one thread (registers, stack) and one block (shared) of a kernel occupy."""

    registers: int
    shared_bytes: int  #: statically allocated; on sm_90 and later 1 KiB of it is the driver's
    stack_bytes: int
    spill_loads: int  #: LDL instructions in the disassembly
    spill_stores: int  #: STL instructions in the disassembly

    @property
    def spills(self) -> bool:
        """Tell whether the kernel uses local memory."""
        return bool(self.stack_bytes or self.spill_loads or self.spill_stores)


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
    known = [x for x in nvrtc.nvrtcGetSupportedArchs()[1] if x // 10 == major and x % 10 <= minor]
    if not known:
        raise ValueError(
            f"{said}, for which NVRTC {nvrtc_version()} does not compile: install a newer nvidia-cuda-nvrtc"
        )
    return f"sm_{max(known)}"


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
        whole = _nvrtc(source, entry, arch, folders)
    else:
        told = (with_includes(source, folders), entry, arch, repr(options()), nvrtc_version(), *folders)
        key = hashlib.sha256("\0".join(told).encode()).hexdigest()[:24]
        path = cache_folder() / f"{source.stem}-{arch}-{key}.kernel"
        with _COMPILING.setdefault(path, threading.Lock()):
            held = _held(path)
            whole = held or _UNKEPT.pop(path, b"") or _nvrtc(source, entry, arch, folders)
            if held is None and not _keep(path, whole):
                _UNKEPT[path] = whole
    symbol, _, code = whole.partition(b"\0")
    return Cubin(source, entry, arch, symbol.decode(), code)


def launched_with(cubin: Cubin, count: int) -> Cubin:
    """Return the same machine code, launched with `count` registers a thread, fewer than the compiler says it has.

    For kernels whose warpgroups exchange registers (setmaxnreg): ptxas holds each instruction against what a thread
    has at launch, also behind a setmaxnreg that gives it more (error C7602). So such a kernel is compiled for what it
    has then, by `__maxnreg__`, and the count that the driver reads, EIATTR_REGCOUNT of the cubin's .nv.info, is set to
    what it begins with. That its code does with them before its setmaxnreg is read in it (`registers.used_before`).
    Raises ValueError where that does not hold or cannot be told, and where the cubin names a smaller count.
    """
    place = _info(cubin)[_REGISTER_COUNT]
    (had,) = struct.unpack_from("<I", cubin.code, place)
    if had < count:
        raise ValueError(
            f"{cubin.entry} has {had} registers a thread, so it cannot be launched with {count}: compile it with a "
            "larger __maxnreg__"
        )
    with _waits_of(cubin):
        code = _instructions(cubin)
        if registers.exchange(code) and (used := registers.used_before(code)) > count:
            raise ValueError(f"it may use {used} registers before setmaxnreg, and begins with {count}")
    fewer = bytearray(cubin.code)
    struct.pack_into("<I", fewer, place, count)
    return replace(cubin, code=bytes(fewer))


#: Attributes of .nv.info, as cuobjdump calls them: EIFMT_SVAL, EIATTR_REGCOUNT, EIATTR_FRAME_SIZE, EIATTR_MAX_THREADS.
_WITH_SIZE, _REGISTER_COUNT, _FRAME, _MOST_THREADS = 0x04, 0x2F, 0x11, 0x05


def _info(cubin: Cubin) -> dict[int, int]:
    """Attribute of .nv.info -> where the number lies that it has for the entry, which it names by its symbol."""
    sections = _sections(cubin)
    text, (start, size) = list(sections).index(f".text.{cubin.symbol}"), sections[".symtab"]
    symbols = np.frombuffer(cubin.code, "u4, u1, u1, u2, u8, u8", size // 24, start)["f3"]  # the section of each
    found = ((which, at, *struct.unpack_from("<I", cubin.code, at)) for which, at in _attributes(cubin, ".nv.info"))
    return {which: at + 4 for which, at, symbol in found if symbol < symbols.size and symbols[symbol] == text}


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
    if cubin.arch != registers.ARCH:
        return
    with _waits_of(cubin):
        found = registers.exchange(_instructions(cubin))
        if found is None:
            return
        (count,) = struct.unpack_from("<I", cubin.code, _info(cubin)[_REGISTER_COUNT])
        threads = (
            math.prod(struct.unpack_from("<3I", cubin.code, at))
            for which, at in _attributes(cubin, f".nv.info.{cubin.symbol}")
            if which == _MOST_THREADS
        )
        warpgroups = next(threads, registers.SM // count) // registers.WARPGROUP
        needed = found.needed(warpgroups)
        if count < needed:
            raise ValueError(
                f"{warpgroups} warpgroups begin with {count} registers a thread, then one keeps {found.given} and the "
                f"others take {found.taken}, which needs {needed}"
            )


@contextlib.contextmanager
def _waits_of(cubin: Cubin):
    """Say of the entry what is found wrong with the registers that its warpgroups exchange."""
    try:
        yield
    except ValueError as error:
        raise ValueError(
            f"{cubin.entry}, as NVRTC {nvrtc_version()} compiles it, may wait for registers for ever ({error}): use "
            "the version that requirements/gpu.lock names"
        ) from error


def load(cubin: Cubin, dynamic_shared_bytes: int = 0):
    """Load a cubin on the current device: a `cuda.core.Kernel` ready for `cuda.core.launch`.

    Shared memory that is not static has to be asked for once per kernel where there is more than 48 KiB of both, which
    this does. Raises ValueError, one sentence, where the GPU has less, or where the kernel would wait for registers for
    ever (`require_registers`).
    """
    require_registers(cubin)
    kernel = core.ObjectCode.from_cubin(cubin.code).get_kernel(cubin.symbol)
    if dynamic_shared_bytes:
        handle, device = driver.CUkernel(int(kernel.handle)), core.Device().device_id
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        gpu.succeeded(
            driver.cuKernelSetAttribute(most, dynamic_shared_bytes, handle, device),
            f"{cubin.entry} asks for {dynamic_shared_bytes} bytes of shared memory a block beside "
            f"{_shared_bytes(cubin)} static ones, which this GPU refuses ({{}}): choose a smaller tile",
            ValueError,
        )
    return kernel


def _shared_bytes(cubin: Cubin) -> int:
    """Return the bytes of shared memory of a block that the kernel declares."""
    return _sections(cubin).get(f".nv.shared.{cubin.symbol}", (0, 0))[1]


@functools.cache
def ready(source: Path, entry: str, arch: str, dynamic_shared_bytes: int = 0):
    """Return a kernel, compiled and loaded once in a process for so much dynamic shared memory."""
    return load(compile_cubin(source, entry, arch), dynamic_shared_bytes)


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
    from . import workspace

    device, stream = workspace.on_cupys_stream()
    workspace.enqueue(device, stream, source, entry, -(-threads // block), block, *arguments)


class StreamAt:
    """Hands the stream at an address, of another library, to cuda.core (the `__cuda_stream__` protocol)."""

    def __init__(self, pointer: int):
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def resources(cubin: Cubin) -> Resources:
    """Return registers, shared memory, stack and spills of a kernel, from the cubin and the SASS."""
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
    here = Path(__file__).read_bytes()  # what is read from the tool's output may change with it
    found: dict[Cubin, Any] = {cubin: _held(_place(cubin, ".mix.json", here)) for cubin in cubins}
    missing = [cubin for cubin, mix in found.items() if mix is None]
    groups = [[cubin for cubin in missing if cubin.arch == arch] for arch in {cubin.arch for cubin in missing}]
    # The time goes to the tool's own processes, so threads suffice.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        mixes = itertools.chain.from_iterable(pool.map(_mixes, groups))
        for cubin, mix in zip(itertools.chain(*groups), mixes, strict=True):
            found[cubin] = json.dumps(mix).encode()
            _keep(_place(cubin, ".mix.json", here), found[cubin])
    return [_report(cubin, json.loads(found[cubin])) for cubin in cubins]


def _report(cubin: Cubin, mix: dict[str, int]) -> tuple[Resources, dict[str, int]]:
    info = _info(cubin)
    registers, stack = (struct.unpack_from("<I", cubin.code, info[x])[0] for x in (_REGISTER_COUNT, _FRAME))
    loads, stores = (sum(n for op, n in mix.items() if op.split(".")[0] == which) for which in ("LDL", "STL"))
    return Resources(registers, _shared_bytes(cubin), stack, loads, stores), mix


def disassemble(cubin: Cubin) -> str:
    """Return the SASS of the entry, one instruction a line, as nvdisasm prints it; kept on disk."""
    path = _place(cubin, ".sass.txt", b"")
    text = _held(path)
    if text is None:
        said = _tool("nvdisasm", cubin.code, cubin, "--print-code", "--no-dataflow")
        text = said.split(f"\n.text.{cubin.symbol}:", 1)[1].split("\n//----", 1)[0].encode()
        _keep(path, text)
    return text.decode()


def _place(cubin: Cubin, suffix: str, reader: bytes) -> Path:
    """Where the cache keeps what nvdisasm says of a cubin, as `reader` reads it."""
    key = hashlib.sha256(reader + cubin.symbol.encode() + cubin.code).hexdigest()[:24]
    return cache_folder() / f"{key}{suffix}"


def _mixes(cubins: list[Cubin]) -> list[Counter]:
    """Return the instruction mix of each of several kernels of one architecture."""
    return [Counter(match[2] for match in found) for found in _disassembled(cubins)]


def listings(cubins: Iterable[Cubin]) -> list[list[str]]:
    """Return the instructions of each of several kernels of one architecture, in order, without addresses and labels.

    That takes hardly longer than `disassemble` does for one of them.
    """
    return [[match[0].partition("*/")[2].strip() for match in found] for found in _disassembled(list(cubins))]


def _disassembled(cubins: list[Cubin]) -> list[list[re.Match[str]]]:
    """Return `_INSTRUCTION` of each instruction of each kernel.

    They are disassembled as if they followed each other in memory, which takes one process for all.
    """
    code = [_instructions(cubin) for cubin in cubins]
    ends = list(itertools.accumulate(map(len, code)))
    target = cubins[0].arch.replace("sm_", "SM")
    made: list[list[re.Match[str]]] = [[] for _ in cubins]
    for line in _tool("nvdisasm", b"".join(code), cubins[0], "--binary", target).splitlines():
        if match := _INSTRUCTION.search(line):
            made[bisect.bisect(ends, int(match[1], 16))].append(match)
    return made


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


def _nvrtc(source: Path, entry: str, arch: str, folders: tuple[str, ...]) -> bytes:
    """Return the mangled name of the entry, a byte of 0, and the machine code."""
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
    return (symbol if isinstance(symbol, bytes) else symbol.encode()) + b"\0" + bytes(compiled.code)


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
    places = (spec.submodule_search_locations or ()) if spec else ()
    folders = [str(folder) for place in places for folder in Path(place).glob("*/bin")]
    path = shutil.which(name, path=os.pathsep.join((*folders, os.environ.get("PATH", os.defpath))))
    if path is None:
        raise FileNotFoundError(f"{name} is neither in the environment nor on the PATH: install nvidia-cuda-{name}")
    return path


def _tool(name: str, code: bytes, of: Cubin, *flags: str) -> str:
    """Return what a binary utility prints about a file that holds `code`; `of` is whose it is, or the first one's."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [_tool_path(name), *flags, file.name]
        result = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if result.returncode:
        raise RuntimeError(f"{name} failed on {of.entry} ({of.arch}): {result.stderr.strip()}")
    return result.stdout


def _held(path: Path) -> bytes | None:
    """Return what the cache holds at a place; None where it has nothing, or not what was written there."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    return whole[32:] if whole[:32] == _digest(path, whole[32:]) else None


def _digest(path: Path, data: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + data).digest()


def _keep(path: Path, data: bytes) -> bool:
    """Whether a file of the cache was written, behind its digest; where that fails, say so once and go on without."""
    try:
        # What lies there is run: nobody else may put something there, whatever the umask.
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with aside(path) as file:
            file.write(_digest(path, data) + data)
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
    temporary = Path(f"{path}.{os.urandom(8).hex()}")
    try:
        # mkstemp would make it private, but others may share the cache, as far as the umask lets them.
        with open(temporary, "xb", opener=functools.partial(os.open, mode=0o644)) as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
