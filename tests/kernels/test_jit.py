"""The compiler, its cache and its reports: all of it without a GPU or a driver."""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import racing
from refused import says

from kernels import gpu, jit

SOURCE = """
#include "factor.cuh"
template <int N> __global__ void scale(const float4* __restrict__ in, float4* out) {
  float4 v = in[threadIdx.x];
  v.x = fmaf(v.x, FACTOR, N);
  out[threadIdx.x] = v;
}
"""


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SPARSITY_CACHE", str(folder))
    return folder


@pytest.fixture
def source(tmp_path) -> Path:
    """scale.cu, which includes factor.cuh, which includes value.cuh."""
    (tmp_path / "value.cuh").write_text("#define VALUE 2.f\n")
    (tmp_path / "factor.cuh").write_text('#pragma once\n#include "value.cuh"\n#define FACTOR VALUE\n')
    (tmp_path / "scale.cu").write_text(SOURCE)
    return tmp_path / "scale.cu"


@pytest.fixture
def compiled(monkeypatch) -> list[tuple]:
    """Every call of the compiler itself, as (file name, entry, arch)."""
    calls, nvrtc = [], jit._nvrtc

    def count(source, entry, arch, folders):
        calls.append((source.name, entry, arch))
        return nvrtc(source, entry, arch, folders)

    monkeypatch.setattr(jit, "_nvrtc", count)
    return calls


def write(folder: Path, text: str) -> Path:
    path = folder / "kernel.cu"
    path.write_text(text)
    return path


# ------------------------------------------------------------------------------------ the cache


def test_the_cache_lies_where_the_environment_says_and_is_read(cache, source, compiled, monkeypatch, tmp_path):
    first = jit.compile_cubin(source, "scale<1>", "sm_80")
    assert (first.source, first.entry, first.arch) == (source, "scale<1>", "sm_80")
    assert jit.compile_cubin(source, "scale<1>", "sm_80") == first and len(compiled) == 1
    made = sorted(path.suffix for path in cache.iterdir())
    assert made == [".cubin", ".json"], "and nothing half-written beside them"
    monkeypatch.setenv("SPARSITY_CACHE", str(tmp_path / "another"))
    jit.compile_cubin(source, "scale<1>", "sm_80")
    assert len(list((tmp_path / "another").iterdir())) == 2
    for nothing in ("", None):
        monkeypatch.setenv("SPARSITY_CACHE", "") if nothing == "" else monkeypatch.delenv("SPARSITY_CACHE")
        assert jit.cache_folder() == jit.ROOT.parent / "build" / "cubin"


def test_entry_and_target_have_cubins_of_their_own(cache, source, compiled):
    made = [
        jit.compile_cubin(source, entry, arch) for entry in ("scale<1>", "scale<2>") for arch in ("sm_80", "sm_90a")
    ]
    assert len(compiled) == len({cubin.code for cubin in made}) == 4


@pytest.mark.parametrize("header", ["value.cuh", "factor.cuh"])
def test_a_changed_header_compiles_again(cache, source, compiled, header):
    before = jit.compile_cubin(source, "scale<1>", "sm_80")
    path = source.parent / header
    path.write_text(path.read_text().replace("VALUE\n", "VALUE + 1\n").replace("2.f", "3.f"))
    after = jit.compile_cubin(source, "scale<1>", "sm_80")
    assert len(compiled) == 2 and before.code != after.code


def test_folders_of_headers_that_are_not_ours_are_part_of_the_key(cache, compiled, tmp_path):
    path = tmp_path / "sums.cu"
    path.write_text("#include <others.h>\n__global__ void sums(int* x) { *x = NUMBER; }\n")
    for number in (1, 2, 2):
        folder = tmp_path / f"toolkit{number}"
        folder.mkdir(exist_ok=True)
        (folder / "others.h").write_text(f"#define NUMBER {number}\n")
        jit.compile_cubin(path, "sums", "sm_90a", include=[folder])
    assert len(compiled) == 2
    with pytest.raises(jit.CompileError, match=r"others\.h"):
        jit.compile_cubin(path, "sums", "sm_90a")


