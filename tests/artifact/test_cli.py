import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
import synthetic

from artifact import cli, paths, registry
from artifact.measure import bench, device, run, verification
from artifact.verdicts import judge, load, measures
from kernels import casper_sparse, nm_cuda_core

#: Claims with each verdict and one that is no claim of the source: all of them take seconds.
FEW = ("abstract-speedup", "intro-library-not-best", "wide-speedup", "tall-linear", "summary-shape", "wide-bandwidth")
EVERY = {claim.id: claim for claim in load.claims()}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Shipped and fresh records in temporary folders."""
    shipped, fresh = tmp_path / "recorded", tmp_path / "build" / "records"
    for where, name, what in (
        (paths, "RECORDED", shipped),
        (paths, "RECORDS", fresh),
        (load, "claims", lambda: [EVERY[claim] for claim in FEW]),
    ):
        monkeypatch.setattr(where, name, what)
    synthetic.folder(shipped)
    return shipped, fresh


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "find", lambda *_: None)


def refused(capsys, *arguments: str, code=2) -> str:
    """The one line on stderr with which these arguments are refused."""
    try:
        got = cli.main(arguments)
    except SystemExit as leave:  # argparse
        got = leave.code
    out, err = capsys.readouterr()
    assert got == code and out == ""
    assert err.count("\n") == 1 and err.startswith("artifact: ") and "Traceback" not in err
    return err


def printed(capsys, *arguments: str, code=0) -> str:
    assert cli.main(arguments) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself(capsys, command):
    with pytest.raises(SystemExit) as leave:
        cli.main([command, "--help"])
    assert leave.value.code == 0 and "usage:" in capsys.readouterr().out


def test_an_error_from_the_shell_is_one_line_and_exit_2():
    arguments = [sys.executable, "-m", "artifact", "claims", "--gpu", "abacus"]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=paths.ROOT)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "abacus" in done.stderr


@pytest.fixture
def answers(monkeypatch):
    """A function: where stdout goes, and the arguments -> the exit code."""

    def answer(stdout, *arguments) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            return cli.main(arguments)

    return answer


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_an_answer_that_cannot_be_written_is_one_line_and_one_that_nobody_reads_on_no_error(answers, capfd):
    reads, writes = os.pipe()
    os.close(reads)
    for to, code, said in (("/dev/full", 2, "No space left on device"), (writes, 0, "")):
        assert answers(open(to, "w"), "trial", "--template", "cu") == code
        out, err = capfd.readouterr()
        assert out == "" and said in err and err.count("\n") == bool(said)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_an_answer_is_printed_whatever_the_terminal_knows(shelf, answers, encoding):
    out = io.TextIOWrapper(io.FileIO(shelf[0].parent / "out", "w"), encoding=encoding)
    assert answers(out, "claims", "--id", "wide-speedup") == 0
    assert b"GPU: nvidia-h200" in (shelf[0].parent / "out").read_bytes()


SIZES = ("-m", "64", "-n", "32", "-k", "64", "--density", "0.1")
CASPER = ("run", "casper_sparse", *SIZES)
NM = ("run", "nm_cuda_core", "-m", "64", "-n", "64", "-k", "64")
TRIAL = ("trial", "{mine}", "--room", "casper_sparse")
WHICH = ("which", "{tmp}/text.mtx", "-n", "8")
#: Arguments -> what is wrong with them. Of files: {mine} is a kernel, {tmp}/text.mtx no matrix, {tmp}/none none.
REFUSED = {
    **dict.fromkeys(((), ("juggle",), ("claims", "--colour"), ("run", "casper_sparse", "-m", "4")), "--help"),
    ("claims", "--source-gpu", "A100"): "No claim speaks of a GPU 'A100'; known: RTX 3050 Ti.",
    ("claims", "--verdict", "wrong"): "invalid choice",
    ("claims", "--id", "x"): "`claims` without --id lists all",
    ("claims", "--id", "wide-speedups"): "'wide-speedups'; close: wide-speedup",
    ("claims", "--room", "x"): "known: casper_sparse",
    ("claims", "--records", "{tmp}/none"): "{tmp}/none: this folder of records is missing",
    ("claims", "--records", "{tmp}/recorded/nvidia-h200"): "this is the folder of one GPU.*name the folder above it",
    ("machine", "--room", "x"): "known: casper_sparse",
    ("machine",): "needs an NVIDIA GPU",
    ("records", "--records", "{tmp}/none"): "no records in",
    ("compare", "--tolerance", "much"): "invalid float",
    ("compile", "casper_sparse", "--target", "sm_1"): "known: sm_80, ",
    ("compile", "casper_sparse", "--variant", "x"): "known: warp_per_row",
    ("compile", "../etc"): "known: async_sparse, casper_sparse",
    CASPER: "needs an NVIDIA GPU",
    (*CASPER, "-m", "nan"): "'nan' is not a whole number",
    (*CASPER, "-n", "0"): "'0' is not a whole number from 1 on",
    (*CASPER, "-n", str(2**31)): r"is over 2\^31 - 1",
    (*CASPER, "-n", "9" * 5000): "whole number",
    (*CASPER, "-k", "1.5"): "'1.5' is not a whole number",
    (*CASPER, "--density", "5"): "'5' is not a fraction",
    (*CASPER, "--density", "nan"): "'nan' is not a fraction",
    (*CASPER, "--density", "0"): "'0' is not a fraction",
    (*CASPER, "--seed", "-1"): "'-1' is not a whole number from 0 on",
    (*CASPER, "--seed", str(2**32)): "4294967296 is over 4294967295, the largest seed",
    (*CASPER, "--iterations", "0"): "'0' is not a whole number",
    (*CASPER, "--variant", "x"): "no variant 'x'; known: warp_per_row",
    (*CASPER, "--set", "group=32"): "known: none",
    CASPER[:-2]: "casper_sparse has no usual density.*--density",
    ("run", "ceilings", *SIZES): "ceilings has no problems to run",
    (*NM, "--protocol", "warm"): "invalid choice: 'warm'",
    (*NM, "--set", "grope=32"): "nm_cuda_core have no 'grope' to set; known: group, vector",
    (*NM, "--set", "m=32"): "no 'm' to set",
    **{(*NM, "--set", x): "is not NAME=VALUE with a whole number" for x in ("group", "group=", "group=1.5", "=", "")},
    ("matrices", "--room", "nm_spmm"): "nm_spmm",
    ("matrices", "--most", "9"): "--most with --room",
    ("matrices",): "SPARSITY_MATRICES is not set",
    TRIAL[:2]: "--room",
    ("trial", "{mine}", "--room", "attic"): "no system 'attic'",
    (
        "trial",
        "{mine}",
        "--room",
        "async_sparse",
    ): "mine.cu: a.val is uint16 in this system, but .* float32",
    ("trial", "{mine}", "--room", "nm_spmm", "--matrix", "x.mtx", "-n", "24"): "not made of a matrix",
    (*TRIAL, "--contender", "a:b"): "One contender at a time",
    (*TRIAL, "-m", "64"): "give all three",
    (*TRIAL, "--against", "best"): "no variant 'best'",
    (*TRIAL, "--name", "auto"): "There is a 'auto' already",
    (*TRIAL, "--matrix", "x.mtx", "-n", "8", "-m", "8"): "give -n alone",
    (*TRIAL, "--matrix", "{tmp}/none", "-n", "8"): "there is no such matrix",
    ("which", "{tmp}/none", "-n", "8"): "there is no such matrix",
    WHICH: "holds no sparse matrix",
    (*WHICH, "-n", "0"): "not a whole number",
    (*WHICH, "--precision", "fp4"): "invalid choice: 'fp4'",
    (*WHICH, "--gpu", "abacus"): "abacus",
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.items(), ids=lambda x: " ".join(x)[:60])
def test_what_is_wrong_is_one_line(request, capsys, monkeypatch, no_gpu, tmp_path, arguments, says):
    if arguments[:1] in (("claims",), ("machine",), ("records",)):
        request.getfixturevalue("shelf")
    monkeypatch.delenv("SPARSITY_MATRICES", raising=False)
    (tmp_path / "text.mtx").write_text("no matrix")
    mine = request.getfixturevalue("mine") if "{mine}" in arguments else ""
    given = [word.format(mine=mine, tmp=tmp_path) for word in arguments]
    assert re.search(says.format(tmp=tmp_path) if "{tmp}" in says else says, refused(capsys, *given))


@pytest.fixture
def mine(tmp_path, capsys):
    """The template, as a reader copies it."""
    (tmp_path / "mine.cu").write_text(printed(capsys, "trial", "--template", "cu"))
    return str(tmp_path / "mine.cu")


# ---------------------------------------------------------------- claims


def test_claims_in_every_format_say_the_same(shelf, capsys):
    system = ("claims", "--room", "casper_sparse")
    table = json.loads(printed(capsys, *system, "--format", "json"))
    assert table == json.loads(printed(capsys, *system, "--json"))
    frame = pd.read_csv(io.StringIO(printed(capsys, *system, "--format", "csv")))
    marked, text = printed(capsys, *system, "--format", "markdown"), printed(capsys, *system)
    short = pd.read_csv(io.StringIO(printed(capsys, *system, "--csv")))
    assert list(short.columns) == ["id", "verdict", "measured"]
    assert list(frame["id"]) == list(short["id"]) == [row["id"] for row in table]
    for row in table:
        (line,) = [line for line in marked.splitlines() if line.startswith(f"| `{row['id']}`")]
        word = measures.said(row["verdict"], row["aside"])
        assert f"| {word}" in line and line.count(" | ") == 7
        assert f"  {row['id']} " in text
    counted = [row for row in table if not row["aside"]]
    facts = {row["fact"] for row in counted}
    assert len(counted) < len(table) and f"{len(facts)} facts on nvidia-h200: " in marked
    held = sum(row["verdict"] == measures.REPRODUCED for row in counted)
    assert f"\n{held} reproduced, " in text


def test_a_script_learns_of_verdicts_by_the_exit_code(shelf, capsys):
    """An extension is no claim of the source, so no reason to fail."""
    one = ("claims", "--id", "abstract-speedup")
    printed(capsys, *one, "--fail-on", "reproduced", "--fail-on", "partly")
    printed(capsys, *one, "--fail-on", "does-not-carry-over", code=1)
    every = [word for name in cli.VERDICTS for word in ("--fail-on", name)]
    printed(capsys, "claims", "--id", "intro-library-not-best", *every)
    assert set(cli.VERDICTS.values()) == set(measures.VERDICTS)


def test_claims_are_chosen_by_id_verdict_gpu_and_system(shelf, capsys):
    out = printed(capsys, "claims", "--gpu", "NVIDIA H200", "--id", "wide-speedup")
    assert all(x in out for x in ("0.55–0.90×", 'spans = "published"', "reproduced", "minutes to measure"))
    of = ("claims", "--room", "casper_sparse", "--format", "json")
    kept = json.loads(printed(capsys, *of, "--verdict", "does-not-carry-over", "--verdict", "partly"))
    assert {row["verdict"] for row in kept} == {measures.NOT_CARRIED, measures.PARTLY}
    assert json.loads(printed(capsys, *of, "--source-gpu", "RTX 3050 Ti"))


def test_a_record_cut_between_two_rows_is_one_line(shelf, capsys):
    path = shelf[0] / "nvidia-h200" / "casper_sparse" / "tall.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:50]))
    error = refused(capsys, "claims", "--id", "tall-linear")
    assert "tall.csv: row 50, column 'variant': this point lacks 'any_n'" in error


def test_a_system_that_is_not_there_was_not_measured(shelf, capsys):
    folder = shelf[0] / "nvidia-h200"
    shutil.rmtree(folder / "casper_sparse")
    assert measures.NOT_MEASURED in printed(capsys, "claims", "--id", "tall-linear")
    # `make profile` before `make measure`
    synthetic.records.write_text(folder / "casper_sparse" / "counters.csv", "variant\n")
    assert measures.NOT_MEASURED in printed(capsys, "claims", "--id", "tall-linear")


def test_a_contender_that_ends_the_program_is_no_success(capsys, monkeypatch):
    _, *about, arguments = cli.COMMANDS["trial"]
    monkeypatch.setitem(cli.COMMANDS, "trial", (lambda options: sys.exit(0), *about, arguments))
    assert "The contender ended the program" in refused(capsys, "trial", "mine.cu")


# ---------------------------------------------------------------- check, compare


def test_check(tmp_path, capsys, monkeypatch):
    """Of what is as it was written there is nothing to say; a changed verdict, fact or cell is named."""
    folder = tmp_path / paths.HOME
    for system in ("casper_sparse", "ceilings"):
        shutil.copytree(paths.RECORDED / paths.HOME / system, folder / system)
    monkeypatch.setattr(load, "claims", lambda: [EVERY[name] for name in FEW])
    verdicts = judge.to_csv({folder.name: judge.judge(load.claims(), folder)})
    (tmp_path / judge.SHIPPED).write_text(verdicts.replace("partly", "fully", 1))
    check = partial(printed, capsys, "check", "--records", str(tmp_path))
    assert "is 'fully', but the records give 'partly'" in check(code=1)
    (tmp_path / judge.SHIPPED).write_text(verdicts)
    assert "written: no files" in check()
    path = folder / "casper_sparse" / "facts.csv"
    path.write_text(path.read_text() + "more,1\n")
    assert "more is '1', but the records give 'missing'" in check(code=1)
    path = folder / "casper_sparse" / "wide.csv"
    path.write_text(path.read_text().replace("warp_per_row", "other", 1))
    assert f"{path}: {'row ' * (paths.ROOT / '.git').exists()}" in check(code=1)  # Git has it as it was
    assert "no records" in refused(capsys, "check", "--records", str(tmp_path / "none"))


def test_compare(shelf, capsys):
    shipped, fresh = shelf
    assert "no fresh records yet" in refused(capsys, "compare")
    synthetic.folder(fresh)
    assert "The records agree." in printed(capsys, "compare")
    synthetic.folder(fresh, {name: synthetic.experiment(name, scale=2.0) for name in synthetic.SHAPES})
    assert "DIFFER" in printed(capsys, "compare", code=1)
    assert "agree" in printed(capsys, "compare", "--time-tolerance", "2")
    # A second measurement has a machine of its own, as deep as a system of a GPU in the folder above.
    synthetic.records.write_machine(shipped / "nvidia-h200/casper_sparse/repeat", synthetic.machine())
    assert "agree" in printed(capsys, "compare", "--fresh", str(shipped / "nvidia-h200"))
    assert "'x'; known: nvidia-h200" in refused(capsys, "compare", "--fresh", "x")
    # Any two: a folder with one GPU in it, and a GPU by its name, wherever its records are.
    assert "agree" in printed(capsys, "compare", "--fresh", str(shipped), "--shipped", "NVIDIA H200")
    synthetic.folder(fresh, {"wide": synthetic.experiment("wide", gpu="NVIDIA X1")}, "NVIDIA X1", "nvidia-x1")
    assert "name one of these folders" in refused(capsys, "compare", "--fresh", str(fresh))
    assert "nvidia-x1 has only" in refused(capsys, "compare", "--fresh", "nvidia-x1")
    synthetic.folder(fresh, gpu="NVIDIA L4", slug="nvidia-l4")
    assert "choose with --fresh" in refused(capsys, "compare")
    assert "Different GPUs" in printed(capsys, "compare", "--fresh", "nvidia-l4")


# ---------------------------------------------------------------- machine, records


def test_machine(shelf, capsys, no_gpu):
    assert json.loads(printed(capsys, "machine", "--gpu", "nvidia-h200"))["gpu"] == "NVIDIA H200"


def test_records(shelf, capsys):
    out = printed(capsys, "records")
    assert "shipped" in out and "wide" in out and "126 rows" not in out
    assert len(out.splitlines()) == 4  # three sweeps and the ceilings


# ---------------------------------------------------------------- compile and run


def test_compile(capsys, monkeypatch):
    def report(system, variants, target):
        targets = [target] if target else ["sm_80", "sm_90a"]
        return pd.DataFrame([{"variant": v, "target": t} for v in variants for t in targets])

    monkeypatch.setattr(run, "compile_report", report)
    out = printed(capsys, "compile", "casper_sparse", "--variant", "any_n", "--target", "sm_90a")
    assert "any_n" in out and "warp_per_row" not in out and "sm_80" not in out


class Toy:
    """The GPU's part of `run`, replaced: what was bound and how it was timed goes into a log."""

    def __init__(self, monkeypatch):
        self.log, self.problems, self.refuses, self.exactly = [], [], {}, []
        stream = SimpleNamespace(sync=lambda: None, close=lambda: None)
        info = SimpleNamespace(
            gpu="Toy", open=lambda: SimpleNamespace(create_stream=lambda: stream), memory_bytes=2**37
        )
        right = SimpleNamespace(rel_err=1e-7, max_err=1e-6)
        for where, name, what in (
            (device, "require", lambda: info),
            *(
                (system, "prepare", lambda name, p, device: self.prepare(name, p))
                for system in (casper_sparse, nm_cuda_core)
            ),
            (registry, "contenders", self.contenders),
            (verification, "oracle", lambda problem: None),
            (verification, "check", lambda *_, **__: right),
            (run, "check_exactly", lambda p, bound, opened: self.exactly.append(list(bound))),
            (bench, "time", partial(self.time, "time")),
            (bench, "time_calls", partial(self.time, "calls")),
        ):
            monkeypatch.setattr(where, name, what)

    def prepare(self, name, problem):
        self.problems.append(problem)
        if name in self.refuses:
            raise ValueError(self.refuses[name])
        return SimpleNamespace(name=name, launch=lambda stream: self.log.append("launch"))

    def contenders(self, names, opened):
        return {f"{n}_{i}": lambda p, n=n, i=i: self.prepare(f"{n}_{i}", p) for n in names for i in "ab"}

    def time(self, which, bounds, opened, **plan):
        assert callable(plan.pop("verify")), "results are checked after timing as well"
        self.log.append((which, list(bounds), plan))
        us = {name: 20.0 if name.endswith("_a") else 10.0 for name in bounds}
        return {n: SimpleNamespace(median_us=t, q25_us=t - 1, q75_us=t + 1) for n, t in us.items()}


