"""The chapter's tables, facts and figures, on the shipped records and on what other GPUs would give."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from artifact.measure import run as harness
from artifact.rooms.tensor_core_24 import energy, experiments, facts, tables, variants
from kernels import tensor_core_24 as room
from kernels.tensor_core_24 import family

# ---------------------------------------------------------------- what fits where


def test_what_takes_a_size(post, ada):
    def cubes(*sizes: int) -> list[dict]:
        return [{"m": s, "n": s, "k": s} for s in sizes]

    assert variants.takes(post.machine, "wgmma_keep", *cubes(4096))
    assert not variants.takes(ada.machine, "wgmma_keep", *cubes(4096))
    assert not variants.takes(post.machine, "wgmma_stream_k", *cubes(4096, 512))  # fewer tiles than SMs
    assert variants.takes(post.machine, "mma_sp_stages_5", *cubes(2048))
    assert not variants.takes(ada.machine, "mma_sp_stages_5", *cubes(2048))


def test_step_of_the_published_kernel():
    """128 x 128 x 64: A's values and metadata and B, each warp its part; what cp.async writes is a stage."""
    flop, read, written = variants.step()
    assert flop == 2 * 128 * 128 * 64
    assert written == 128 * 32 * 2 + 64 * 128 * 2 + 128 * 4 * 2
    assert read == 4 * (64 * 32 * 2 + 64 * 64 * 2 + 64 * 4 * 2)


def test_rungs_build_on_what_their_prediction_names():
    rungs = variants.rungs()
    assert list(rungs.index) == list(room.RUNGS)
    assert rungs["before"]["wgmma_one_stage"] == "mma_sp"
    assert rungs["before"]["wgmma_tall"] == "wgmma_keep"  # not multicast, the row above
    assert rungs["before"]["wgmma_packed"] == "wgmma_tall"
    assert rungs["before"]["wgmma_split_k"] == "wgmma_keep"
    assert rungs["predicted"]["wgmma_one_stage"] == 1.3 and np.isnan(rungs["predicted"]["wgmma_split_k"])
    assert variants.PREDICTIONS["mma_sp_ca"].startswith("0.9×,")


def test_choices_of_the_shipped_file(post):
    found = variants.chosen(post.run, [(4096, 4096, 4096), (1, 2, 3)])
    assert list(found.index) == [(4096, 4096, 4096)]
    assert variants.chosen(post.run, []).empty


# ---------------------------------------------------------------- records


def test_ladder_on_hopper_and_elsewhere(post, ada):
    assert list(post.rungs.index) == list(room.RUNGS)
    assert post.climbed == [4096, 8192] and list(post.rates.index) == [2048, 4096, 8192]
    assert np.isnan(post.rates["wgmma_stream_k"][2048])
    tall = post.gains["wgmma_tall"][4096]
    assert tall == pytest.approx(post.rates["wgmma_tall"][4096] / post.rates["wgmma_keep"][4096])
    assert post.tiles["wgmma_keep"][4096] == 32 * 16
    assert ada.rungs.empty and tables.gains(ada).empty


def test_the_ceiling_is_of_the_faster_loop(post, ada):
    """With A in registers on one GPU, from shared memory on another."""
    for registers, memory, best in ((1760.0, 1640.0, "wgmma_sp_ra"), (1680.0, 1700.0, "wgmma_sp")):
        found = experiments.Chapter(post.run)
        loops = {"mma_sp": 900.0, "wgmma": 800.0, "wgmma_sp_ra": registers, "wgmma_sp": memory}
        found.__dict__["ceilings"] = pd.DataFrame({"tflops": loops})
        assert found.loops.to_dict() == {"mma.sp": "mma_sp", "wgmma (dense)": "wgmma", "wgmma.sp": best}
        assert found.loops.index[-1] == "wgmma.sp"
    assert ada.loops.to_dict() == {"mma.sp": "mma_sp"}


