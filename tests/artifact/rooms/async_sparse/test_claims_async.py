"""The claims on AsyncSparse, judged on records that hold what the paper states of itself."""

from functools import partial

import async_records as made
import judging
import pytest

from artifact import registry
from artifact.profiling import ncu
from artifact.verdicts import judge, load, quantities
from artifact.verdicts.measures import NOT_MEASURED, NOT_REPRODUCED, PARTLY, REPRODUCED

MINE = [claim for claim in load.claims() if claim.room == made.ROOM]
verdicts = partial(judging.verdicts, MINE)
RATES = {c.id for c in MINE if c.id.startswith(("async-rate", "async-tile-rate"))}
#: Over kernels that this harness does not have.
ELSEWHERE = {"async-wcsr-accspmm", "async-wcsr-flashsparse"}
NEVER = RATES | ELSEWHERE  #: over a few matrices


def test_the_paper_is_reproduced_on_its_own_numbers_but_for_what_they_deny(tmp_path):
    got = judge.judge(MINE, made.folder(tmp_path)).set_index("id")
    against = {"async-gate-throughput": NOT_REPRODUCED}  # by Table III it falls
    against |= dict.fromkeys(NEVER, NOT_MEASURED)
    against["async-wcsr-csr"] = NOT_REPRODUCED  # our question, and the model's CSR is a good one
    for i, row in got.iterrows():
        assert row["verdict"] == against.get(i, REPRODUCED), (i, row["measured"], row["why"])


def test_rates_are_judged_over_the_source_s_number_of_matrices(tmp_path):
    ablation = made.ablation(414)
    keep = ablation["variant"].isin(["opt5", "cusparse_bell"])
    got = verdicts(made.folder(tmp_path, ablation=ablation[keep]), "async-rate-opt5", "async-rate-opt4")
    assert got["async-rate-opt5"] == REPRODUCED and got["async-rate-opt4"] == NOT_MEASURED


def test_why_a_rate_is_not_judged(tmp_path):
    (row,) = judge.judge([c for c in MINE if c.id == "async-rate-opt5"], made.folder(tmp_path)).to_dict("records")
    assert "over 414 matrices of the source, and the records hold 8" in row["why"]


def test_without_records_nothing_is_measured(tmp_path):
    assert set(verdicts(tmp_path)) == {NOT_MEASURED}


@pytest.mark.parametrize(
    "missing",
    ["ablation", "tile_n", "spmm_tf32", "wcsr_parts", "gate_proj", "ladder", "counters", "prefill"],
)
def test_a_missing_record_is_not_measured(tmp_path, missing):
    got = verdicts(made.folder(tmp_path, without=[missing]))
    lost = {claim.id for claim in MINE if missing in claim.experiment}
    assert lost and set(got.index[got == NOT_MEASURED]) == lost | NEVER


# ---------------------------------------------------------------- verdicts that must turn


@pytest.mark.parametrize(
    "variant,factor,expected",
    [
        ("opt1", 0.6, {"async-wgmma-step": NOT_REPRODUCED, "async-wgmma-substantial": REPRODUCED}),
        ("opt1", 1.3, {"async-wgmma-step": PARTLY, "async-tma-step": PARTLY, "async-bell-opt1": PARTLY}),
        ("opt1", 3.0, {"async-first-ahead": PARTLY, "async-bell-opt1": NOT_REPRODUCED}),
        ("opt2", 1.8, {"async-special-largest": NOT_REPRODUCED, "async-special-step": NOT_REPRODUCED}),
        ("opt2", 0.5, {"async-first-ahead": NOT_REPRODUCED}),
        ("opt2", 2.8, {"async-98": PARTLY}),  # specialisation gains nothing then
        (
            "opt4",
            1.2,
            {
                "async-98": NOT_REPRODUCED,
                "async-mbarrier-step": NOT_REPRODUCED,
                "async-zeroing-negligible": NOT_REPRODUCED,
            },
        ),
        ("opt4", 1.07, {"async-98": PARTLY}),
        (
            "opt5",
            0.5,
            {
                "async-static-fastest": NOT_REPRODUCED,
                "async-over-triton": NOT_REPRODUCED,
                "async-multicast-regress": NOT_REPRODUCED,
                "async-bell-opt5": PARTLY,
            },
        ),
        (
            "opt6",
            1.4,
            {
                "async-persistent-share": PARTLY,
                "async-persistent-regress": REPRODUCED,
                "async-dynamic-balances": NOT_REPRODUCED,
            },
        ),
        ("opt6_atomic", 1.5, {"async-atomic-slower": PARTLY, "async-stealing-slower": REPRODUCED}),
        ("opt6_stealing", 2.0, {"async-stealing-slower": NOT_REPRODUCED}),
        ("opt6", 1.63, {"async-persistent-share": NOT_REPRODUCED, "async-persistent-regress": PARTLY}),
        ("opt7", 1.03, {"async-multicast-share": PARTLY, "async-multicast-regress": REPRODUCED}),
        ("opt7", 1.09, {"async-multicast-share": NOT_REPRODUCED, "async-multicast-regress": PARTLY}),
        (
            "opt7",
            0.7,
            {"async-multicast-share": NOT_REPRODUCED, "async-multicast-regress": REPRODUCED, "async-bell-opt7": PARTLY},
        ),
        ("triton_bsr", 0.5, {"async-bell-triton": PARTLY, "async-over-triton": NOT_REPRODUCED}),
    ],
)
def test_a_step_is_judged_by_its_own_variants(tmp_path, variant, factor, expected):
    got = verdicts(made.folder(tmp_path, ablation=made.faster(made.ablation(), variant, factor)), *expected)
    assert got.to_dict() == expected


