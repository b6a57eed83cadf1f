"""Experiments, tables and facts of the chapter: without records, and on records of a made-up machine."""

from pathlib import Path
from types import SimpleNamespace

import async_records as made
import numpy as np
import pandas as pd
import pytest

from artifact.measure import matrices
from artifact.measure import run as harness
from artifact.rooms.async_sparse import arithmetic, contenders, experiments, facts, tables
from artifact.rooms.async_sparse import figures as figures_
from artifact.rooms.async_sparse.contenders import BELL, CSR, KEPT, TORCH, TRITON
from artifact.rooms.async_sparse.spmm import experiments as spmm
from kernels import async_sparse as room
from kernels.contract import Kernel
from kernels.formats import csr

TABLE1, TABLE2, TABLE3, TEXT = (arithmetic.stated(name) for name in made.TABLES)
SMALL = [{"m": 512, "n": 256, "k": 384, "density": d} for d in (0.5, 0.1)]


@pytest.fixture
def sweeps(monkeypatch):
    """Kernels whose sweep "ladder" has small shapes."""
    offered = SimpleNamespace(sweeps=lambda preset: {"ladder": SMALL}, problem=room.problem)
    monkeypatch.setattr(experiments, "kernels", lambda: offered)


# ---------------------------------------------------------------- without records


def test_without_records_there_is_no_run_and_nothing_is_read(tmp_path):
    made.folder(tmp_path)
    assert experiments.start("recorded", "nvidia-h200", "full", 0, str(tmp_path), "ceilings") is None
    for read in (experiments.ablation, experiments.tiles, spmm.tf32, experiments.counters):
        assert read(None) is None
    assert experiments.sweep(None, "ladder", experiments.LADDER) is None


def test_an_unknown_mode_is_an_error_and_not_a_page_without_numbers(tmp_path):
    with pytest.raises(ValueError, match="mode is 'x'"):
        experiments.start("x", "nvidia-h200", "full", 0, str(tmp_path))


def test_without_records_there_are_no_facts_and_no_tables():
    found = [
        facts.formats(None),
        facts.matrices(None),
        facts.ablation(None, TABLE2),
        facts.left_out("ablation", {}, None),
        facts.counted(None),
        facts.l2_bound(None, None),
        facts.traced(None),
        facts.tiles(None),
        facts.gate(None),
        facts.layout(None),
        facts.ours(None),
        facts.blocks(None),
    ]
    assert not any(list(of) for of in found)
    for made_of in (
        tables.counted(None),
        tables.gate(None, TABLE3),
        tables.ragged(None),
    ):
        assert made_of is None
    stated = tables.table2(None, TABLE2)
    assert list(stated.columns) == ["kernel", "stated [TFLOP/s]", "stated ×", "stated step"]
    assert len(stated) == 10  # nine rows and the library


def test_a_record_that_is_not_there_leaves_the_others(tmp_path, sweeps):
    made.folder(tmp_path, without=["ladder", "spmm_tf32", "counters"])
    run = experiments.start("recorded", "nvidia-h200", "full", 0, str(tmp_path))
    assert experiments.sweep(run, "ladder", experiments.LADDER) is None
    assert spmm.tf32(run) is None and experiments.counters(run) is None
    assert len(experiments.ablation(run)) > 0


# ---------------------------------------------------------------- experiments


def test_a_sweep_is_read_for_the_contenders_that_it_has(tmp_path, sweeps):
    rows = []
    for shape in SMALL:
        nnz = room.problem(**shape).nnz
        at = (shape["m"], shape["n"], shape["k"])
        rows += [made.row("ladder", v, "", at, shape["density"], nnz, 5.0, 2.0 * nnz) for v in (KEPT, TORCH)]
    made.folder(tmp_path, ladder=made.frame(rows))
    run = experiments.start("recorded", "nvidia-h200", "full", 0, str(tmp_path))
    df = experiments.sweep(run, "ladder", experiments.LADDER)
    assert df["variant"].tolist() == [KEPT, TORCH] * 2 and df["density"].tolist() == [
        0.5,
        0.5,
        0.1,
        0.1,
    ]


