"""On a GPU: both templates get numbers; a wrong kernel gets none, and hears of its first wrong element."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifact import cli, paths, trial
from artifact.measure import check, records
from artifact.trial import court
from kernels import async_sparse, casper_sparse

pytestmark = pytest.mark.gpu

TEMPLATES = Path(trial.__file__).parent
BLOCKS = """\
// entry: adds
// grid: ceil(n / 128), m
// block: 128
// clear: c
// arguments: m, n, k, a.row_ptr, a.col_idx, a.val:uint16, b:uint16, c:uint16
#include "half.cuh"

__global__ void adds(int m, int n, int k, const int* row_ptr, const int* col_idx, const unsigned short* val,
                     const unsigned short* B, unsigned short* C)  // blocks of 32 x 32, B column-major, C row-major
{
    const int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= n) return;
    float sum = 0.f;
    for (int i = row_ptr[row / 32]; i < row_ptr[row / 32 + 1]; ++i)
        for (int j = 0; j < 32 && col_idx[i] * 32 + j < k; ++j)
            sum += unpack<BF16>(val[(i * 32 + row % 32) * 32 + j]).x
                 * unpack<BF16>(B[(size_t)col * k + col_idx[i] * 32 + j]).x;
    unsigned short& c = C[(size_t)row * n + col];
    c = pack<BF16>(sum + unpack<BF16>(c).x, 0.f);
}
"""
SIZES = ("-m", "256", "-n", "64", "-k", "128", "--density", "0.1")


@pytest.fixture
def build(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    return tmp_path / "build" / "trials"


def mine(tmp_path, old: str = "", new: str = "") -> Path:
    text = (TEMPLATES / "template.cu").read_text()
    assert old in text
    (tmp_path / "mine.cu").write_text(text.replace(old, new) if old else text)
    return tmp_path / "mine.cu"


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["cu", "py"])
def test_a_template_is_checked_timed_and_judged(kind, tmp_path, build, capsys):
    what = [str(mine(tmp_path))]
    if kind == "py":
        (tmp_path / "mine.py").write_text((TEMPLATES / "template.py").read_text())
        what = ["--contender", f"{tmp_path}/mine.py:bind"]
    command = ["trial", *what, "--room", "casper_sparse", *SIZES, "--against", "scalar"]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert "mine against the best at each of 1 point" in out and "Over the fastest library" in out
    (folder,) = court.recorded(build).values()
    df = records.read(folder / "trial.csv")
    assert {"mine", "scalar"} < set(df["variant"])
    assert df.loc[df["variant"] == "mine", "rel_err"].item() < 1e-5


def test_a_wrong_kernel_gets_no_number(tmp_path, build, capsys):
    wrong = mine(
        tmp_path,
        "C[(size_t)row * n + col] = sum;",
        "C[(size_t)row * n + col] = row == 7 ? 2 * sum + 1 : sum;",
    )
    assert cli.main(["trial", str(wrong), "--room", "casper_sparse", *SIZES]) == 1
    out, err = capsys.readouterr()
    assert "mine on whole numbers at m=256" in err and "the first one, at row 7, column 0, is" in err
    assert "against the best" not in out and not court.recorded(build)


def test_a_kernel_that_reads_where_nothing_is_fails_with_a_sentence(tmp_path):
    """In a process of its own: what it leaves of the GPU's context is of no use to anybody."""
    broken = mine(tmp_path, "float sum = 0.f;", "float sum = ((const float*)16)[col];")
    command = [
        sys.executable,
        "-m",
        "artifact",
        "trial",
        str(broken),
        "--room",
        "casper_sparse",
        *SIZES,
    ]
    done = subprocess.run(
        command,
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"SPARSITY_BUILD": str(tmp_path / "build")},
    )
    assert (
        done.returncode == 1
        and "artifact: mine on whole numbers at m=256" in done.stderr
        and "failed to run" in done.stderr
    )
    assert "against the best" not in done.stdout


def test_a_kernel_that_adds_to_c_is_wrong_unless_it_asks_for_zeros(device, tmp_path):
    adds = ("C[(size_t)row * n + col] = sum;", "C[(size_t)row * n + col] += sum;")
    problem = casper_sparse.problem(m=64, n=32, k=64, density=0.2)
    with pytest.raises(check.WrongResult, match="unwritten or NaN"):
        court.check_first(court.load(str(mine(tmp_path, *adds))), problem, device)
    path = mine(tmp_path, *adds)
    path.write_text(path.read_text().replace("// require:", "// clear:     c\n// require:"))
    court.check_first(court.load(str(path)), problem, device)


def test_zeros_reach_a_c_of_16_bits_as_well(device, tmp_path):
    """C = A · B in blocks of bfloat16, added up by one thread an element, on C as it was before."""
    (tmp_path / "adds.cu").write_text(BLOCKS)
    problem = async_sparse.problem(m=130, n=33, k=70, density=0.5, block=32)
    court.check_first(court.load(str(tmp_path / "adds.cu")), problem, device)
    (tmp_path / "adds.cu").write_text(BLOCKS.replace("// clear: c\n", ""))
    with pytest.raises(check.WrongResult, match="unwritten or NaN"):
        court.check_first(court.load(str(tmp_path / "adds.cu")), problem, device)


def test_dynamic_shared_memory_and_types_reach_the_kernel(device, tmp_path):
    path = mine(tmp_path, "// block:     128", "// block:     128\n// shared:    4 * 128")
    text = path.read_text().replace("arguments: m, n,", "arguments: m:int64, n,")
    text = text.replace("int m,   ", "long long m,   ")
    text = text.replace(
        "float sum = 0.f;",
        "extern __shared__ float held[]; held[threadIdx.x] = 0.f; float sum = held[threadIdx.x];",
    )
    path.write_text(text)
    problem = casper_sparse.problem(m=64, n=32, k=64, density=0.2)
    court.check_first(court.load(str(path)), problem, device)
