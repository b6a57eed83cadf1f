"""The figures of tensor_core_24, on records of a made-up machine that are good for nothing else."""

import re
from xml.etree import ElementTree

import drawn
import matplotlib
import numpy as np
import pandas as pd
import pytest

from artifact import registry

matplotlib.use("agg")

from drawn import column, drawn_in, labels, words
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgba

from artifact.drawing import style
from artifact.measure import records
from artifact.rooms.tensor_core_24 import figures, pictures
from kernels.formats import two_four

SIZES = (512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
LLM = ((4096, 4096, 11008), (28672, 4096, 8192), (8192, 512, 8192), (8192, 128, 8192))
RUNGS = {
    "mma_sp": "",
    "wgmma_one": "wgmma.sp instead of mma.sp: twice as fast, since it feeds the tensor cores",
    "wgmma_ring": "a ring of buffers filled by TMA: half as much again",
    "wgmma_persistent": "a persistent grid: 5 to 10 per cent at 8192, nothing at 4096",
    "auto": "the fastest of all",
}
ORDER = tuple(RUNGS)
#: Rate of the kernel in TFLOP/s, time of a launch in µs.
MODEL = {
    "mma_sp": (600, 3.0),
    "wgmma_one": (800, 3.0),
    "wgmma_ring": (1050, 3.5),
    "wgmma_persistent": (1200, 3.0),
    "auto": (1250, 2.5),
    "cusparselt": (1150, 5.0),
    "cusparselt_default": (1000, 5.5),
    "cublaslt": (780, 2.4),
}
STUDIES = {
    "mma_sp_ca": "copies by .ca",
    "mma_sp_all_threads": "metadata: all threads, 8 bytes",
    "mma_sp_two_warps": "metadata: first two warps",
    "mma_sp_one_selector": "one selector",
    "mma_sp_x2": "ldmatrix.x2",
    "mma_sp_stages_2": "two stages",
    "mma_sp_stages_4": "four stages",
    "mma_sp_stages_5": "five stages",
}
OVER = dict(zip(STUDIES, (0.93, 0.98, 0.97, 0.96, 1.005, 0.95, 1.03, 1.02), strict=True))
MODEL |= {variant: (600 * over, 3.0) for variant, over in OVER.items()}
CEILINGS = {"wgmma.sp": 1546.0, "wgmma": 922.0, "mma.sp": 1010.0, "mma": 640.0}
PEAKS = {
    "mma_sp": ("mma.sp", 1010.0),
    "auto": ("wgmma.sp", 1546.0),
    "cusparselt": ("wgmma.sp", 1546.0),
    "cublaslt": ("wgmma", 922.0),
}
BENCHMARKS = records.published(registry.published("tensor_core_24", "benchmarks"))
DESIGN = records.published(registry.published("tensor_core_24", "design"))


def time(variant: str, m: int, n: int, k: int) -> float:
    """µs"""
    rate, launch = MODEL[variant]
    return launch + 2.0 * m * n * k / rate / 1e6


def rate(variant: str, size: int) -> float:
    return 2.0 * size**3 / time(variant, size, size, size) / 1e6


def experiment(name="square", variants=figures.SHOWN, shapes=None, label="", scale=1.0):
    """Records, all of records.COLUMNS."""
    rows = []
    for m, n, k in shapes or [(size,) * 3 for size in SIZES]:
        flops = 2.0 * m * n * k
        for variant in variants:
            t = scale * time(variant, m, n, k)
            least = m * k * 1.125 + 2.0 * k * n + 2.0 * m * n
            rows.append(
                {"room": "tensor_core_24", "experiment": name, "variant": variant, "label": label}
                | {"m": m, "n": n, "k": k, "density": 0.5, "nnz": m * k // 2, "seed": 0}
                | {"median_us": t, "q25_us": 0.9 * t, "q75_us": 1.2 * t, "samples": 50}
                | {"flops_def": "2*M*N*K", "useful_flops": flops, "tflops": flops / t / 1e6}
                | {"least_bytes": least, "requested_bytes": 9 * least, "gbps": least / t / 1e3}
                | {"rel_err": 1.7e-3, "max_err": 4e-3, "prepare_ms": 0.1, "prepare_bytes": 0.0}
                | {"graph": True, "sm_mhz": 1755.0, "power_w": 690.0, "throttle": ""}
                | {"gpu": "NVIDIA H200", "when": "2026-01-02T03:04:05+00:00"}
            )
    return pd.DataFrame(rows, columns=list(records.COLUMNS))


def rungs(sizes=(4096, 8192)) -> pd.DataFrame:
    shapes = [(size,) * 3 for size in sizes]
    return experiment("ladder", (*ORDER, "cusparselt", "cublaslt"), shapes)


def side(sizes=(2048, 4096, 8192), variants=("mma_sp", *STUDIES, "cusparselt")) -> pd.DataFrame:
    return experiment("studies", variants, [(size,) * 3 for size in sizes])


def metadata(rows: int) -> np.ndarray:
    """Of a random matrix, every uint16 another one, so that each can be followed."""
    for seed in range(100):
        meta = two_four.random(rows, 64, "bfloat16", seed).meta
        if len(np.unique(meta)) == meta.size or rows > 16:
            return meta
    raise AssertionError("no matrix has metadata without repetitions")


legible = drawn.legible


# ---------------------------------------------------------------- looks


def test_contenders_of_the_room_are_told_apart():
    libraries = [v for v in style.NAMES if v.startswith(("cusparselt", "cublaslt"))]
    looks = [style.look(variant, ORDER) for variant in (*ORDER, *libraries)]
    assert len(libraries) == 5
    assert len({look["marker"] for look in looks}) == len(looks)
    assert looks[0]["color"] == style.PUBLISHED and looks[4]["color"] == style.BEST
    assert {look["color"] for look in looks[5:]} == {style.BASELINE}
    with pytest.raises(ValueError, match="no variant 'x'"):
        style.look("x", ORDER)


# ---------------------------------------------------------------- pictures of the format


@pytest.mark.parametrize("dtype", two_four.DTYPES)
@pytest.mark.parametrize("row,first", [(0, 0), (2, 16)])
def test_meta_picture_is_of_the_arrays(dtype, row, first):
    a = two_four.random(3, 32, dtype, 1)
    fig, data = pictures.meta_picture(a, row, first)
    dense = np.zeros(16, np.float32)
    dense[data["column"] - first] = data["value"]
    np.testing.assert_array_equal(dense, two_four.to_dense(a)[row, first : first + 16])
    meta = int(a.meta[row, first // 16])
    assert set(data["meta"]) == {f"0x{meta:04X}"} and f"meta 0x{meta:04X}" in words(fig)
    packed = "".join(reversed(data["bits"]))
    assert int(packed, 2) == meta
    drawn = [t for t in fig.findobj(plt.Text) if re.fullmatch("[01]", t.get_text())]
    heights = [round(text.get_position()[1], 3) for text in drawn]
    (row_of_bits,) = {y for y in heights if heights.count(y) == 16}
    bits = [t for t, y in zip(drawn, heights, strict=True) if y == row_of_bits]
    bits = sorted((text.get_position()[0], text.get_text()) for text in bits)
    assert "".join(bit for _, bit in bits) == packed
    legible(fig)


def test_meta_picture_of_the_source_s_example():
    """[0, 2.1, -8.9, 0] has the positions 01 and 10, and the metadata 1001."""
    row = np.zeros((1, 16), np.float32)
    row[0, :4] = 0, 2.1, -8.9, 0
    fig, data = pictures.meta_picture(two_four.compress(row, "bfloat16"))
    assert data["bits"].tolist()[:2] == ["01", "10"] and data["meta"][0].endswith("9")
    assert data["value"].tolist()[2:] == [0] * 6  # groups without non-zeros store zeros
    legible(fig)


@pytest.mark.parametrize("row,first", [(3, 0), (-1, 0), (0, 8), (0, 32), (0, -16)])
def test_meta_picture_refuses_columns_that_do_not_exist(row, first):
    with pytest.raises(ValueError, match="There is no row"):
        pictures.meta_picture(two_four.random(3, 32, "bfloat16", 1), row, first)


def test_the_map_of_the_metadata_is_that_of_the_instruction():
    """PTX ISA, mma.sp.m16n8k32: lane 4g + t holds row g in the low half and row g + 8 in the high
    one; t of 0 and 1 with selector 0 the columns 0–15 and 16–31, t of 2 and 3 the next with 1."""
    data = pictures.metadata_map(64)
    assert len(data) == 256 and not data.duplicated(["row", "column"]).any()
    assert not data.duplicated(["register", "lane", "half"]).any()
    row = data["row"] % 16
    assert (data["lane"] == 4 * (row % 8) + data["column"]).all()
    assert (data["half"] == np.where(row < 8, "low", "high")).all()
    assert (data["register"] == data["row"] // 16).all()
    assert (data["selector"] == data["column"] // 2).all()


def test_lanes_picture_shows_every_value_once_in_memory_and_once_in_a_lane():
    meta = metadata(16)
    fig, data = pictures.lanes_picture(meta)
    said = words(fig)
    for value in meta.ravel():
        assert said.count(f"{value:04X}") == 1
        assert sum(f"{value:04X}" in text for text in said) == 2
    for place in data.itertuples():
        assert int(place.meta, 16) == meta[place.row, place.column]
    idle = [p for p in fig.get_axes()[0].patches if p.get_hatch()]
    assert len(idle) == 32  # sixteen lanes of each instruction, told by more than colour
    first = data[(data["lane"] == 0)].set_index("half")["meta"]
    assert f"{first['high'][2:]}\u2009{first['low'][2:]}" in said
    legible(fig)


def test_swizzle_picture_shows_both_orders():
    meta = metadata(16)
    fig, data = pictures.swizzle_picture(meta, 3)
    swizzled = two_four.swizzle(meta, 16, 64)
    rebuilt = np.zeros((8, 8), np.uint16)
    rebuilt[data["swizzled_row"], data["swizzled_column"]] = [int(v, 16) for v in data["meta"]]
    np.testing.assert_array_equal(rebuilt, swizzled)
    cells = [t for t in fig.findobj(plt.Text) if re.fullmatch("[0-9A-F]{4}", t.get_text())]
    cells.sort(key=lambda t: (round(t.get_position()[1], 3), t.get_position()[0]))
    right = [int(t.get_text(), 16) for t in cells if t.get_position()[0] > 10]
    left = [int(t.get_text(), 16) for t in cells if t.get_position()[0] < 10]
    assert right == swizzled.ravel().tolist() and left == meta.ravel().tolist()
    legible(fig)


def test_warp_metadata_is_one_ldmatrix():
    meta = metadata(64)
    fig, data = pictures.warp_metadata(meta)
    swizzled = two_four.swizzle(meta, 64, 64)
    assert swizzled.shape == (32, 8) and len(data) == 256
    for place in data.sample(40, random_state=0).itertuples():
        assert swizzled[place.swizzled_row, place.swizzled_column] == int(place.meta, 16)
        assert place.swizzled_row // 8 == place.register
    legible(fig)


@pytest.mark.parametrize("draw,rows", [("lanes_picture", 64), ("swizzle_picture", 8), ("warp_metadata", 16)])
def test_pictures_of_metadata_refuse_another_shape(draw, rows):
    with pytest.raises(ValueError, match=r"is of metadata of \d+ x 4 uint16"):
        getattr(pictures, draw)(np.zeros((rows, 4), np.uint16))
    with pytest.raises(ValueError, match="no row 8"):
        pictures.swizzle_picture(metadata(16), 8)


# ---------------------------------------------------------------- over the size


def test_throughput():
    fig, data = figures.throughput(experiment(), CEILINGS, ORDER)
    got = column(data, "tflops", variant="auto", size=4096)
    assert got == pytest.approx([rate("auto", 4096)])
    (ax,) = fig.get_axes()
    assert ax.get_xscale() == "log" and ax.get_ylim()[0] == 0
    roofs = {float(line.get_ydata()[0]) for line in ax.get_lines() if len(line.get_xdata()) == 2}
    assert set(CEILINGS.values()) <= roofs
    assert column(data, "tflops", source="ceiling", variant="mma.sp") == [1010.0]
    assert any("wgmma.sp\n1\u202f546" in text for text in words(fig))
    drawn = [line for line in ax.get_lines() if line.get_marker() not in ("", "None", None)]
    for variant, line in zip(figures.SHOWN, drawn, strict=True):
        np.testing.assert_allclose(line.get_xdata(), SIZES)
        np.testing.assert_allclose(line.get_ydata(), [rate(variant, size) for size in SIZES])
        took = [time(variant, size, size, size) for size in SIZES]
        assert column(data, "median_us", variant=variant) == pytest.approx(took)
        assert column(data, "q75_us", variant=variant) == pytest.approx([1.2 * t for t in took])
    assert labels(fig)[:2] == ["mma_sp", "auto"] and "cuBLASLt, dense" in labels(fig)
    legible(fig)


def test_ceilings_that_nearly_coincide_keep_their_names_apart():
    close = {"a": 900.0, "b": 905.0, "c": 910.0, "d": 1200.0}
    fig, _ = figures.throughput(experiment(), close, ORDER)
    legible(fig)


def test_throughput_of_what_there_is():
    fig, data = figures.throughput(experiment(variants=("mma_sp", "cublaslt")), {}, ORDER)
    assert set(data["variant"]) == {"mma_sp", "cublaslt"} and len(labels(fig)) == 2
    legible(fig)
    with pytest.raises(ValueError, match="none of mma_sp, auto.* label 'float16'"):
        figures.throughput(experiment(), {}, ORDER, label="float16")
    with pytest.raises(ValueError, match="none of .* at M = N = K"):
        figures.throughput(experiment(shapes=LLM), {}, ORDER)


def test_labels_and_experiments_are_not_mixed():
    half = experiment("float16", shapes=[(4096,) * 3], label="float16", scale=2.0)
    df = pd.concat([experiment(), half, experiment("ladder", shapes=[(4096,) * 3], scale=3.0)])
    _, data = figures.throughput(df, {}, ORDER)
    assert set(data["experiment"]) == {"square"} and set(data["label"]) == {""}
    assert not data.duplicated(["variant", "size"]).any()
    _, data = figures.throughput(df, {}, ORDER, label="float16")
    assert column(data, "tflops", variant="auto") == pytest.approx([rate("auto", 4096) / 2])


def test_per_cent_of_the_library_beside_what_is_stated():
    fig, data = figures.per_cent_of(experiment(), BENCHMARKS, ORDER)
    expected = 100 * rate("mma_sp", 8192) / rate("cusparselt", 8192)
    got = column(data, "per_cent", source="measured", variant="mma_sp", size=8192)
    assert got == pytest.approx([expected])
    assert drawn_in(fig.get_axes()[0], style.CLAIM) == [(4096, 98), (8192, 94)]
    assert len(data[data["source"] == "stated"]) == 2
    assert "cusparselt" not in set(data["variant"])
    assert figures.STATED in labels(fig)
    assert "cuSPARSELt, best algorithm = 100 %" in labels(fig)
    legible(fig)


def test_per_cent_of_another_baseline_without_published_numbers():
    fig, data = figures.per_cent_of(experiment(), None, ORDER, "cublaslt", ("mma_sp", "auto"))
    expected = 100 * rate("auto", 512) / rate("cublaslt", 512)
    assert column(data, "per_cent", variant="auto", size=512) == pytest.approx([expected])
    assert figures.STATED not in labels(fig)
    legible(fig)
    for variants in (("mma_sp",), ("cusparselt",)):
        with pytest.raises(ValueError, match="lack 'cusparselt' or anything"):
            figures.per_cent_of(experiment(variants=variants), None, ORDER)


def test_share_of_peak_is_of_each_contender_s_own():
    fig, data = figures.share_of_peak(experiment(), PEAKS, BENCHMARKS, ORDER)
    for variant, (what, peak) in PEAKS.items():
        got = column(data, "per_cent", source="measured", variant=variant, size=4096)
        assert got == pytest.approx([100 * rate(variant, 4096) / peak])
        assert any(text.endswith(f": of {what}") for text in labels(fig))
    stated = [
        (4096, 100 * 98.3 / 122.3),
        (4096, 100 * 100.1 / 122.3),
        (8192, 100 * 104.2 / 122.3),
        (8192, 100 * 109.6 / 122.3),
    ]
    np.testing.assert_allclose(drawn_in(fig.get_axes()[0], style.CLAIM), stated)
    legible(fig)
    with pytest.raises(ValueError, match="ceiling 'mma.sp' of 'mma_sp' is 0"):
        figures.share_of_peak(experiment(), {"mma_sp": ("mma.sp", 0)}, None, ORDER)


# ---------------------------------------------------------------- shapes of language models


def test_llm():
    fig, data = figures.llm(experiment("llm", shapes=LLM), ORDER)
    (ax,) = fig.get_axes()
    ticks = [text.get_text() for text in ax.get_yticklabels()]
    assert ticks[0] == "4\u202f096 × 4\u202f096 × 11\u202f008" and len(ticks) == len(LLM)
    at = {"variant": "auto", "n": 128}
    expected = time("cusparselt", 8192, 128, 8192) / time("auto", 8192, 128, 8192)
    assert column(data, "over_cusparselt", **at) == pytest.approx([expected])
    assert f"{100 * expected:.0f} %" in words(fig)
    dots = [line for line in ax.get_lines() if line.get_marker() not in ("", "None", None)]
    assert sum(len(line.get_xdata()) for line in dots) == len(LLM) * len(figures.SHOWN)
    legible(fig)


def test_of_many_contenders_those_between_are_grey():
    order = [*ORDER, "auto_again", "auto_last"] if len(ORDER) < 6 else ORDER
    df = experiment("llm", shapes=LLM)
    more = [df[df["variant"] == "mma_sp"].assign(variant=v) for v in order[1:-1]]
    df = pd.concat([df[~df["variant"].isin(order[1:-1])], *more], ignore_index=True)
    shown = [*order, "cusparselt", "cublaslt"]
    fig, data = figures.llm(df, order, order[-1], shown=shown)
    (grey,) = [line for line in fig.get_axes()[0].get_lines() if line.get_marker() == "|"]
    assert len(grey.get_xdata()) == len(LLM) * (len(order) - 2)
    assert set(order[1:-1]) <= set(data["variant"]) and "the other rungs" in words(fig)
    assert not set(order[1:-1]) & set(words(fig))
    legible(fig)


def test_llm_without_the_library_at_a_shape():
    df = experiment("llm", shapes=LLM)
    df = df[~((df["variant"] == "cusparselt") & (df["n"] == 128))]
    fig, data = figures.llm(df, ORDER)
    assert sum(text.endswith(" %") for text in words(fig)) == len(LLM) - 1
    assert np.isnan(column(data, "over_cusparselt", variant="auto", n=128)[0])
    fig, data = figures.llm(df[df["variant"] == "mma_sp"], ORDER)
    assert not any(text.endswith(" %") for text in words(fig))
    legible(fig)


# ---------------------------------------------------------------- ladder


def test_ladder():
    fig, data = figures.ladder(rungs(), RUNGS)
    (ax,) = fig.get_axes()
    assert [text.get_text() for text in ax.get_yticklabels()] == list(RUNGS)
    expected = rate("wgmma_ring", 8192) / rate("wgmma_one", 8192) - 1
    got = column(data, "gain", variant="wgmma_ring", size=8192)
    assert got == pytest.approx([expected])
    said = " ".join(words(fig)).replace("\n", " ")
    assert f"{100 * expected:+.0f} %" in said and RUNGS["wgmma_persistent"] in said
    bars = [p.get_width() for p in ax.patches if p.get_height() > 0]
    every = [rate(variant, size) for variant in RUNGS for size in (4096, 8192)]
    np.testing.assert_allclose(bars, every)
    assert {p.get_hatch() or "" for p in ax.patches} == {"", "////"}
    best = max(RUNGS, key=lambda variant: rate(variant, 8192))
    coloured = [p.get_width() for p in ax.patches if p.get_facecolor() == to_rgba(style.BEST)]
    np.testing.assert_allclose(sorted(coloured), sorted(rate(best, n) for n in (4096, 8192)))
    lines = {round(float(line.get_xdata()[0])) for line in ax.get_lines()}
    assert round(rate("cusparselt", 8192)) in lines and round(rate("cublaslt", 4096)) in lines
    assert "cuSPARSELt, best algorithm, 4\u202f096" in labels(fig)
    legible(fig)


def test_ladder_has_the_stated_share_of_the_library():
    fig, data = figures.ladder(rungs(), RUNGS, published=BENCHMARKS)
    stated = data.dropna(subset=["stated"]).set_index("size")["stated"]
    said = BENCHMARKS[BENCHMARKS["quantity"] == "speedup_cusparselt"].query("low == high")
    share = said[said["variant"] == "mma_sp"].set_index("size")["low"]
    assert len(stated) and set(stated.index) <= set(share.index)
    for size, value in stated.items():
        assert value == pytest.approx(share[size] * rate("cusparselt", size))
    drawn = [x for x, _ in drawn_in(fig.get_axes()[0], style.CLAIM)]
    np.testing.assert_allclose(drawn, sorted(stated))
    legible(fig)
    assert "stated" not in figures.ladder(rungs(), RUNGS)[1]


def test_a_rung_may_build_on_another_than_the_one_before():
    over = {"wgmma_ring": "mma_sp", "wgmma_persistent": "no_such"}
    fig, data = figures.ladder(rungs(), RUNGS, over=over)
    (got,) = column(data, "gain", variant="wgmma_ring", size=8192)
    assert got == pytest.approx(rate("wgmma_ring", 8192) / rate("mma_sp", 8192) - 1)
    others = data[data["variant"].isin(RUNGS) & (data["variant"] != "wgmma_ring")]
    assert others["gain"].isna().all()
    assert "what it builds on" in " ".join(words(fig))


def test_ladder_of_what_was_measured():
    df = rungs(sizes=(4096,))
    df = df[df["variant"].isin(["mma_sp", "wgmma_ring"])]
    fig, data = figures.ladder(df, RUNGS)
    assert data["variant"].tolist() == ["mma_sp", "wgmma_ring"]
    assert np.isnan(data["gain"][0]) and data["prediction"][1] == RUNGS["wgmma_ring"]
    assert "–" in words(fig) and len(labels(fig)) == 1
    legible(fig)
    with pytest.raises(ValueError, match="none of mma_sp, wgmma_one"):
        figures.ladder(experiment(variants=("cublaslt",)), RUNGS)
    with pytest.raises(ValueError, match="up to 3 sizes, with up to 2 libraries"):
        figures.ladder(experiment(), RUNGS)


# ---------------------------------------------------------------- side studies


def test_studies():
    fig, data = figures.studies(side(), STUDIES, DESIGN)
    (ax,) = fig.get_axes()
    assert [text.get_text() for text in ax.get_yticklabels()] == list(STUDIES.values())
    expected = 100 * rate("mma_sp_ca", 4096) / rate("mma_sp", 4096)
    got = column(data, "per_cent", source="measured", variant="mma_sp_ca", size=4096)
    assert got == pytest.approx([expected])
    ca, two_warps = list(STUDIES).index("mma_sp_ca"), list(STUDIES).index("mma_sp_two_warps")
    ((x, y),) = drawn_in(ax, style.CLAIM)
    assert x == pytest.approx(90) and round(y) == ca
    (arrow,) = [t for t in ax.texts if getattr(t, "arrow_patch", None) is not None]
    assert round(arrow.xyann[1] if hasattr(arrow, "xyann") else arrow.xy[1]) == two_warps
    stated = data[data["source"] == "stated"]
    assert set(stated["variant"]) == {"mma_sp_ca", "mma_sp_two_warps"}
    assert len({marker for line in ax.get_lines() if (marker := line.get_marker()) in "osD"}) == 3
    legible(fig)


def test_studies_of_what_was_measured():
    df = side(sizes=(4096,), variants=("mma_sp", "mma_sp_x2", "cusparselt"))
    fig, data = figures.studies(df, STUDIES | {"cusparselt": ""}, None)
    assert data["variant"].tolist() == ["mma_sp_x2", "cusparselt"]
    assert "cuSPARSELt, best algorithm" in words(fig)
    legible(fig)
    with pytest.raises(ValueError, match="lack 'mma_sp' or any"):
        figures.studies(df[df["variant"] != "mma_sp"], STUDIES, None)
    with pytest.raises(ValueError, match="lack 'mma_sp' or any"):
        figures.studies(df[df["variant"] == "mma_sp"], STUDIES, None)


# ---------------------------------------------------------------- on a page


def made() -> dict:
    example = np.zeros((1, 16), np.float32)
    example[0, [1, 2, 4, 7, 9, 10, 12, 15]] = 2.1, -8.9, 0.5, 0.25, -1.5, 3, 0.75, -0.125
    df = experiment()
    return {
        "meta": pictures.meta_picture(two_four.compress(example, "bfloat16")),
        "lanes": pictures.lanes_picture(metadata(16)),
        "swizzle": pictures.swizzle_picture(metadata(16)),
        "warp": pictures.warp_metadata(metadata(64)),
        "throughput": figures.throughput(df, CEILINGS, ORDER),
        "per_cent": figures.per_cent_of(df, BENCHMARKS, ORDER),
        "peak": figures.share_of_peak(df, PEAKS, BENCHMARKS, ORDER),
        "llm": figures.llm(experiment("llm", shapes=LLM), ORDER),
        "ladder": figures.ladder(rungs(), RUNGS),
        "studies": figures.studies(side(), STUDIES | {"cusparselt": ""}, DESIGN),
    }


def test_every_figure_can_be_shown_with_the_shipped_numbers():
    page = ""
    for name, (fig, data) in made().items():
        legible(fig)
        shown = style.show(fig, "tensor_core_24", name, data, f"Alt of {name}.", "Caption.")
        root = ElementTree.fromstring(shown.svg_path.read_text())
        assert root.get("aria-label") == f"Alt of {name}." and root.get("role") == "img"
        assert style.INK not in shown.markup and "currentColor" in shown.markup
        assert len(pd.read_csv(shown.csv_path)) == len(data)
        page += shown.markup
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
