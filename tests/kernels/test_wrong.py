"""Kernels that are wrong on purpose, files in wrong/ and sources with one text changed: `artifact.measure.verification`
must catch every one of them, in its second launch at the latest. And instantiations that the compiler must refuse."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import compiled
import numpy as np
import pytest
from matrices import pattern
from products import SEED

from artifact.measure import verification
from kernels import async_sparse, casper_sparse, jit, nm_cuda_core
from kernels.async_sparse.family import Shape, Unit, filled
from kernels.async_sparse.windows import WcsrTile, Windows
from kernels.contract import Operands, Problem
from kernels.formats import csr

FILES = sorted(Path(__file__).parent.glob("*/wrong/*.cu"))
SYSTEMS = {"async_sparse": async_sparse, "casper_sparse": casper_sparse, "nm_cuda_core": nm_cuda_core}


@dataclass(frozen=True)
class Case:
    """A bug, in a kernel's source or in a file of wrong/ that takes its arguments."""

    variant: str
    problem: Callable[[], Problem]
    said: str = "is wrong: relative error|unwritten or NaN"
    room: str = "async_sparse"
    edit: tuple[str, ...] = ()  #: file, text that is there once, what stands there instead; (): a file of wrong/
    easy: Callable[[], Problem] | None = None  #: on which it is right all the same
    config: Any = None  #: of the variant, where it is not the usual one

    @property
    def kernel(self):
        return SYSTEMS[self.room].VARIANTS[self.variant]

    def prepare(self, problem: Problem, device):
        given = self.variant, problem, device
        return self.config.prepare(*given) if self.config else SYSTEMS[self.room].prepare(*given)

    def instead(self, name: str, folder: Path) -> Callable[[Path, str], tuple[Path, str]]:
        """What is compiled for (source, entry), wrongly."""
        here = self.kernel.source.parent
        if not self.edit:
            return lambda source, entry: (Path(__file__).parent / self.room / "wrong" / f"{name}.cu", name)
        compiled.changed(here, folder, *self.edit)
        return lambda source, entry: (folder / source.name if source.parent == here else source, entry)


def rows(n: int) -> Problem:
    """Rows of 2 to 60 non-zeros, neighbours with the same column, and a row 0 of B that none uses."""
    m, k, rng = 403, 200, np.random.default_rng(8)
    row_ptr = np.append(0, np.cumsum(rng.integers(2, 61, m))).astype(np.int32)
    columns = rng.integers(1, k, row_ptr[-1]).astype(np.int32)
    columns[row_ptr[:-1] + 1] = columns[row_ptr[:-1]]
    a = csr.validate(csr.Csr(m, k, row_ptr, columns, rng.uniform(0.1, 1, columns.size).astype(np.float32)))
    p = casper_sparse.problem_from_csr(a, n)
    return replace(p, make_host=partial(infinite, p.make_host), make_device=partial(infinite, p.make_device))


def infinite(make: Callable[[], Operands]) -> Operands:
    made = make()
    made.b[0] = math.inf
    return made


def windows(dtype: str) -> Problem:
    return async_sparse.problem_from_csr(pattern("a heavy row"), 260, SEED, dtype=dtype, format="csr", reorder="")