@pytest.fixture
def toy(monkeypatch):
    return Toy(monkeypatch)


def test_run_checks_then_times(capsys, toy, monkeypatch):
    options = ("--no-baseline", "--warmup", "3", "--iterations", "20")
    out = printed(capsys, *CASPER, "--variant", "warp_per_row", *options)
    assert "warp_per_row" in out and "10.0 µs" in out and "1.0e-07" in out
    assert "cold protocol" in out and "over" not in out, "there is nothing to compare with"
    plan = {"min_samples": 20, "max_samples": 20}
    assert toy.log == ["launch"] * 3 + [("time", ["warp_per_row"], plan)]

    wrong = verification.WrongResult("warp_per_row is wrong: relative error 1.")
    monkeypatch.setattr(verification, "check", Mock(side_effect=wrong))
    assert "is wrong" in refused(capsys, *CASPER, "--no-baseline", code=1)


def test_run_compares_with_the_fastest_baseline_of_the_system(capsys, toy):
    out = printed(capsys, *CASPER, "--variant", "any_n")
    (_, bounds, plan) = toy.log[-1]
    assert bounds == ["any_n", "cusparse_a", "cusparse_b"] and plan == {}
    assert "over cusparse_b" in out and "1.00×" in out and "0.50×" in out
    out = printed(capsys, *NM, "--variant", "baseline")
    assert toy.log[-1][1] == ["baseline", "cublas_a", "cublas_b"] and "over cublas_b" in out


