"""The compiler, its cache and its reports: all of it without a GPU or a driver."""

import errno
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import racing
from refused import refused, says

from kernels import gpu, jit

SOURCE = """
#include "factor.cuh"
template <int N> __global__ void scale(const float4* __restrict__ in, float4* out) {
  float4 v = in[threadIdx.x];
  v.x = fmaf(v.x, FACTOR, N);
  out[threadIdx.x] = v;
}
__global__ void staged(const float4* in, float4* out) {
  __shared__ float4 x[256];
  x[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = x[255 - threadIdx.x];
}
__global__ void spills(const int* at, float* out) {
  float x[64];
  for (int i = 0; i < 64; ++i) x[i] = out[i];
  for (int i = 0; i < 999; ++i) x[at[i] & 63] += x[at[i + 1] & 63];
  for (int i = 0; i < 64; ++i) out[i] = x[i];
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPARSITY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path) -> Path:
    """scale.cu, which includes factor.cuh, which includes value.cuh."""
    for name, text in {
        "value.cuh": "#define VALUE 2.f\n",
        "factor.cuh": '#pragma once\n#include "value.cuh"\n#define FACTOR VALUE\n',
        "scale.cu": SOURCE,
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path / "scale.cu"


@pytest.fixture
def compiled(monkeypatch) -> list[tuple]:
    """Every call of the compiler itself, as (file name, entry, arch)."""
    calls, nvrtc = [], jit._nvrtc
    monkeypatch.setattr(jit, "_nvrtc", lambda source, *how: calls.append((source.name, *how)) or nvrtc(source, *how))
    return calls


@pytest.fixture
def fake(monkeypatch) -> list[str]:
    """Every call of a compiler that takes no time, whose code is what was read: the source, its headers, how."""
    calls: list[str] = []

    def nvrtc(source, entry, arch, folders):
        calls.append(f"{jit.with_includes(source, folders)} {entry} {arch} {jit.options()}")
        return f"{entry}\0{calls[-1]}".encode()

    monkeypatch.setattr(jit, "_nvrtc", nvrtc)
    return calls


def scale(source: Path, entry: str = "scale<1>", arch: str = "sm_80", **more) -> jit.Cubin:
    return jit.compile_cubin(source, entry, arch, **more)


# ------------------------------------------------------------------------------------ the cache


def test_the_cache_lies_where_the_environment_says_and_is_read(cache, source, compiled, monkeypatch, tmp_path):
    first = scale(source)
    assert (first.source, first.entry, first.arch) == (source, "scale<1>", "sm_80")
    (path,) = cache.iterdir()  # and nothing half-written
    file = path.stat().st_ino
    assert scale(source) == first and len(compiled) == 1 and path.stat().st_ino == file, "what is read is not written"
    assert scale(source, anew=True).symbol == first.symbol and len(compiled) == 2 and len([*cache.iterdir()]) == 1
    for value in ("", None):
        monkeypatch.setenv("SPARSITY_CACHE", "") if value == "" else monkeypatch.delenv("SPARSITY_CACHE")
        assert jit.cache_folder() == jit.ROOT.parent / "build" / "cubin"


@pytest.mark.parametrize(("given", "folder"), [("/x", "/x"), ("x", "~/.cache"), ("", "~/.cache"), (None, "~/.cache")])
def test_an_installed_package_writes_to_the_users_own_caches(monkeypatch, tmp_path, given, folder):
    """And not beside itself; the specification of $XDG_CACHE_HOME takes absolute paths only."""
    monkeypatch.setattr(jit, "ROOT", tmp_path / jit.INSTALLED)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", given) if given is not None else monkeypatch.delenv("XDG_CACHE_HOME", False)
    assert jit.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SPARSITY_CACHE")
    assert jit.cache_folder() == Path(folder.replace("~", str(tmp_path / "home"))) / "sparsity_on_trial" / "cubin"


def test_whatever_changes_the_code_compiles_again_and_is_kept_beside_the_rest(fake, source, monkeypatch, tmp_path):
    """Entry, target, headers of headers, a named folder's, options, compiler, trap; one beside the file comes first."""
    (folder := tmp_path / "more").mkdir()
    monkeypatch.delenv(jit.HANG_TRAP, raising=False)
    steps = [
        lambda: None,
        lambda: (source.parent / "value.cuh").write_text("#define VALUE 3.f\n"),
        lambda: (source.parent / "factor.cuh").write_text('#include "far.cuh"\n'),
        lambda: (folder / "far.cuh").write_text("// far\n"),
        lambda: (folder / "far.cuh").write_text("// farther\n"),
        lambda: (source.parent / "far.cuh").write_text("// near\n"),
        lambda: monkeypatch.setattr(jit, "OPTIONS", jit.OPTIONS | {"lineinfo": False}),
        lambda: monkeypatch.setattr(jit, "nvrtc_version", lambda: "99.9"),
        lambda: monkeypatch.setenv(jit.HANG_TRAP, "1"),
    ]
    for number, step in enumerate(steps, 1):
        step()
        made = {
            scale(source, entry, arch, include=[folder]) for entry in ("a", "b") for arch in ("x", "y") for _ in "12"
        }
        assert len(made) == 4 and len(fake) == 4 * number, number
        assert all(f" {cubin.entry} {cubin.arch} ".encode() in cubin.code for cubin in made)
    assert "near" in fake[-1] and "far" in fake[20] and jit.hang_trap() and "HANG_TRAP" in fake[-1]
    for off in ("0", ""):
        monkeypatch.setenv(jit.HANG_TRAP, off)
        assert not jit.hang_trap() and "HANG_TRAP" not in str(jit.options())
    scale(source, "a", "x")
    assert len(fake) == 4 * len(steps) + 1, "without the folder"