def test_other_options_or_another_compiler_compile_again(cache, source, compiled, monkeypatch):
    jit.compile_cubin(source, "scale<1>", "sm_80")
    monkeypatch.setattr(jit, "OPTIONS", jit.OPTIONS | {"lineinfo": False})
    jit.compile_cubin(source, "scale<1>", "sm_80")
    monkeypatch.setattr(jit, "nvrtc_version", lambda: "99.9")
    jit.compile_cubin(source, "scale<1>", "sm_80")
    assert len(compiled) == 3


def test_a_hang_trap_is_asked_for_by_the_environment(cache, source, compiled, monkeypatch):
    """What is compiled with it is kept beside what is compiled without."""
    for value, traps in ((None, False), ("1", True), ("0", False), ("", False)):
        if value is None:
            monkeypatch.delenv(jit.HANG_TRAP, raising=False)
        else:
            monkeypatch.setenv(jit.HANG_TRAP, value)
        assert jit.hang_trap() == traps
        jit.compile_cubin(source, "scale<1>", "sm_80")
    assert len(compiled) == 2


def refuse_json(monkeypatch):
    """From now on nothing of the cache that ends in .json is written; returns how it was written."""
    replace = jit._replace

    def full_disk(path, data):
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, data)

    monkeypatch.setattr(jit, "_replace", full_disk)
    return replace


@pytest.fixture
def said(capsys):
    """said(): the lines on stderr since the last call; what was said once may be said again."""
    jit._say_once.cache_clear()
    yield lambda: capsys.readouterr().err.splitlines()
    jit._say_once.cache_clear()


def test_a_full_disk_costs_the_cache_and_not_the_kernel(cache, source, compiled, monkeypatch, said):
    replace = refuse_json(monkeypatch)
    first = jit.compile_cubin(source, "scale<1>", "sm_80")
    (line,) = said()
    assert str(cache) in line and "No space left on device" in line and "SPARSITY_CACHE" in line
    assert jit.compile_cubin(source, "scale<1>", "sm_80") == first and len(compiled) == 1
    assert jit.resources(first).registers > 0 and jit.instruction_mix(first)["FFMA"] == 1
    assert not said(), "once is enough"
    # What was half written does not count, and is replaced as soon as there is room.
    assert not jit._cached(*kept(cache), "scale<1>")
    monkeypatch.setattr(jit, "_replace", replace)
    assert jit.compile_cubin(source, "scale<1>", "sm_80") == first and len(compiled) == 1
    assert jit._cached(*kept(cache), "scale<1>") == (first.code, first.symbol) and not jit._UNKEPT


def kept(cache: Path) -> tuple[Path, Path]:
    (cubin,) = cache.glob("*.cubin")
    return cubin, cubin.with_suffix(".json")


def test_threads_compile_side_by_side_and_none_what_another_does(cache, source, monkeypatch):
    together, calls = threading.Barrier(2, timeout=60), []

    def nvrtc(source, entry, arch, folders):
        calls.append(entry)
        together.wait()  # until the other kernel is compiled, too
        return entry.encode(), entry

    monkeypatch.setattr(jit, "_nvrtc", nvrtc)
    entries = ["scale<1>", "scale<2>"] * 4
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda entry: jit.compile_cubin(source, entry, "sm_80"), entries))
    assert sorted(calls) == ["scale<1>", "scale<2>"]
    assert [cubin.code.decode() for cubin in made] == entries