def test_the_fastest_algorithm_for_csr_stands_for_them(run):
    df = experiments.ablation(run)
    assert (df["variant"] == CSR).sum() == 8
    two = pd.concat(
        [made.ablation(), made.ablation().replace("cusparse_alg2", "cusparse_alg3")],
        ignore_index=True,
    )
    two = made.faster(two, "cusparse_alg3", 3.0)
    best = experiments.with_csr(two).query("variant == @CSR")
    assert len(best) == 8
    np.testing.assert_allclose(best["median_us"], two.loc[two["variant"] == "cusparse_alg3", "median_us"])
    none = made.ablation().query("variant != 'cusparse_alg2'")
    assert experiments.with_csr(none) is none


def test_blocks_of_each_row_are_those_of_the_format():
    from kernels.formats import bcsr

    rng = np.random.default_rng(0)
    dense = (rng.random((200, 333)) < 0.004).astype(np.float32)
    dense[64:128] = 0
    import scipy.sparse

    a = csr.from_scipy(scipy.sparse.csr_array(dense))
    expected = np.diff(bcsr.from_csr(a).row_ptr)
    np.testing.assert_array_equal(bcsr.blocks_by_row(a), expected)
    assert expected[1] == 0


def test_matrices_of_the_folder_are_measured_once(measuring):
    run, names, asked = measuring
    df = experiments.ablation(run)
    assert asked == [("ablation", name, 1024, [KEPT, "auto", BELL]) for name in names]
    assert df["label"].nunique() == 5
    experiments.ablation(run)
    assert len(asked) == 5  # all are there


def test_what_does_not_fit_is_left_out(measuring, monkeypatch):
    run, names, asked = measuring
    run.machine["memory_bytes"] = 4 * 2 * 2 * 64 * 64 * 2 - 1  # two rows of two blocks are a quarter of it
    experiments.ablation(run)
    assert all(BELL not in offered for *_, offered in asked) and len(asked) == 5
    monkeypatch.setattr(experiments, "MOST_BYTES", 1)
    asked.clear()
    assert experiments.tiles(run) is None and asked == []


def test_matrices_in_csr_are_measured_for_what_takes_them(measuring):
    run, names, asked = measuring
    run.variants = lambda names=("wcsr", "windows", "union_rows", KEPT): dict.fromkeys(names)
    run.baselines = lambda: dict.fromkeys([BELL, TRITON, "cusparse_alg2", "cusparse_default"])
    assert spmm.tf32(run)["label"].nunique() == 5
    sizes = [(n, offered) for _, label, n, offered in asked if label == names[0]]
    assert [n for n, _ in sizes] == [256, 512, 1024]
    assert sizes[0][1] == [
        "wcsr",
        "windows",
        KEPT,
        BELL,
        "cusparse_alg2",
    ]  # auto_tf32 is not there yet
    asked.clear()
    spmm.exact(run)
    assert {tuple(offered) for *_, offered in asked} == {("union_rows", "cusparse_alg2")}
    assert len(asked) == 15
    asked.clear()
    assert spmm.reordered(run) is None and asked == []  # auto_fp32 alone is ours there
    run.variants = lambda names=("auto_fp32",): dict.fromkeys(names)
    spmm.reordered(run)
    assert [(label, n) for _, label, n, _ in asked] == [(names[0], 1024), (names[3], 1024)]
    asked.clear()
    run.variants = lambda names=("wcsr", "wcsr_whole", "windows"): dict.fromkeys(names)
    spmm.parts(run)
    assert [(label, n) for _, label, n, _ in asked] == [(names[0], 512)]
    assert asked[0][3] == list(contenders.PARTS)