def test_headers_that_are_not_ours_are_found_where_the_folder_is_named(compiled, tmp_path):
    (tmp_path / "sums.cu").write_text("#include <others.h>\n__global__ void sums(int* x) { *x = NUMBER; }\n")
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit" / "others.h").write_text("#define NUMBER 1\n")
    assert scale(tmp_path / "sums.cu", "sums", include=[tmp_path / "toolkit"]).code
    with pytest.raises(
        jit.CompileError, match=r"(?s)^sums.cu: sums does not compile for sm_80.*sums\.cu\(1\).*others\.h"
    ):
        scale(tmp_path / "sums.cu", "sums")
    refused(r"kernel source missing\.cu does not exist", scale, tmp_path / "missing.cu", kind=FileNotFoundError)


def test_a_full_disk_costs_the_cache_and_not_the_kernel(cache, fake, source, monkeypatch, capsys):
    def full_disk(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    jit._say_once.cache_clear()
    with monkeypatch.context() as there:
        there.setattr(os, "replace", full_disk)
        first = scale(source)
        assert scale(source) == first and len(fake) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(cache) in line and "No space left on device" in line and "SPARSITY_CACHE" in line
    # Nothing half written is left, and as soon as there is room, it is kept.
    assert not [*cache.iterdir()]
    assert scale(source) == first and len(fake) == 1 and not jit._UNKEPT and [*cache.iterdir()]
    jit._say_once.cache_clear()


def test_threads_compile_side_by_side_and_none_what_another_does(source, monkeypatch):
    together, calls = threading.Barrier(2, timeout=60), []

    def nvrtc(source, entry, arch, folders):
        calls.append(entry)
        together.wait()  # until the other kernel is compiled, too
        return f"{entry}\0{entry}".encode()

    monkeypatch.setattr(jit, "_nvrtc", nvrtc)
    entries = ["scale<1>", "scale<2>"] * 4
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda entry: scale(source, entry), entries))
    assert sorted(calls) == ["scale<1>", "scale<2>"] and [cubin.code.decode() for cubin in made] == entries


@pytest.mark.parametrize("damage", ["cut", "a bit", "empty", "another's"])
def test_a_damaged_cubin_is_compiled_again_and_put_right(cache, fake, source, damage):
    before = scale(source)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    scale(source, "scale<2>")
    (other,) = {*cache.iterdir()} - {path}
    flipped = whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]
    path.write_bytes({"cut": whole[:-9], "a bit": flipped, "empty": b"", "another's": other.read_bytes()}[damage])
    for _ in range(2):
        assert scale(source) == before and len(fake) == 3 and path.read_bytes() == whole


@pytest.mark.parametrize(("umask", "modes"), [(0, (0o755, 0o644)), (0o077, (0o700, 0o600))])
def test_nobody_else_may_write_to_the_cache_and_the_umask_counts(cache, fake, source, umask, modes):
    before = os.umask(umask)
    try:
        scale(source)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in cache.iterdir()} == {modes[1]}
    assert cache.stat().st_mode & 0o777 == modes[0]