@pytest.mark.parametrize(("given", "folder"), [("/x", "/x"), ("x", "~/.cache"), ("", "~/.cache"), (None, "~/.cache")])
def test_an_installed_package_writes_to_the_users_own_caches(monkeypatch, tmp_path, given, folder):
    """And not beside itself; the specification of $XDG_CACHE_HOME takes absolute paths only."""
    monkeypatch.setattr(jit, "ROOT", tmp_path / jit.INSTALLED)
    monkeypatch.delenv("SPARSITY_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", given or "")
    if given is None:
        monkeypatch.delenv("XDG_CACHE_HOME")
    caches = Path(folder.replace("~", str(tmp_path / "home")))
    assert jit.cache_folder() == caches / "sparsity_on_trial" / "cubin"
    monkeypatch.setenv("SPARSITY_CACHE", str(tmp_path / "mine"))
    assert jit.cache_folder() == tmp_path / "mine"


@pytest.mark.parametrize("damage", ["cut", "a bit", "empty", "meta cut", "meta {}", "meta []"])
def test_a_damaged_cubin_is_compiled_again(cache, source, compiled, damage):
    before = jit.compile_cubin(source, "scale<1>", "sm_80")
    (meta,), (cubin,) = cache.glob("*.json"), cache.glob("*.cubin")
    code = before.code
    if damage.startswith("meta"):
        meta.write_text({"meta cut": meta.read_text()[:-9]}.get(damage, damage[5:]))
    else:
        flipped = code[:100] + bytes([code[100] ^ 1]) + code[101:]
        cubin.write_bytes({"cut": code[: len(code) // 2], "a bit": flipped, "empty": b""}[damage])
    assert jit.compile_cubin(source, "scale<1>", "sm_80") == before and len(compiled) == 2
    assert cubin.read_bytes() == code, "and put right"
    assert jit.compile_cubin(source, "scale<1>", "sm_80") == before and len(compiled) == 2


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "",
        "[1]",
        '{"resources": {}, "mix": {}}',
        '{"mix": {"EXIT": 1}',
        "[" * 10**5,
        "types",
        "mix",
    ],
)
def test_a_damaged_report_is_made_again(cache, source, text):
    cubin = jit.compile_cubin(source, "scale<1>", "sm_80")
    used = jit.resources(cubin)
    (report,) = cache.glob("*.report.json")
    whole = report.read_text()
    bad = {
        "types": whole.replace(": 0", ': "0"', 1),
        "mix": json.dumps(json.loads(whole) | {"mix": [1]}),
    }
    report.write_text(bad.get(text, text))
    assert jit.resources(cubin) == used and report.read_text() == whole


def test_a_cubin_of_another_entry_is_not_taken(cache, source, compiled):
    """Both files of one kernel, whole, under the name of another."""
    first = jit.compile_cubin(source, "scale<1>", "sm_80")
    (meta,), (cubin,) = cache.glob("*.json"), cache.glob("*.cubin")
    other = jit.compile_cubin(source, "scale<2>", "sm_80")
    (its_meta,), (its_cubin,) = {*cache.glob("*.json")} - {meta}, {*cache.glob("*.cubin")} - {cubin}
    its_meta.write_bytes(meta.read_bytes())
    its_cubin.write_bytes(cubin.read_bytes())
    assert jit.compile_cubin(source, "scale<2>", "sm_80") == other != first
    assert len(compiled) == 3


@pytest.mark.parametrize(("umask", "modes"), [(0, (0o755, 0o644)), (0o077, (0o700, 0o600))])
def test_nobody_else_may_write_to_the_cache_and_the_umask_counts(cache, source, umask, modes):
    before = os.umask(umask)
    try:
        jit.compile_cubin(source, "scale<1>", "sm_80")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in cache.iterdir()} == {modes[1]}
    assert cache.stat().st_mode & 0o777 == modes[0]


# ------------------------------------------------------------------------------------ refusals


def test_a_broken_source_shows_the_compilers_log(cache, tmp_path):
    path = write(tmp_path, "__global__ void broken(float* x) { x[0] = undeclared; }\n")
    with pytest.raises(jit.CompileError) as caught:
        jit.compile_cubin(path, "broken", "sm_90a")
    message = str(caught.value)
    assert message.startswith("kernel.cu: broken does not compile for sm_90a")
    assert 'identifier "undeclared" is undefined' in message and "kernel.cu(1)" in message
    assert not cache.exists() or not list(cache.iterdir())


