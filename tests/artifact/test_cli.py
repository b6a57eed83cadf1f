import json
import shutil
import subprocess
import sys

import pandas as pd
import pytest
import synthetic

from artifact import claims, cli, device, paths


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Shipped and fresh records in temporary folders."""
    shipped, fresh = tmp_path / "recorded", tmp_path / "build" / "records"
    monkeypatch.setattr(paths, "RECORDED", shipped)
    monkeypatch.setattr(paths, "RECORDS", fresh)
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


def test_help_from_the_shell():
    done = subprocess.run(
        [sys.executable, "-m", "artifact", "--help"],
        capture_output=True,
        text=True,
        cwd=paths.ROOT,
        check=True,
    )
    for command in ("claims", "compare", "machine", "compile", "run", "records"):
        assert f"\n    {command} " in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["claims", "compare", "machine", "compile", "run", "records"])
def test_every_command_explains_itself(capsys, command):
    with pytest.raises(SystemExit) as leave:
        cli.main([command, "--help"])
    assert leave.value.code == 0 and "usage:" in capsys.readouterr().out


def test_an_error_from_the_shell_is_one_line_and_exit_2():
    arguments = [sys.executable, "-m", "artifact", "claims", "--gpu", "abacus"]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=paths.ROOT)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "abacus" in done.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["juggle"], ["claims", "--colour"], ["run", "casper_sparse", "-m", "4"]]
)
def test_bad_usage_is_one_line(capsys, arguments):
    assert "--help" in refused(capsys, *arguments)


# ---------------------------------------------------------------- claims


def test_claims(shelf, capsys):
    out = printed(capsys, "claims")
    assert "GPU: nvidia-h200" in out
    for claim in claims.load():
        assert claim.id in out


def test_one_claim(shelf, capsys):
    out = printed(capsys, "claims", "--gpu", "NVIDIA H200", "--id", "wide-speedup")
    assert "0.55–0.90×" in out and "speedup_range" in out and "reproduced" in out
    assert "minutes to measure" in out


def test_claims_as_json(shelf, capsys):
    table = json.loads(printed(capsys, "claims", "--room", "casper_sparse", "--json"))
    assert {row["verdict"] for row in table} <= set(claims.VERDICTS)


def test_an_unknown_gpu_names_the_known_ones(shelf, capsys):
    error = refused(capsys, "claims", "--gpu", "unknown")
    assert "'unknown'" in error and "nvidia-h200" in error


def test_unknown_claims_and_rooms(shelf, capsys):
    assert "`claims` without --id lists all" in refused(capsys, "claims", "--id", "x")
    error = refused(capsys, "claims", "--id", "wide-speedups")
    assert "'wide-speedups'; close: wide-speedup" in error and error.count(",") <= 2
    assert "known: casper_sparse" in refused(capsys, "claims", "--room", "x")


def test_a_broken_record_is_one_line(shelf, capsys):
    path = shelf[0] / "nvidia-h200" / "casper_sparse" / "tall.csv"
    path.write_text(path.read_text()[:500])
    error = refused(capsys, "claims")
    assert "tall.csv: row" in error and "column" in error


def test_a_record_cut_between_two_rows_is_one_line(shelf, capsys):
    path = shelf[0] / "nvidia-h200" / "casper_sparse" / "tall.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:50]))
    error = refused(capsys, "claims", "--id", "tall-linear")
    assert "tall.csv: row 50, column 'variant': this point lacks 'any_n'" in error


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "the record of the machine is missing"),
        ('{"gpu": "NVID', "not complete JSON"),
        ("[]", "a table of names and values"),
        ("{}", "'gpu' is missing or empty"),
    ],
)
def test_records_without_their_machine_are_one_line(shelf, capsys, content, says):
    path = shelf[0] / "nvidia-h200" / "casper_sparse" / "machine.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    error = refused(capsys, "claims", "--id", "tall-linear")
    assert str(path) in error and says in error


def test_a_room_that_is_not_there_was_not_measured(shelf, capsys):
    folder = shelf[0] / "nvidia-h200"
    shutil.rmtree(folder / "casper_sparse")
    assert claims.NOT_MEASURED in printed(capsys, "claims", "--id", "tall-linear")
    # `make profile` before `make measure`
    (folder / "casper_sparse").mkdir()
    (folder / "casper_sparse" / "counters.csv").write_text("variant\n")
    assert claims.NOT_MEASURED in printed(capsys, "claims", "--id", "tall-linear")


def test_a_folder_without_records_is_named(shelf, capsys, tmp_path):
    nowhere = str(tmp_path / "nowhere")
    error = refused(capsys, "claims", "--records", nowhere)
    assert f"{nowhere}: this folder of records is missing" in error
    gpu = str(shelf[0] / "nvidia-h200")  # one folder too deep
    assert f"{gpu}: this folder of records holds no" in refused(capsys, "claims", "--records", gpu)


# ---------------------------------------------------------------- compare


def test_compare(shelf, capsys):
    shipped, fresh = shelf
    assert "no fresh records yet" in refused(capsys, "compare")
    synthetic.folder(fresh)
    assert "The records agree." in printed(capsys, "compare")
    made = {name: synthetic.experiment(name, scale=2.0) for name in synthetic.SHAPES}
    synthetic.folder(fresh, made)
    assert "DIFFER" in printed(capsys, "compare", code=1)
    assert "agree" in printed(capsys, "compare", "--time-tolerance", "2")
    assert "agree" in printed(capsys, "compare", "--fresh", str(shipped / "nvidia-h200"))
    assert "'x'; known: nvidia-h200" in refused(capsys, "compare", "--fresh", "x")
    assert "invalid float" in refused(capsys, "compare", "--tolerance", "much")
    synthetic.folder(fresh, gpu="NVIDIA L4", slug="nvidia-l4")
    assert "choose with --fresh" in refused(capsys, "compare")
    assert "Different GPUs" in printed(capsys, "compare", "--fresh", "nvidia-l4")


# ---------------------------------------------------------------- machine, records


def test_machine(shelf, capsys, no_gpu):
    assert json.loads(printed(capsys, "machine", "--gpu", "nvidia-h200"))["gpu"] == "NVIDIA H200"
    assert "known: casper_sparse" in refused(capsys, "machine", "--room", "x")
    assert "GPU" in refused(capsys, "machine")


def test_records(shelf, capsys):
    out = printed(capsys, "records")
    assert "shipped" in out and "wide" in out and "126 rows" not in out
    assert len(out.splitlines()) == 4  # three sweeps and the ceilings
    assert "no records in" in refused(capsys, "records", "--records", str(shelf[1]))


# ---------------------------------------------------------------- compile and run

SIZES = ("-m", "64", "-n", "32", "-k", "64", "--density", "0.1")


def test_compile(capsys, monkeypatch):
    from artifact import run

    rows = [
        {"variant": v, "target": t, "registers": 32}
        for v in ("warp_per_row", "any_n")
        for t in ("sm_80", "sm_90a")
    ]
    monkeypatch.setattr(run, "compile_report", lambda room: pd.DataFrame(rows))
    out = printed(capsys, "compile", "casper_sparse", "--variant", "any_n", "--target", "sm_90a")
    assert "any_n" in out and "warp_per_row" not in out and "sm_80" not in out
    assert "known: sm_80, sm_90a" in refused(capsys, "compile", "casper_sparse", "--target", "sm_1")
    assert "known: warp_per_row" in refused(capsys, "compile", "casper_sparse", "--variant", "x")
    assert "known: casper_sparse" in refused(capsys, "compile", "../etc")


def test_run_without_a_gpu_is_one_sentence(capsys, no_gpu):
    assert "GPU" in refused(capsys, "run", "casper_sparse", *SIZES)


@pytest.mark.parametrize(
    "change,says",
    [
        (["-m", "nan"], "'nan' is not a whole number"),
        (["-n", "0"], "'0' is not a whole number from 1 on"),
        (["-k", "1.5"], "'1.5' is not a whole number"),
        (["--density", "5"], "'5' is not a fraction"),
        (["--density", "nan"], "'nan' is not a fraction"),
        (["--seed", "-1"], "'-1' is not a whole number"),
        (["--iterations", "0"], "'0' is not a whole number"),
        (["--variant", "x"], "no variant 'x'; known: warp_per_row"),
    ],
)
def test_run_refuses_nonsense(capsys, no_gpu, change, says):
    assert says in refused(capsys, "run", "casper_sparse", *SIZES, *change)


def test_run_checks_then_times(capsys, monkeypatch):
    """The whole command, with the GPU's part replaced."""
    from types import SimpleNamespace

    import kernels.casper_sparse as room
    from artifact import bench, check

    log = []
    stream = SimpleNamespace(sync=lambda: None)
    opened = SimpleNamespace(create_stream=lambda: stream)
    info = SimpleNamespace(gpu="Toy", open=lambda: opened)
    bound = SimpleNamespace(launch=lambda stream: log.append("launch"))

    def time(bounds, device, **samples):
        log.append(("time", samples))
        one = SimpleNamespace(median_us=10.0, q25_us=9.0, q75_us=11.0)
        return dict.fromkeys(bounds, one)

    monkeypatch.setattr(device, "require", lambda: info)
    monkeypatch.setattr(room, "bind", lambda name, problem, device: bound)
    monkeypatch.setattr(check, "oracle", lambda problem: None)
    monkeypatch.setattr(check, "check", lambda *_: SimpleNamespace(rel_err=1e-7, max_err=1e-6))
    monkeypatch.setattr(bench, "time", time)
    options = ("--no-baseline", "--warmup", "3", "--iterations", "20")
    out = printed(capsys, "run", "casper_sparse", "--variant", "warp_per_row", *SIZES, *options)
    assert "warp_per_row" in out and "10.0 µs" in out and "1.0e-07" in out
    assert log == ["launch"] * 3 + [("time", {"min_samples": 20, "max_samples": 20})]

    def wrong(*_):
        raise check.WrongResult("warp_per_row is wrong: relative error 1.")

    monkeypatch.setattr(check, "check", wrong)
    error = refused(capsys, "run", "casper_sparse", *SIZES, "--no-baseline", code=1)
    assert "is wrong" in error