# ------------------------------------------------------------------------------------- reports


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_what_is_said_of_a_kernel_is_of_the_entry_and_not_of_its_neighbours(source, arch):
    """Every kernel of a file that is no template is in every cubin of that file; registers are one word of it."""
    kinds = {"scale<1>": ("STG.E.128", 0, False), "staged": ("STG.E.128", 4096, False), "spills": ("STG.E", 0, True)}
    cubins = [scale(source, entry, arch) for entry in kinds]
    for (entry, (stores, shared, spills)), (used, mix) in zip(kinds.items(), jit.reports(cubins), strict=True):
        assert used.spills == spills and used.shared_bytes in (shared, shared + 1024), entry
        assert {op for op in mix if op.startswith("STG")} == {stores} and mix["EXIT"] >= 1, entry
    cubin, used, mix = cubins[0], jit.resources(cubins[0]), jit.instruction_mix(cubins[0])
    assert mix["FFMA"] == 1 and [n for op, n in mix.items() if op.startswith("LDG.E.128")] == [1]
    assert "FFMA" in jit.disassemble(cubin) and 4 <= used.registers <= 32 and not used.stack_bytes
    refused(
        rf"the cubin of scale<1> for {arch} has no section .*other", jit._instructions, replace(cubin, symbol="other")
    )
    for one in cubins:
        said = jit._tool("cuobjdump", one.code, one, "--dump-resource-usage")
        (line,) = re.findall(rf"Function {one.symbol}:\s*\n(.*)", said)
        words, of = dict(re.findall(r"([A-Z]+):(\d+)", line)), jit.resources(one)
        assert [int(words[x]) for x in ("REG", "SHARED", "STACK")] == [of.registers, of.shared_bytes, of.stack_bytes]
    text = jit._tool("cuobjdump", cubin.code, cubin, "-elf")
    # Of each section, its number, where it begins, its bytes, ..., its name.
    lines = re.findall(r"^ +[0-9a-f]+ +([0-9a-f]+) +([0-9a-f]+) .* (\.\S+)$", text.split("\n.section")[0], re.M)
    assert jit._sections(cubin) == {"": (0, 0)} | {name: (int(at, 16), int(size, 16)) for at, size, name in lines}


@pytest.mark.parametrize("arch", jit.TARGETS[::2])
def test_a_kernel_can_be_launched_with_fewer_registers(tmp_path, arch):
    """One word of the file changes, which cuobjdump reads as the driver does; the machine code stays."""
    (tmp_path / "two.cu").write_text("template <int> __global__ void one(float* x) { *x = sqrtf(*x); }\n")
    cubin = scale(tmp_path / "two.cu", "one<1>", arch)
    had = jit.resources(cubin).registers
    fewer = jit.launched_with(cubin, had - 2)
    assert jit.resources(fewer).registers == had - 2 and jit._instructions(fewer) == jit._instructions(cubin)
    assert sum(a != b for a, b in zip(cubin.code, fewer.code, strict=True)) == 1
    assert jit.launched_with(cubin, had) == cubin
    says([f"one<1> has {had} registers a thread", f"with {had + 1}: "], lambda: jit.launched_with(cubin, had + 1))
    (tmp_path / "two.cu").write_text(
        "__global__ void a(float* x) { *x = sqrtf(*x); }\n__global__ void b(float* x) { *x = 2; }\n"
    )
    a, b = (scale(tmp_path / "two.cu", name, arch) for name in "ab")
    assert jit.resources(a).registers != jit.resources(jit.launched_with(b, 4)).registers == 4