def test_a_missing_source_is_named(cache, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"kernel source missing\.cu does not exist"):
        jit.compile_cubin(tmp_path / "missing.cu", "missing", "sm_80")


# ------------------------------------------------------------------------------------- reports


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_the_reports_of_a_kernel(cache, source, arch):
    cubin = jit.compile_cubin(source, "scale<1>", arch)
    used, mix = jit.resources(cubin), jit.instruction_mix(cubin)
    assert 4 <= used.registers <= 32 and used.stack_bytes == used.local_bytes == 0
    assert used.shared_bytes == 0 and not used.spills
    loads = {op: n for op, n in mix.items() if op.startswith("LDG")}
    assert list(loads.values()) == [1] and ".128" in next(iter(loads))
    assert mix["STG.E.128"] == 1 and mix["FFMA"] == 1 and mix["EXIT"] >= 1
    assert "FFMA" in jit.disassemble(cubin)


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_reports_are_of_the_entry_and_not_of_its_neighbours(cache, tmp_path, arch):
    """Every kernel of a file that is no template is in every cubin of that file."""
    path = write(
        tmp_path,
        "__global__ void before(float2* out) { out[threadIdx.x] = float2{}; }\n"
        "template <int N> __global__ void middle(const float4* in, float4* out) {\n"
        "  __shared__ float4 x[N];\n  x[threadIdx.x] = in[threadIdx.x];\n  __syncthreads();\n"
        "  out[threadIdx.x] = x[N - 1 - threadIdx.x];\n}\n"
        "__global__ void later(const int* at, float* out) {\n  float x[64];\n"
        "  for (int i = 0; i < 64; ++i) x[i] = out[i];\n"
        "  for (int i = 0; i < 999; ++i) x[at[i] & 63] += x[at[i + 1] & 63];\n"
        "  for (int i = 0; i < 64; ++i) out[i] = x[i];\n}\n",
    )
    kinds = {"before": ("STG.E.64", 0, False), "middle<256>": ("STG.E.128", 4096, False), "later": ("STG.E", 0, True)}
    cubins = [jit.compile_cubin(path, entry, arch) for entry in kinds]
    for (entry, (stores, shared, spills)), (used, mix) in zip(kinds.items(), jit.reports(cubins), strict=True):
        assert used.spills == spills, entry
        assert used.shared_bytes in (shared, shared + 1024), entry
        assert {op for op in mix if op.startswith("STG")} == {stores}, entry


def test_a_cubin_without_its_kernel_is_an_error(cache, source):
    cubin = jit.compile_cubin(source, "scale<1>", "sm_80")
    with pytest.raises(ValueError, match=r"the cubin of scale<1> for sm_80 has no section .*other"):
        jit._instructions(replace(cubin, symbol="other"))


def test_a_header_in_a_folder_that_was_named_is_part_of_what_is_compiled(cache, tmp_path, compiled):
    """Changed, it is compiled anew; and one beside the file comes first, as for the compiler."""
    (folder := tmp_path / "more").mkdir()
    path = write(tmp_path, '#include "far.cuh"\n__global__ void far(int* x) { *x = FAR; }\n')
    for text in ("#define FAR 1\n", "#define FAR 2\n"):
        (folder / "far.cuh").write_text(text)
        for _ in range(2):
            jit.compile_cubin(path, "far", "sm_90a", include=[folder])
    assert len(compiled) == 2
    assert "FAR 2" in jit.with_includes(path, [folder])
    assert "FAR 2" not in jit.with_includes(path)
    (tmp_path / "far.cuh").write_text("#define FAR 3\n")
    assert "FAR 3" in jit.with_includes(path, [folder])