@pytest.mark.parametrize(
    "width,factor,expected",
    [
        (
            256,
            0.8,
            {
                "async-tile-rule": NOT_REPRODUCED,
                "async-tile-10": PARTLY,
                "async-tile-peaks": REPRODUCED,
            },
        ),
        (256, 0.88, {"async-tile-rule": PARTLY}),
        (128, 0.8, {"async-tile-peaks": PARTLY}),
        (176, 0.75, {"async-tile-176": NOT_REPRODUCED, "async-tile-248": NOT_REPRODUCED}),
        (64, 0.5, {"async-tile-rises": PARTLY}),
        (248, 1.1, {"async-tile-248": REPRODUCED}),
        (248, 1.2, {"async-tile-248": PARTLY}),
    ],
)
def test_a_width_is_judged_beside_the_others(tmp_path, width, factor, expected):
    sweep = made.faster(made.tile_n(), f"opt5_n{width}", factor)
    assert verdicts(made.folder(tmp_path, tile_n=sweep), *expected).to_dict() == expected


def test_both_ends_of_a_range_count(tmp_path):
    """A kernel that is far faster than stated does not reproduce the stated range."""
    fast = made.folder(tmp_path / "fast", gate_proj=made.faster(made.gate_proj(), "opt5", 1.6))
    slow = made.folder(tmp_path / "slow", gate_proj=made.faster(made.gate_proj(), "opt5", 0.6))
    ids = ("async-gate-80", "async-gate-90", "async-gate-95", "async-gate-99", "async-gate-most")
    for where in (fast, slow):
        assert set(verdicts(where, *ids)) == {NOT_REPRODUCED}
        assert set(verdicts(where, "async-gate-scales")) == {REPRODUCED}


@pytest.mark.parametrize(
    "changed,expected",
    [
        ({("opt5", made.TENSOR): 50.0}, {"async-tensor-high": PARTLY}),
        ({("opt1", made.TENSOR): 60.0}, {"async-wgmma-idle": NOT_REPRODUCED}),
        ({("opt5", made.BLOCKS): 1.0}, {"async-special-occupancy": PARTLY}),
        (
            {("opt5", made.BLOCKS): 1.0, ("opt3", made.BLOCKS): 1.0},
            {"async-special-occupancy": NOT_REPRODUCED},
        ),
        ({("opt7", made.L2_READS): 1.0e9}, {"async-multicast-traffic": PARTLY}),
        ({("opt7", made.L2_READS): 0.5e9}, {"async-multicast-traffic": NOT_REPRODUCED}),
        ({("opt6", made.L2_HITS): 75.0}, {"async-swizzle-reuse": NOT_REPRODUCED}),
        ({("opt5", made.READ): 2e5}, {"async-memory-ceiling": PARTLY}),  # 1.7 TB/s
        ({("opt5", made.DURATION): 3e3}, {"async-memory-ceiling": NOT_REPRODUCED}),
        ({("opt2", made.REGISTERS): 195.0}, {"async-tma-registers": NOT_REPRODUCED}),
        ({("opt2", made.REGISTERS): 145.0}, {"async-tma-registers": PARTLY}),
        ({("triton_bsr", made.TENSOR): 85.0}, {"async-triton-not-saturated": PARTLY}),
    ],
)
def test_counters_decide(tmp_path, changed, expected):
    got = verdicts(made.folder(tmp_path, table=made.counters(changed)), *expected)
    assert got.to_dict() == expected