def test_parts_that_the_kernels_do_not_have_are_left_out(measuring, monkeypatch):
    run, names, asked = measuring
    monkeypatch.setattr("kernels.async_sparse.windows.TRIALS", {"windows_8": None})
    run.variants = lambda names=("wcsr",): dict.fromkeys(names)
    spmm.parts(run)
    assert asked[0][3] == [
        p for p in contenders.PARTS if p.startswith("wcsr_c") or p.startswith("wcsr_n") or p in ("wcsr", "windows_8")
    ]


def test_a_contender_that_comes_later_is_measured_with_the_others(measuring):
    run, names, asked = measuring
    run.variants = lambda names=("union_rows",): dict.fromkeys(names)
    spmm.exact(run)
    asked.clear()
    spmm.exact(run)
    assert asked == []
    run.variants = lambda names=("union_rows", "auto_fp32"): dict.fromkeys(names)
    df = spmm.exact(run)
    assert len(asked) == 15 and set(df["variant"]) == {"union_rows", "auto_fp32"}


def test_a_library_that_fails_is_left_out_at_a_matrix_and_not_asked_again(measuring):
    run, names, asked = measuring
    run.variants = lambda names=("union_rows",): dict.fromkeys(names)
    run.baselines = lambda: dict.fromkeys(["cusparse_alg2", "cusparse_alg3"])
    measure = run.measure

    def refusing(experiment, problems, offered):
        if "cusparse_alg3" in offered and problems[0].label == names[1]:
            raise ValueError("cusparse_alg3: cuSPARSE refuses alg3 here")
        measure(experiment, problems, offered)

    run.measure = refusing
    df = spmm.exact(run)
    assert names[1] not in set(df.loc[df["variant"] == "cusparse_alg3", "label"])
    left = experiments.left_out(run, "spmm")
    assert {key[:2] for key in left} == {("cusparse_alg3", names[1])} and len(left) == 3
    asked.clear()
    spmm.exact(run)
    assert asked == []


def test_orders_of_rows_are_kept_apart(measuring):
    run, names, _ = measuring
    where = matrices.folder()
    given, ordered = (experiments.matrix(names[0], where, order) for order in ("", "rcm"))
    assert given.nnz == ordered.nnz and given.k == ordered.k == 128
    assert not np.array_equal(given.col_idx, ordered.col_idx)


def test_a_kick_takes_few_matrices_and_one_n(measuring):
    run, names, asked = measuring
    run.preset = "kick"
    run.variants = lambda names=("wcsr",): dict.fromkeys(names)
    spmm.tf32(run)
    assert [(label, n) for _, label, n, _ in asked] == [(name, 256) for name in names[:3]]
    asked.clear()
    spmm.parts(run)
    assert [n for _, _, n, _ in asked] == [256]


def test_a_gpu_without_wgmma_is_asked_for_what_it_has(measuring):
    run, names, asked = measuring
    run.machine["compute_capability"] = "8.9"
    run.variants = lambda names=("opt0", KEPT, "auto"): dict.fromkeys(names)
    experiments.ablation(run)
    assert {tuple(offered) for *_, offered in asked} == {("opt0", BELL)}
    assert experiments.tiles(run) is None and experiments.trace(run) is None
    assert experiments.sweep(run, "gate_proj", experiments.LAYER) is None


def test_a_trace_is_written_where_clocks_are_kept(measuring, monkeypatch):
    run, *_ = measuring
    asked = []

    def clocks(problem, device):
        asked.append((problem.m, problem.n, problem.k))
        return made.timeline().to_dict("records")

    monkeypatch.setattr("kernels.async_sparse.timeline.timeline", clocks)
    run.device = None
    pd.testing.assert_frame_equal(experiments.trace(run), made.timeline())
    assert asked == [(18944, 16384, 3584)]


def test_widths_of_the_tile_are_asked_for_by_name(measuring):
    run, _, asked = measuring
    experiments.tiles(run)
    assert asked[0][3] == [f"opt5_n{width}" for width in range(8, 257, 8)]