def registers_of(cubin: jit.Cubin) -> int:
    return jit.resources(cubin).registers


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_a_kernel_can_be_launched_with_fewer_registers(cache, source, arch):
    """One word of the file changes, which cuobjdump reads as the driver does; the machine code stays."""
    cubin = jit.compile_cubin(source, "scale<1>", arch)
    had = registers_of(cubin)
    fewer = jit.launched_with(cubin, had - 2)
    assert registers_of(fewer) == had - 2 and fewer.symbol == cubin.symbol
    assert len(fewer.code) == len(cubin.code)
    different = [i for i, (a, b) in enumerate(zip(cubin.code, fewer.code, strict=True)) if a != b]
    assert len(different) == 1
    assert jit._instructions(fewer) == jit._instructions(cubin)
    assert jit.launched_with(cubin, had) == cubin
    with pytest.raises(ValueError, match=rf"scale<1> has {had} registers a thread, .* with {had + 1}: "):
        jit.launched_with(cubin, had + 1)


def test_registers_of_several_kernels_are_not_mixed_up(cache, tmp_path):
    """A kernel that is no template is in every cubin of its file, with a count of its own."""
    path = tmp_path / "two.cu"
    path.write_text("__global__ void first(float* x) { *x = 1; }\n__global__ void second(float* x) { *x = 2; }\n")
    cubin = jit.compile_cubin(path, "second", "sm_90a")
    with pytest.raises(ValueError, match="the cubin of second for sm_90a counts .* of 2 kernels"):
        jit.launched_with(cubin, 4)


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_the_sections_of_a_cubin_are_those_of_cuobjdump(cache, source, arch):
    cubin = jit.compile_cubin(source, "scale<1>", arch)
    text = jit._tool("cuobjdump", cubin.code, cubin, "-elf")
    # Of each, its number, where it begins, its bytes, ..., its name.
    lines = re.findall(r"^ +[0-9a-f]+ +([0-9a-f]+) +([0-9a-f]+) .* (\.\S+)$", text.split("\n.section")[0], re.M)
    said = {name: (int(at, 16), int(length, 16)) for at, length, name in lines}
    assert {".nv.info", f".text.{cubin.symbol}", ".shstrtab"} <= set(said)
    assert jit._sections(cubin) == {"": (0, 0)} | said


@pytest.fixture
def listing(cache, monkeypatch):
    """mix(text): the instruction mix of a kernel whose disassembly is that text."""

    def mix(text: str) -> dict[str, int]:
        said = {
            "nvdisasm": text,
            "cuobjdump": " Function kernel:\n  REG:10 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:552\n",
        }
        monkeypatch.setattr(jit, "_tool", lambda name, *arguments: said[name])
        monkeypatch.setattr(jit, "_instructions", lambda cubin: bytes(0x20000))
        cubin = jit.Cubin(Path("kernel.cu"), "kernel", "sm_90a", "kernel", text.encode())
        return jit.instruction_mix(cubin)

    return mix