LISTING = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0008*/              @!PT LDS RZ, [RZ] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0030*/              @P2  FFMA R0, R1, R2, R3 ;
        /*0040*/                   FFMA.FTZ R0, R1, R2, R3 ;
    .L_x_0:
        /*10050*/                  BRA `(.L_x_0) ;
"""


@pytest.mark.parametrize("damage", [slice(0), slice(-9), slice(1, None), None])
def test_the_mix_counts_whole_instructions_and_is_kept_on_disk(cache, monkeypatch, damage):
    """A damaged report is made again."""
    asked = []
    for name, what in {
        "_tool": lambda name, *_: asked.append(name) or LISTING,
        "_instructions": lambda cubin: bytes(0x20000),
        "_info": lambda cubin: {jit._REGISTER_COUNT: 0, jit._FRAME: 4},
        "_sections": lambda cubin: {".nv.shared.kernel": (0, 1024)},
    }.items():
        monkeypatch.setattr(jit, name, what)
    cubin = jit.Cubin(Path("kernel.cu"), "kernel", "sm_90a", "kernel", bytes([10, *[0] * 7]))
    ops = ("LDC", "LDG.E.128.CONSTANT", "UIADD3", "FFMA", "FFMA.FTZ", "BRA")
    assert jit.instruction_mix(cubin) == dict.fromkeys(ops, 1) and asked == ["nvdisasm"]
    assert jit.resources(cubin) == jit.Resources(10, 1024, 0, 0, 0)
    (report,) = cache.iterdir()
    whole = report.read_bytes()
    report.write_bytes(whole[damage] if damage else whole)
    assert jit.instruction_mix(cubin) == dict.fromkeys(ops, 1) and report.read_bytes() == whole
    assert len(asked) == (2 if damage else 1)


# ------------------------------------------------------------------------------------ targets


@pytest.mark.parametrize(
    ("capability", "known", "arch"),
    [
        *(((major, minor), None, f"sm_{major}{minor}") for major, minor in ((8, 0), (8, 6), (8, 9), (10, 0), (12, 0))),
        ((9, 0), None, "sm_90a"),
        ((8, 7), [80, 86, 87, 89], "sm_87"),
        ((8, 8), [80, 86, 89], "sm_86"),
        ((10, 3), [90, 100], "sm_100"),
        ((12, 9), [100, 120, 121], "sm_121"),
    ],
)
def test_the_target_of_a_gpu_is_its_own_or_the_nearest_of_its_family(capability, known, arch, monkeypatch):
    if known:
        monkeypatch.setattr(jit, "nvrtc", SimpleNamespace(nvrtcGetSupportedArchs=lambda: (0, known)))
    monkeypatch.setattr(jit, "_target", jit._target.__wrapped__)  # past its cache
    assert jit.arch_of(SimpleNamespace(compute_capability=capability)) == arch
    assert known or arch in jit.FAMILIES


@pytest.mark.parametrize(
    ("capability", "words"),
    [
        ((7, 5), ["7.5", "8.0 or later"]),
        ((5, 2), ["5.2", "8.0 or later"]),
        ((99, 1), ["99.1", "newer nvidia-cuda-nvrtc"]),
    ],
)
def test_a_gpu_without_kernels_is_one_sentence(capability, words):
    says(words, lambda: jit.arch_of(SimpleNamespace(compute_capability=capability)))


def test_a_portable_gpu_is_hopper_without_its_own_instructions():
    less, most = gpu.Portable(racing.H200, shared_bytes=101_376), racing.H200.properties
    assert jit.arch_of(gpu.Portable(racing.H200)) == jit.arch_of(less) == "sm_90"
    assert jit.arch_of(gpu.Portable(racing.A100)) == "sm_80" and set(jit.TARGETS) < set(jit.FAMILIES)
    assert less.name != racing.H200.name and less.compute_capability == (9, 0)
    assert less.properties.max_shared_memory_per_block_optin == 101_376 < most.max_shared_memory_per_block_optin
    assert less.properties.multiprocessor_count == most.multiprocessor_count


def test_shared_memory_that_is_not_static_is_asked_for(monkeypatch, source):
    from cuda.bindings import driver

    found, kernel = [], SimpleNamespace(handle=7)
    most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    code = SimpleNamespace(from_cubin=lambda _: SimpleNamespace(get_kernel=lambda symbol: kernel))
    monkeypatch.setattr("cuda.core.ObjectCode", code)
    monkeypatch.setattr("cuda.core.Device", lambda: SimpleNamespace(device_id=3))

    def put(what, size, handle, device):
        found.append((what, size, device))
        return (driver.CUresult.CUDA_ERROR_INVALID_VALUE if size > 200_000 else driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuKernelSetAttribute", put)
    cubin = scale(source, "staged")
    assert jit.load(cubin) is kernel and not found
    assert jit.load(cubin, 48 * 1024) is kernel and found == [(most, 48 * 1024, 3)]
    words = ["staged asks for 200016 bytes of shared memory a block", "beside 4096 static ones"]
    says(words, lambda: jit.load(cubin, 200_016))


def test_a_loaded_kernel_is_made_anew_when_a_file_was_changed_a_while_ago(tmp_path, monkeypatch):
    source, clock, device = tmp_path / "k.cu", [0.0], SimpleNamespace(device_id=0, compute_capability=(9, 0))
    source.write_text("")
    for name, what in {
        "_loaded": {},
        "time": SimpleNamespace(monotonic=lambda: clock[0]),
        "compile_cubin": lambda *_: None,
        "load": lambda *_: object(),
    }.items():
        monkeypatch.setattr(jit, name, what)

    def at(seconds: float):
        clock[0] = seconds
        return jit.loaded(source, "k", device)

    first = at(0)
    assert at(5) is first
    os.utime(source, ns=(1, 1))
    assert at(5 + jit._UNCHANGED_S / 2) is first  # not looked at again so soon
    second = at(9)
    assert second is not first and at(20) is second