def test_without_a_folder_of_matrices_records_are_read(tmp_path, monkeypatch):
    monkeypatch.delenv(matrices.VARIABLE, raising=False)
    folder = made.folder(tmp_path) / made.ROOM
    run = SimpleNamespace(mode="measure", folder=folder, preset="full", seed=0)
    assert experiments.ablation(run)["label"].nunique() == 8


# ---------------------------------------------------------------- counters


def test_counters_are_of_the_point_of_the_ladder(tmp_path):
    head, tail = experiments.STALL.split("{}")
    stalls = {("opt1", f"{head}{reason}{tail}"): v for reason, v in (("barrier", 1.5), ("long_scoreboard", 8.25))}
    stalls[("opt1", f"{head}selected{tail}")] = 99.0
    more = {("opt6", "sm__cycles_active.avg"): 60.0, ("opt6", "sm__cycles_active.max"): 100.0}
    table = made.counters(stalls | more)
    other = table.assign(m=64, value=123456.0)
    made.folder(tmp_path, table=pd.concat([table, other]))
    found = experiments.counters(experiments.start("recorded", "nvidia-h200", "full", 0, str(tmp_path)))
    assert found.get("opt5", experiments.TENSOR) == 70.0 and np.isnan(found.get("opt5", "nothing"))
    assert found.stall("opt1") == ("long_scoreboard", 8.25) and found.stall("opt2")[0] == ""
    assert found.balance("opt6") == 0.6 and np.isnan(found.balance("opt5"))
    assert found.variants[0] == "opt1" and found.variants[-1] == TRITON
    rows = tables.counted(found).set_index("kernel")
    assert rows.loc["opt1, WGMMA", "waits for"] == "long scoreboard 8.2"
    assert rows.loc["opt6, persistent", "SMs busy [%]"] == "60"
    said = dict(facts.counted(found))
    assert said["busy.opt1"] == 15.0 and said["waits.long_scoreboard"] == "opt1"


# ---------------------------------------------------------------- tables and sentences


def test_table_2_beside_ours(run):
    table = tables.table2(experiments.ablation(run), TABLE2).set_index("kernel")
    row = table.loc["opt3, warp specialisation"]
    assert row["stated ×"] == row["here ×"] == "4.31×" and row["stated step"] == row["step here"] == "2.76×"
    assert table.loc["auto", "stated ×"] == tables.NONE and table.loc["auto", "matrices"] == 8
    assert table.loc["opt7, multicast", "stated [TFLOP/s]"] == "10.05"
    assert table.loc["cuSPARSE BSR", "step here"] == tables.NONE  # a library builds on none of ours
    assert table.loc["cuSPARSE Blocked-ELL", "here ×"] == tables.NONE


def test_kernels_have_their_prediction_and_what_came(run):
    offered = {
        v: Kernel(v, Path(f"{v}.cu"), f"idea of `{v}`", "1.5x", published=v != "auto")
        for v in ("opt0", "opt1", "opt5", "auto")
    }
    table = tables.variants(offered, experiments.ablation(run)).set_index("kernel")
    assert table["came"].tolist() == [
        tables.NONE,
        "5.25×",
        tables.NONE,
        tables.NONE,
    ]  # opt4 is not offered
    assert table.loc["<code>opt1</code>", "idea"] == "idea of <code>opt1</code>"
    assert table.loc["<code>auto</code>", "by"] == "ours"
    assert set(table["predicted"]) == {"1.5×"}
    assert set(tables.variants(offered, None)["came"]) == {tables.NONE}