def test_the_mix_counts_whole_instructions(listing):
    text = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0008*/              @!PT LDS RZ, [RZ] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0020*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0030*/              @P2  FFMA R0, R1, R2, R3 ;
        /*0040*/                   FFMA.FTZ R0, R1, R2, R3 ;
    .L_x_0:
        /*10050*/                  BRA `(.L_x_0) ;
    """
    assert listing(text) == {
        "LDC": 1,
        "LDG.E.128.CONSTANT": 1,
        "UIADD3": 1,
        "FFMA": 1,
        "FFMA.FTZ": 1,
        "BRA": 1,
    }


def test_reports_are_kept_on_disk(cache, source, monkeypatch):
    cubin = jit.compile_cubin(source, "scale<1>", "sm_80")
    used, mix, sass = jit.resources(cubin), jit.instruction_mix(cubin), jit.disassemble(cubin)
    monkeypatch.setattr(jit, "_tool", lambda *arguments: pytest.fail("asked again"))
    assert jit.resources(cubin) == used and jit.instruction_mix(cubin) == mix
    assert jit.disassemble(cubin) == sass


@pytest.mark.parametrize(
    ("capability", "arch"),
    [
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90a"),
        ((10, 0), "sm_100"),
        ((12, 0), "sm_120"),
    ],
)
def test_the_target_of_a_gpu(capability, arch):
    assert jit.arch_of(SimpleNamespace(compute_capability=capability)) == arch
    assert arch in jit.FAMILIES and set(jit.TARGETS) < set(jit.FAMILIES)


@pytest.mark.parametrize(
    ("capability", "known", "arch"),
    [
        ((8, 7), [80, 86, 87, 89], "sm_87"),
        ((8, 8), [80, 86, 89], "sm_86"),
        ((10, 3), [90, 100], "sm_100"),
        ((12, 9), [100, 120, 121], "sm_121"),
    ],
)
def test_a_gpu_that_the_compiler_does_not_know_takes_the_code_of_its_family(capability, known, arch, monkeypatch):
    monkeypatch.setattr(jit, "_nvrtc_knows", lambda: known)
    monkeypatch.setattr(jit, "_target", jit._target.__wrapped__)  # past its cache
    assert jit.arch_of(SimpleNamespace(compute_capability=capability)) == arch


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


def test_every_family_is_one_that_the_compiler_knows():
    assert {int(re.search(r"\d+", x)[0]) for x in jit.FAMILIES} <= set(jit._nvrtc_knows())


def test_a_portable_gpu_is_hopper_without_its_own_instructions():
    less = gpu.Portable(racing.H200, shared_bytes=101_376)
    assert jit.arch_of(gpu.Portable(racing.H200)) == jit.arch_of(less) == "sm_90"
    assert jit.arch_of(gpu.Portable(racing.A100)) == "sm_80"
    assert less.name != racing.H200.name and less.compute_capability == (9, 0)
    assert less.properties.max_shared_memory_per_block_optin == 101_376
    assert less.properties.multiprocessor_count == racing.H200.properties.multiprocessor_count
    assert racing.H200.properties.max_shared_memory_per_block_optin > 101_376


# ------------------------------------------------------------------------------------ shared memory


@pytest.mark.parametrize(
    ("static", "dynamic", "asked"),
    [
        (0, 48 * 1024, False),
        (0, 48 * 1024 + 16, True),
        (8192, 40 * 1024, False),
        (8192, 321 * 128, True),  # what casper's shared_tiles wants at k = 320: below 48 KiB without its static memory
        (8192, 384 * 128, True),
        (49152, 0, False),
    ],
)
def test_static_memory_counts_where_more_than_48_kib_is_asked_for(monkeypatch, static, dynamic, asked):
    import cuda.core
    from cuda.bindings import driver

    found, kernel = [], SimpleNamespace(handle=7)
    code = SimpleNamespace(get_kernel=lambda symbol: kernel)
    monkeypatch.setattr(cuda.core, "ObjectCode", SimpleNamespace(from_cubin=lambda code_: code))
    monkeypatch.setattr(cuda.core, "Device", lambda: SimpleNamespace(device_id=3))
    names, success = driver.CUfunction_attribute, driver.CUresult.CUDA_SUCCESS

    def get(attribute, handle, device):
        assert attribute == names.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES and device == 3
        return success, static

    def put(attribute, value, handle, device):
        assert attribute == names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES and device == 3
        found.append(value)
        return (driver.CUresult.CUDA_ERROR_INVALID_VALUE if value > 200_000 else success,)

    monkeypatch.setattr(driver, "cuKernelGetAttribute", get)
    monkeypatch.setattr(driver, "cuKernelSetAttribute", put)
    cubin = jit.Cubin(Path("kernel.cu"), "kernel<1>", "sm_120", "kernel", b"")
    assert jit.load(cubin, dynamic) is kernel
    assert found == [dynamic] * asked
    with pytest.raises(ValueError) as caught:
        jit.load(cubin, 200_016)
    message = str(caught.value)
    assert "kernel<1> asks for 200016 bytes of shared memory a block" in message
    assert f"beside {static} static ones" in message and "\n" not in message and ". " not in message


# ------------------------------------------------------------------------------------- on a GPU