def test_the_command_line_of_the_report(capsys, toy):
    options = ("--warmup", "10", "--iterations", "100", "--protocol", "published")
    out = printed(capsys, *NM, *options)
    which, bounds, plan = toy.log[-1]
    assert which == "calls" and plan == {"warmup": 10, "calls": 100, "budget_s": math.inf}
    assert {"baseline", "prefetch", "double_buffer"} < set(bounds)
    assert "published protocol" in out and "FLOPs 2·M·N·W" in out
    assert "launch" not in toy.log, "the timer itself warms up"
    printed(capsys, *NM, "--protocol", "published")
    assert toy.log[-1][2] == {}, "by default what the timer says"
    printed(capsys, *NM, "--protocol", "published", "--warmup", "0")
    assert toy.log[-1][2] == {"warmup": 0, "budget_s": math.inf}


def test_the_density_may_be_the_systems(capsys, toy):
    assert "S=50 %" in printed(capsys, *NM)
    assert "S=25 %" in printed(capsys, *NM, "--density", "0.25")


def test_further_parameters_of_a_problem_can_be_set(capsys, toy):
    out = printed(capsys, *NM, "--set", "group=32", "--set", "vector=1")
    assert toy.problems[-1].label == "16:32 element-wise" and ", 16:32 element-wise;" in out