#: 2:4 with 66 compressed rows: two whole steps of 32, one of 64, and two rows more; all positive.
pairs = partial(nm_cuda_core.problem, 96, 160, k=132, seed=8, vector=32)
#: 40 blocks in a row, panels in groups.
blocks = partial(async_sparse.problem, 1500, 5 * 1024, 64 * 50, 0.8, SEED)
_RING = filled(Unit(group_kib=8192), Shape("bfloat16", 64, 64, "F", "C"), 232_448)
_ROWS = partial(Case, "any_n", room="casper_sparse")
_PAIRS = partial(Case, "baseline", pairs, room="nm_cuda_core")
_WCSR = partial(Case, "wcsr", partial(windows, "tf32"), config=WcsrTile(chunk=128))
_LETTER = partial(Case, problem=pairs, room="nm_cuda_core")
_WRONG = "is wrong: relative error"
CASES: dict[str, Case] = {
    "adds_to_the_output": _ROWS(partial(rows, 64), "leaves 25792 of 25792 elements unwritten or NaN"),
    "drops_ragged_columns": _ROWS(
        partial(rows, 68), "leaves 1612 of 27404 elements .* row 0, column 64", easy=partial(rows, 64)
    ),
    "drops_repeated_columns": _ROWS(partial(rows, 64), _WRONG),
    "leaves_last_row": _ROWS(partial(rows, 64), "leaves 64 of 25792 elements .* row 402, column 0"),
    "loses_last_nonzero": _ROWS(partial(rows, 64), _WRONG),
    "multiplies_padding": _ROWS(partial(rows, 64), "elements unwritten or NaN"),
    "rounds_the_stride": _ROWS(partial(rows, 65), _WRONG, easy=partial(rows, 64)),
    "rounds_to_tf32": _ROWS(partial(rows, 64), f"{_WRONG} [0-9.]+e-0[45]"),
    "adds_without_clearing": _PAIRS("leaves 15360 of 15360 elements unwritten or NaN"),
    "drops_ragged_step": _PAIRS(_WRONG, easy=partial(pairs, k=128)),
    "gathers_first_column": _PAIRS(_WRONG, easy=partial(pairs, vector=160)),
    "gathers_next_column": _PAIRS(_WRONG, easy=partial(pairs, vector=160)),
    "leaves_last_tile": _PAIRS("leaves 1024 of 15360 elements .* row 64, column 128"),
    "loses_last_row": _PAIRS(_WRONG, easy=partial(pairs, k=129)),  # the last row is a surplus one, of zeros
    "rounds_a_to_tf32": _PAIRS(f"{_WRONG} [0-9.]+e-05"),
    "split_k_loses_odd_step": Case("double_buffer", pairs, _WRONG, "nm_cuda_core", easy=partial(pairs, k=128)),
    "split_k_overwrites": Case("double_buffer", pairs, _WRONG, "nm_cuda_core", easy=partial(pairs, k=64)),  # one share
    "no_end": _LETTER(
        "verbatim", edit=("nmsparse.cuh", "if (!END || i + row < left) store4(", "if (i + row + 1 < left) store4(")
    ),
    "other_rows_of_a": _LETTER("verbatim", edit=("nmsparse.cuh", "load4(A + m0 + k * m", "load4(A + m0 + (k ^ 1) * m")),
    "columns_swapped": _LETTER(
        "verbatim_prefetch", edit=("nmsparse.cuh", "Bs[row * BN + t_n + j]", "Bs[row * BN + t_n + 3 - j]")
    ),
    "rows_of_64": _LETTER("verbatim", edit=("verbatim.cu", "min(BK, w - w0)", "BK - 1")),
    "no_swap": _LETTER("verbatim_double_buffer", edit=("verbatim_double_buffer.cu", "read = write;", "")),
    "share_too_short": _LETTER(
        "verbatim_double_buffer",
        edit=("verbatim_double_buffer.cu", "(steps + split - 1) / split;", "max(1, steps / split);"),
    ),
    "overwrites": _LETTER(
        "verbatim_double_buffer", edit=("verbatim_double_buffer.cu", "if (split == 1) {", "if (split != 1) {")
    ),
    "counters_not_cleared": Case(
        "unit_ring", blocks, edit=("units.cuh", "counter[0] = counter[1] = 0;", ";"), config=_RING
    ),
    "panels_of_the_first_group": Case(
        "unit_ring", blocks, edit=("loader.cuh", "left + rest % wide", "rest % wide"), config=_RING
    ),
    "columns_after_32_blocks": Case(
        "unit_ring", blocks, edit=("units.cuh", "columns = col_idx[block + lane];", "columns += 0;"), config=_RING
    ),
    "store_not_swizzled": Case("opt5", blocks, edit=("output.cuh", "(unit ^ line / (8 / UNITS) % UNITS)", "unit")),
    "load_not_swizzled": Case("opt1", blocks, edit=("opt1.cu", "16 * (unit ^ line % 8)", "16 * unit")),
    "counter_not_cleared": Case("opt6_atomic", blocks, edit=("opt6_atomic.cu", "counters[0] = counters[1] = 0;", ";")),
    "second_half_of_the_first": Case(
        "opt4", blocks, edit=("specialised.cuh", "(2 * panel + 1) * N, full", "2 * panel * N, full")
    ),
    "cut_windows_stored": _WCSR(edit=("wcsr.cu", "if (it.w < 0) store_direct", "if (true) store_direct")),
    "first_columns_again": _WCSR(edit=("wcsr.cu", "column + piece % (N / 32) * 32 + across;", "column + across;")),
    "rest_left_out": Case(
        "windows_exact",
        partial(windows, "float32"),
        edit=("windows_tf32.cuh", "- __uint_as_float(x)) + 0x1000", "* 0.f) + 0x1000"),
        config=Windows(exact=True, chunk=256),
    ),
}