def test_bytes_that_padding_costs(tmp_path):
    """Copies of B and C in whole blocks are not counted as what the format stores."""
    df = made.ablation()
    bell = df["variant"] == "cusparse_bell"
    blocks = df["least_bytes"] - 2.0 * df["n"] * (df["m"] + df["k"])
    df.loc[bell, "prepare_bytes"] -= 1.25 * blocks[bell]
    where = made.folder(tmp_path / "a", ablation=df)
    assert set(verdicts(where, "async-less-padding")) == {PARTLY}
    df["prepare_bytes"] = 0.0
    where = made.folder(tmp_path / "b", ablation=df)
    assert set(verdicts(where, "async-less-padding")) == {NOT_MEASURED}


def test_a_flat_throughput_does_not_rise(tmp_path):
    ids = "async-tf32-grows", "async-wcsr-grows", "async-tf32-denser"
    one = made.spmm_tf32().query("n == 256")
    got = verdicts(made.folder(tmp_path / "a", spmm_tf32=one), *ids)
    assert got[list(ids)].tolist() == [NOT_MEASURED, NOT_MEASURED, REPRODUCED]
    few = made.spmm_tf32().query("label == 'matrix0'")
    got = verdicts(made.folder(tmp_path / "b", spmm_tf32=few), *ids)
    assert set(got) == {NOT_MEASURED}


@pytest.mark.parametrize(
    "variant,factor,expected",
    [
        (
            "wcsr",
            0.55,
            {
                "async-wcsr-bell": PARTLY,
                "async-wcsr-first": REPRODUCED,
                "async-wcsr-bcsr": NOT_REPRODUCED,
                "async-wcsr-every": PARTLY,
            },
        ),  # one rival of three is ahead
        ("wcsr", 0.15, {"async-wcsr-first": NOT_REPRODUCED}),
        ("wcsr", 1.2, {"async-wcsr-bell": REPRODUCED, "async-wcsr-bcsr": PARTLY}),
        (
            "cusparse_bell",
            5.0,
            {
                "async-wcsr-bell": NOT_REPRODUCED,
                "async-wcsr-maintains": NOT_REPRODUCED,
                "async-wcsr-median": PARTLY,
                "async-bcsr-median": NOT_REPRODUCED,
                "async-bcsr-surpasses": PARTLY,
                "async-triton-below": REPRODUCED,
            },
        ),
        ("cusparse_bell", 0.6, {"async-wcsr-bell-dense": PARTLY, "async-triton-below": NOT_REPRODUCED}),
        ("cusparse_alg2", 9.0, {"async-wcsr-first": REPRODUCED, "async-wcsr-every": REPRODUCED}),  # CSR is an extension
        ("cusparse_alg2", 0.3, {"async-wcsr-csr": NOT_REPRODUCED, "async-wcsr-first": REPRODUCED}),  # alg3 is left
        ("triton_bsr", 2.0, {"async-triton-below": NOT_REPRODUCED, "async-wcsr-triton": PARTLY}),
        ("opt5", 2.0, {"async-wcsr-bcsr-dense": NOT_REPRODUCED, "async-wcsr-every": PARTLY}),
    ],
)
def test_windows_are_judged_beside_their_rivals(tmp_path, variant, factor, expected):
    record = made.faster(made.spmm_tf32(), variant, factor)
    got = verdicts(made.folder(tmp_path, spmm_tf32=record), *expected)
    assert got.to_dict() == expected


def test_a_gap_that_grows_with_density_does_not_narrow(tmp_path):
    df = made.spmm_tf32()
    dense = (df["variant"] == "opt5") & (df["density"] > 0.001)
    df.loc[dense, ["median_us", "q25_us", "q75_us"]] *= 3
    df.loc[dense, ["tflops", "gbps"]] /= 3
    got = verdicts(made.folder(tmp_path, spmm_tf32=df), "async-bcsr-narrows")
    assert got.item() == NOT_REPRODUCED


def test_one_panel_behind_is_partly(tmp_path):
    """Fig. 5 has a panel for each N, and a median over all of them would hide one."""
    df = made.spmm_tf32()
    slow = df["variant"].isin(["wcsr", "opt5"]) & (df["n"] == 256)
    df.loc[slow, ["median_us", "q25_us", "q75_us"]] *= 20
    df.loc[slow, ["tflops", "gbps"]] /= 20
    got = verdicts(made.folder(tmp_path, spmm_tf32=df), "async-wcsr-median", "async-bcsr-median")
    assert set(got) == {PARTLY}


def test_bytes_of_windows_are_held_against_blocks_without_the_copy_of_b(tmp_path):
    df = made.spmm_tf32()
    own = df["variant"] == "wcsr"
    got = verdicts(made.folder(tmp_path / "a", spmm_tf32=df), "async-wcsr-compact")
    assert got.item() == REPRODUCED  # 30 bytes a non-zero over 10
    df.loc[own, "prepare_bytes"] *= 2
    got = verdicts(made.folder(tmp_path / "b", spmm_tf32=df), "async-wcsr-compact")
    assert got.item() == PARTLY
    df.loc[own, "prepare_bytes"] = 0.0
    got = verdicts(made.folder(tmp_path / "c", spmm_tf32=df), "async-wcsr-compact")
    assert got.item() == NOT_MEASURED


