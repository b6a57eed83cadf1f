"""On a GPU: both templates get numbers; a wrong kernel gets none, and hears of its first wrong element."""

from pathlib import Path

import pytest

from artifact import cli, paths, user_kernel
from artifact.measure import records, verification
from artifact.user_kernel import benchmark
from kernels import casper_sparse

pytestmark = pytest.mark.gpu

TEMPLATES = Path(user_kernel.__file__).parent
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
        what = ["--contender", f"{tmp_path}/mine.py:prepare"]
    assert cli.main(["trial", *what, "--room", "casper_sparse", *SIZES, "--against", "scalar"]) == 0
    out = capsys.readouterr().out
    assert "mine against the best at each of 1 point" in out and "Over the fastest library" in out
    (folder,) = benchmark.recorded(build).values()
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
    assert "against the best" not in out and not benchmark.recorded(build)


def test_a_kernel_that_adds_to_c_is_wrong_unless_it_asks_for_zeros(device, tmp_path):
    adds = ("C[(size_t)row * n + col] = sum;", "C[(size_t)row * n + col] += sum;")
    problem = casper_sparse.problem(m=64, n=32, k=64, density=0.2)
    with pytest.raises(verification.WrongResult, match="unwritten or NaN"):
        benchmark.check_first(benchmark.load(str(mine(tmp_path, *adds))), problem, device)
    path = mine(tmp_path, *adds)
    path.write_text(path.read_text().replace("// require:", "// clear:     c\n// require:"))
    benchmark.check_first(benchmark.load(str(path)), problem, device)


def test_dynamic_shared_memory_and_types_reach_the_kernel(device, tmp_path):
    path = mine(tmp_path, "// block:     128", "// block:     128\n// shared:    4 * 128")
    text = path.read_text().replace("arguments: m, n,", "arguments: m:int64, n,")
    text = text.replace("int m,   ", "long long m,   ")
    text = text.replace(
        "float sum = 0.f;",
        "extern __shared__ float held[]; held[threadIdx.x] = 0.f; float sum = held[threadIdx.x];",
    )
    path.write_text(text)
    benchmark.check_first(benchmark.load(str(path)), casper_sparse.problem(m=64, n=32, k=64, density=0.2), device)