def test_files_say_that_they_are_wrong_and_all_have_a_case():
    assert {file.stem for file in FILES} == {name for name, case in CASES.items() if not case.edit}
    assert all(file.read_text().startswith("// Wrong on purpose: ") for file in FILES)


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_kernel_compiles(tmp_path, name):
    """Without a GPU as well: it must be the check that refuses it, not the compiler."""
    job = CASES[name].kernel.source, CASES[name].kernel.entries[0]
    right, wrong = (jit.compile_cubin(*x, "sm_90a").code for x in (job, CASES[name].instead(name, tmp_path)(*job)))
    assert right != wrong


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_kernel_is_caught(device, monkeypatch, tmp_path, name):
    case, loaded = CASES[name], jit.loaded
    if jit.arch_of(device) not in case.kernel.targets:
        pytest.skip("this GPU has no wgmma")

    def checked(problem: Problem) -> None:
        bound, right = case.prepare(problem, device), verification.oracle(problem)
        for _ in range(2):
            verification.check(bound, problem, right, device.create_stream())

    checked(case.problem())
    instead = case.instead(name, tmp_path)
    monkeypatch.setattr(jit, "loaded", lambda source, entry, *rest: loaded(*instead(source, entry), *rest))
    with pytest.raises(verification.WrongResult, match=case.said):
        checked(case.problem())
    if case.easy:
        checked(case.easy())