def test_what_does_not_take_the_problem_is_left_out_unless_it_was_named(capsys, toy):
    toy.refuses = {"prefetch": "prefetch needs m to be even", "cublas_b": "refused"}
    lines = printed(capsys, *NM).splitlines()
    names = [line.split()[0] for line in lines]
    assert lines[:2] == ["left out: prefetch needs m to be even", "left out: cublas_b: refused"]
    assert "over cublas_a" in lines[3] and "prefetch" not in names
    (whole,) = toy.exactly
    assert set(whole) <= set(names) and "cublas_a" in whole and "cublas_b" not in whole, "on whole numbers, too"
    assert "prefetch needs m to be even" in refused(capsys, *NM, "--variant", "baseline", "--variant", "prefetch")


# ---------------------------------------------------------------- real matrices


def test_matrices_that_are_here_are_counted(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSITY_MATRICES", str(tmp_path))
    said = printed(capsys, "matrices")
    assert said.startswith("0 of 24 listed matrices") and "left out: rajat01, adder_dcop_05" in said
    (tmp_path / "rajat01.mtx").touch()
    assert printed(capsys, "matrices").startswith("1 of 24 listed")
    every, few = (
        int(printed(capsys, "matrices", "--room", "async_sparse", *most).split()[2])
        for most in ((), ("--most", "50000"))
    )
    assert 2 < few < 100 < every


def test_a_download_that_fails_is_said_and_counts(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSITY_MATRICES", str(tmp_path))
    monkeypatch.setattr("artifact.measure.matrices.COLLECTION", (tmp_path / "nowhere").as_uri())
    said = printed(capsys, "matrices", "--download", code=1)
    assert "Rajat/rajat01 failed: " in said and said.splitlines()[-1].startswith("0 of 24")


# ---------------------------------------------------------------- trial


def test_a_trial_without_a_gpu_goes_as_far_as_the_compiler(capsys, no_gpu, mine):
    assert cli.main(["trial", mine, "--room", "casper_sparse"]) == 2
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["mine:", f"{target},"] for target in ("sm_80", "sm_89", "sm_90a", "sm_120")
    ]
    assert err.count("\n") == 1 and "needs an NVIDIA GPU" in err


def test_a_trial_without_a_kernel_lists_the_arguments(capsys):
    found = dict(line.split(maxsplit=1) for line in printed(capsys, "trial", "--room", "casper_sparse").splitlines())
    assert found["a.row_ptr"] == "int32 (4097)" and found["b"] == "float32 (4096 x 512), row-major"
    assert {"m", "n", "k", "nnz", "c"} < set(found)


def test_a_trial_on_a_real_matrix(capsys, no_gpu, mine, tmp_path):
    scipy.sparse.save_npz(tmp_path / "m.npz", scipy.sparse.random(70, 50, 0.1, "csr"))
    matrix = ("--matrix", f"{tmp_path}/m.npz", "-n", "24")
    lines = printed(capsys, "trial", "--room", "casper_sparse", *matrix).splitlines()
    assert "whole number, here 350" in next(line for line in lines if line.startswith("nnz"))


# ---------------------------------------------------------------- which


def test_which_answers_without_a_gpu(capsys, no_gpu, tmp_path):
    scipy.io.mmwrite(tmp_path / "mine.mtx", scipy.sparse.random(400, 400, 0.02, "csr", rng=np.random.default_rng(1)))
    answer = printed(capsys, "which", str(tmp_path / "mine.mtx"), "-n", "512")
    assert "mine: 400 x 400, 3200 non-zeros (2 %), times 512 columns" in answer
    assert "Advice: " in answer and "left out in turn" in answer and "Measured on" not in answer