def test_what_kernels_compile_to():
    rows = [("opt1", 227, 0, 0), ("opt1", 226, 4, 0), ("opt2", 154, 4, 2), ("opt3", 168, 8, 2)]
    report = pd.DataFrame(rows, columns=["variant", "registers", "HGMMA", "UTMALDG"])
    report = report.assign(target="sm_90a", instructions=1000, spills=False, FFMA=0)
    report = pd.concat([report, report.assign(target="sm_80", registers=9)], ignore_index=True)
    table = tables.compiled(report).set_index("kernel")
    assert table.loc["<code>opt1</code>", "registers"] == "226 to 227"
    assert table.loc["<code>opt1</code>", "wgmma"] == 4 and table.loc["<code>opt3</code>", "TMA loads"] == 2
    assert set(table["FFMA"]) == {tables.NONE} == set(table["atomics"])
    assert "spills" not in table and table.loc["<code>opt1</code>", "kernels"] == 2
    said = dict(facts.compiled(report, TEXT))
    assert said["compiled.spilling"] == "" and (said["start.threads"], said["start.registers"]) == (384, 64512)
    assert [said[f"freed.{name}"] for name in ("here", "low", "high")] == [73, 30, 40]
    spilled = report.assign(spills=report["variant"] == "opt3")
    assert dict(facts.compiled(spilled, TEXT))["compiled.spilling"] == "opt3"
    assert tables.compiled(spilled).set_index("kernel")["spills"].tolist() == ["none", "none", 1]


def test_what_kernels_for_csr_compile_to():
    rows = [("wcsr", 72, 4, 32), ("windows", 168, 10, 2), ("opt1", 227, 4, 0)]
    report = pd.DataFrame(rows, columns=["variant", "registers", "HGMMA", "REDG"])
    report = report.assign(target="sm_90a", instructions=1000, spills=False)
    table = tables.compiled(report, contenders.ROWS, tables.OPS_CSR).set_index("kernel")
    assert list(table.index) == ["<code>wcsr</code>", "<code>windows</code>"]
    assert table["atomic adds"].tolist() == [32, 2] and "atomics" not in table


def test_table_3_beside_ours():
    table = tables.gate(made.gate_proj(), TABLE3).set_index(["N", "blocks kept"])
    row = table.loc[("65,536", "10%")]
    assert row["stated"] == "1.96×" and row["opt5, no zeroing"] == "1.96×"
    assert table.loc[("65,536", "50%"), "stated"] == tables.NONE


def test_ragged_sizes_beside_the_dense_library():
    at = (100, 31, 77)
    rows = [made.row("ragged", v, "", at, 0.1, 700, r, 1e3) for v, r in (("auto", 2.0), (contenders.DENSE, 1.0))]
    (row,) = tables.ragged(made.frame(rows)).to_dict("records")
    assert row["M × N × K"] == "100 × 31 × 77" and row["over cuBLASLt"] == "2.00×"


def test_other_values_beside_the_dense_library():
    rows = [
        made.row("half", v, label, (640, 64, 640), 0.1, 4096, r, 1e3)
        for label in ("linear", "float16, linear", "tf32, linear")
        for v, r in (("auto", 3.0), (contenders.DENSE, 1.0))
    ]
    table = tables.half(made.frame(rows))
    assert table["values"].tolist() == ["BF16", "FP16", "TF32"]
    assert set(table["over cuBLASLt"]) == {"3.00×"} and tables.half(None) is None


def test_a_run_of_these_records_is_a_recorded_one(run):
    assert isinstance(run, harness.Run) and run.mode == "recorded"


def test_predictions_are_in_the_order_of_the_ladder(monkeypatch):
    offered = {v: Kernel(v, Path("x.cu"), "", f"{v}: 2x over it") for v in ("auto", "opt1", "other")}
    monkeypatch.setattr(experiments, "kernels", lambda: SimpleNamespace(VARIANTS=offered))
    assert experiments.predictions() == {"opt1": "opt1: 2× over it", "auto": "auto: 2× over it"}


@pytest.mark.gpu
@pytest.mark.skipif(not hasattr(room, "VARIANTS"), reason="the kernels are not there yet")
def test_a_sweep_is_measured_on_a_gpu(tmp_path):
    run = experiments.start("measure", "", "kick", 0, str(tmp_path))
    df = experiments.sweep(run, "gate_proj", experiments.LAYER)
    assert {KEPT, "auto", TORCH} <= set(df["variant"]) and (df["rel_err"] < 0.01).all()
    assert tables.gate(df, TABLE3) is not None and figures_.gate(df, TABLE3)