@pytest.mark.parametrize(
    ("room", "entry", "reason"),
    [
        ("async_sparse", "unit_ring<TF32, MN_MAJOR, false, false, 64, 3, 5, 2, 1>", "TF32 wants a column-major B"),
        ("async_sparse", "unit_ring<BF16, MN_MAJOR, false, false, 96, 3, 5, 2, 1>", "in chunks of 64 columns"),
        ("async_sparse", "unit_ring<BF16, K_MAJOR, false, false, 64, 3, 2, 2, 1>", "at least 2 and 3 units"),
        ("async_sparse", "unit_ring<BF16, K_MAJOR, false, false, 64, 3, 5, 2, 3>", "1, 2 or 4 pieces"),
        ("async_sparse", "opt5<BF16, false, 12, 3>", "8 to 256 columns"),
        ("async_sparse", "windows<128, 2, 3, false>", "windows have 8, 16, 32 or 64 rows"),
        ("async_sparse", "windows<16, 3, 3, false>", "one or two warpgroups multiply"),
        ("async_sparse", "wcsr<TF32, 96>", "a tile has 64, 128, 192 or 256 columns"),
        ("async_sparse", "blocks_mma<BF16, 128, 64, false, false, 128, 2>", "C leaves through the ring"),
        ("casper_sparse", "any_n<8, 3>", "a load is 4, 8 or 16 bytes wide"),
        ("casper_sparse", "column_tiles<8, 4, 1, 3>", "cut into whole groups of UNROLL"),
        ("casper_sparse", "rows_per_warp<512, 8, 4, 3>", "cut into whole groups of UNROLL"),
        ("casper_sparse", "shared_tiles<1024, 3, 2>", "groups of eight, pairs of two"),
        ("nm_cuda_core", "baseline<16, 32, 64>", "choose BM and BN as multiples of 32"),
        ("nm_cuda_core", "pipelined<32, 32, 63>", "choose BK as a multiple of it"),
        ("nm_cuda_core", "double_buffer<32, 32, 12, 2, false>", "choose BK as a multiple of it"),
        ("nm_cuda_core", "element_wise<32, 32, 64, 1, 3>", "choose BK as a multiple of GROUP"),
        ("nm_cuda_core", "element_wise<32, 32, 64, 5, 4>", "KEEP <= GROUP"),
        ("nm_cuda_core", "verbatim_double_buffer<32, 32, 4>", "choose BK as a multiple of it"),
        (
            "tensor_core_24",
            "mma_sp<BF16, 128, 128, 96, 64, 64, 3, CG, EVEN_THREADS, 2, 4, 1, 16, false, PLAIN>",
            "choose BK as a multiple of 64",
        ),
        (
            "tensor_core_24",
            "mma_sp<BF16, 96, 128, 64, 64, 64, 3, CG, EVEN_THREADS, 2, 4, 1, 16, false, PLAIN>",
            "choose WM and WN as divisors",
        ),
        (
            "tensor_core_24",
            "mma_sp<BF16, 128, 128, 64, 128, 64, 3, CG, EVEN_THREADS, 2, 4, 1, 16, false, PLAIN>",
            "32 or 64 by 32 or 64",
        ),
        (
            "tensor_core_24",
            "mma_sp<BF16, 128, 128, 64, 64, 64, 1, CG, EVEN_THREADS, 2, 4, 1, 16, false, PLAIN>",
            "one stage is filled while another",
        ),
        (
            "tensor_core_24",
            "mma_sp<BF16, 64, 64, 64, 32, 32, 3, CG, EVEN_THREADS, 2, 2, 1, 16, false, PLAIN>",
            "ldmatrix.x2 serves 64 rows",
        ),
        (
            "tensor_core_24",
            "mma_sp<BF16, 128, 128, 64, 64, 64, 3, CG, EVEN_THREADS, 3, 4, 1, 16, false, PLAIN>",
            "one pair of lanes holds the metadata",
        ),
        ("tensor_core_24", "wgmma_persistent<BF16, 2, 1, 96, 4, 2, false>", "up to 256 columns"),
        ("tensor_core_24", "wgmma_split_k<BF16, 2, 1, 256, 2, 2, false>", "more stages"),
        ("tensor_core_24", "wgmma_rounds<BF16, 2, 1, 128, 5, 1, false>", "two sets of words"),
        ("tensor_core_24", "wgmma_refilling<BF16, 3, 1, 256, 2, 1>", "another is there"),
        ("tensor_core_24", "wgmma_three<BF16, 2, 1, 256, 4, 1, false>", "160 registers for each of three"),
        ("tensor_core_24", "wgmma_last_wave<BF16, 1, 1, 64, 8, 1, false>", "half of the sums"),
        ("tensor_core_24", "wgmma_cp_async<BF16, 128, 4, false>", "a row of B is a swizzled row"),
    ],
)
def test_an_impossible_instantiation_says_why(room, entry, reason):
    with pytest.raises(jit.CompileError, match=f"(?s){entry.split('<')[0]}.*{reason}"):
        jit.compile_cubin(jit.ROOT / room / f"{entry.split('<')[0]}.cu", entry, "sm_90a")