def test_finer_windows_are_judged_among_ours_and_not_counted(tmp_path):
    record = made.faster(made.wcsr_parts(), "windows_64", 2.0)
    got = verdicts(made.folder(tmp_path, wcsr_parts=record), "async-windows-finer")
    assert got.item() == NOT_REPRODUCED
    extensions = {c.id for c in MINE if c.extension}
    assert extensions == {"async-windows-finer", "async-wcsr-csr"}


def test_rates_of_dense_matrices_need_the_whole_set(tmp_path):
    df = made.spmm("spmm_tf32", {"wcsr": 23.53, "opt5": 18.05}, 414, (1024,))
    got = verdicts(made.folder(tmp_path, spmm_tf32=df), "async-rate-wcsr-dense", "async-rate-wcsr")
    assert NOT_MEASURED not in set(got)


# ---------------------------------------------------------------- the claims of the file


def test_every_part_of_the_paper_has_its_claims():
    where = " ; ".join(claim.where for claim in MINE)
    sections = (
        "abstract",
        "I;",
        "III-A",
        "III-B",
        "III-C",
        "III-D",
        "III-E",
        "III-F",
        "IV-A",
        "IV-B",
        "IV-C",
        "IV-D",
        "V",
    )
    figures = ("IV-A; Table I", "Table II", "Table III", "Fig. 5", "Fig. 6", "Fig. 7")
    assert all(part in where for part in (*sections, "VI", *figures))
    assert len({claim.says for claim in MINE}) == len(MINE) >= 50
    assert all(claim.id.startswith("async-") for claim in MINE)
    minutes = registry.toml(registry.FOLDER / made.ROOM / registry.CLAIMS)["minutes"]
    assert {e for claim in MINE for e in claim.experiment} == minutes.keys()


def test_no_claim_is_judged_by_what_is_ours():
    ours = {"unit_ring", "auto", "windows", "windows_exact", "union_rows", "auto_fp32", "auto_tf32"}
    for claim in load.of_sources(MINE):
        given = claim.rule.quantity.keywords
        named = {
            *quantities.contenders(claim.rule.quantity.keywords.get("of", ())),
            *(given.get("over", ()) if isinstance(given.get("over"), list) else []),
        }
        assert not named & ours, claim.id


def test_every_counter_of_a_claim_is_profiled():
    wanted = set(load.counters_wanted(MINE))
    assert wanted == {
        made.TENSOR,
        made.READ,
        made.WRITTEN,
        made.DURATION,
        made.L2_READS,
        made.L2_HITS,
        made.BLOCKS,
        made.REGISTERS,
    }
    plan = registry.profiles()[made.ROOM]
    assert wanted <= {*ncu.METRICS, *plan["metrics"]}
    point = {"density": plan["densities"][0], **plan["shapes"][0]}
    ladder = made.ladder().iloc[0]
    assert all(ladder[key] == value for key, value in point.items())


# ---------------------------------------------------------------- the prefill


@pytest.mark.parametrize(
    "variant,factor,expected",
    [
        ("both", 1.15, {"async-prefill-both": PARTLY, "async-prefill-exceeds": REPRODUCED}),
        ("both", 0.6, {"async-prefill-both": NOT_REPRODUCED, "async-prefill-exceeds": NOT_REPRODUCED}),
        (
            "attention",
            1.5,
            {
                "async-prefill-parity": NOT_REPRODUCED,
                "async-prefill-overhead": NOT_REPRODUCED,
                "async-prefill-attention": NOT_REPRODUCED,
            },
        ),
        (
            "ffn",
            1.2,
            {
                "async-prefill-ffn-short": PARTLY,
                "async-prefill-ffn-long": PARTLY,
                "async-prefill-diminishes": REPRODUCED,
            },
        ),
        ("ffn_ours", 2.0, {"async-prefill-ffn-short": REPRODUCED, "async-prefill-both": REPRODUCED}),
    ],
)
def test_a_prefill_is_judged_by_what_the_source_ran(tmp_path, variant, factor, expected):
    got = verdicts(made.folder(tmp_path, prefill=made.faster(made.prefill(), variant, factor)), *expected)
    assert got.to_dict() == expected


def test_a_kick_of_a_prefill_decides_nothing(tmp_path):
    kick = made.prefill().assign(label="4 layers")
    got = verdicts(made.folder(tmp_path, prefill=kick))
    mine = {claim.id for claim in MINE if "prefill" in claim.experiment}
    assert mine and set(got[list(mine)]) == {NOT_MEASURED}