def test_every_part_finds_what_there_is(post, ada):
    """On a kick, which has few sizes, and on a GPU without wgmma, the parts say less and raise nothing."""
    kick = experiments.start("recorded", "nvidia-h200", "kick")
    full, few = ({name.split(".")[0] for name, _ in facts.of(one.run)} for one in (post, kick))
    assert few <= full
    for part in (facts.published, facts.climbed, facts.profiled, facts.energies, facts.tuned, facts.rows, facts.eight):
        list(part(ada))
    for table in (tables.rows, tables.ragged, tables.chosen, tables.float16):
        assert len(table(post)) and len(table(ada)) <= len(table(post))
    for figure in (tables.throughput, tables.share_of_peak, tables.per_cent, tables.studies, tables.ladder):
        assert len(figure(post)) > len(figure(ada)) - 1 and len(figure(kick))
    assert energy.shares(ada) is None and tables.layers(ada["fp8"], "fp8_auto") is None


def test_rows_of_b(post):
    """What eight columns more cost is said of shapes with as many tiles, with the counters that show it."""
    us, got = post.by_shape("rows", "median_us"), dict(facts.rows(post))
    more = us.loc[4096, 4104, 4096] / us.loc[4096, 4160, 4096] - 1
    assert {v: got[f"rows.more.{v}"] for v in more.index} == more.to_dict()
    assert more["wgmma_lean"] > max(0.02, 2 * more["wgmma_lean_tall"]), "the tile is what it depends on"
    assert got["rows.grown.requests"] > 2 and got["rows.best.count"] == 4
    assert sum("after a copy" in str(took) for took in got.values()) == 2
    assert list(tables.rows(post)["begin"]) == [128, 16, 32, 64, 128, 16, 16, 16]


@pytest.mark.parametrize(("n", "begin"), [(1, 2), (4, 8), (1000, 16), (4112, 32), (4128, 64), (4096, 128), (192, 128)])
def test_where_rows_begin(n, begin):
    assert family.begin_at(n) == begin


def test_any_size(post):
    got = dict(facts.any_size(post))
    assert 0 < got["off.aligned.auto"] < got["off.odd.auto"] < got["off.odd.cublaslt"] < 1
    assert got["fp16.error"] == pytest.approx(8, rel=0.05)
    assert not got["error.variant"].startswith(("cu",))


def test_the_layout_of_a_linear_layer_says_where_the_library_refuses(post):
    table = tables.linear(post, "decoding")
    few = table["shape"].str.contains(" × [14] × ")
    assert table.loc[few, "lib"].isna().all() and table.loc[~few, "lib"].notna().all()
    assert table["dense"].notna().all() and table["dense_eight"].notna().all()


# ---------------------------------------------------------------- machine code, and where there is a GPU


def report(names, **more) -> pd.DataFrame:
    row = {"target": "sm_90a", "registers": 168, "instructions": 1000, "spills": False, "HMMA": 0}
    return pd.DataFrame([row | {"variant": name} | more for name in names])


def test_published_machine_code():
    rows, loop = variants.published(report(["mma_sp"], entry=room.VARIANTS["mma_sp"].entries[0]))
    got = dict(facts.code(rows, loop))
    assert got["code.first"] == got["code.second"] == 32 and got["code.past_l1"]
    excerpt = variants.published_excerpt(loop).splitlines()
    assert excerpt[0].startswith("HMMA.SP") and "…" in excerpt


def test_machine_code_of_the_ladder():
    df = report(room.RUNGS).assign(spills=lambda rows: rows["variant"] == "wgmma_tall")
    rows = variants.ladder_rows(df).set_index("variant")
    assert list(rows.index) == list(room.RUNGS) and rows["spilled"]["wgmma_tall"] == "yes"
    assert dict(facts.compiled(df))["compiled.which"] == "wgmma_tall"
    clean = dict(facts.compiled(df.assign(spills=False)))
    assert (clean["compiled.spilling"], clean["compiled.other"]) == (0, 0)


def test_epilogue_is_not_tried_without_a_gpu(post):
    assert experiments.epilogue(post.run) is None and not list(facts.epilogue(None))


@pytest.mark.gpu
def test_epilogue_is_right_on_a_gpu(tmp_path):
    run = harness.start("tensor_core_24", mode="measure", preset="kick", records=tmp_path)
    tried = experiments.epilogue(run)
    assert tried["rel_err"] < 5e-3
    assert 0 < tried["plain_us"] and 0 < tried["all_us"]
    assert dict(facts.epilogue(tried))["epilogue.at"] == "1000 × 520 × 712"
