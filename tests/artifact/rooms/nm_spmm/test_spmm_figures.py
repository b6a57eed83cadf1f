"""The charts of nm_spmm, on records of a made-up machine that are good for nothing else."""

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
from matplotlib.colors import to_hex

from artifact import paths
from artifact.drawing import style
from artifact.measure import records
from artifact.profiling import ncu
from artifact.rooms.nm_spmm import figures as spmm_figures
from artifact.rooms.nm_spmm import results, trial
from kernels.nm_spmm import analysis, family, operands

legible = drawn.legible
KEPT = (0.5, 0.375, 0.25, 0.125)
ALL = (1.0, *KEPT)
FMA = 65.5
CUBE = (4096,) * 3
#: Rate of useful work in TFLOP/s, at no sparsity and at most; time of a launch in µs.
MODEL = {
    "v1": (46, 24, 3.0),
    "v2": (46, 31, 3.1),
    "v3": (48, 38, 3.0),
    "wide": (53, 42, 3.4),
    "banks": (53.5, 43, 3.4),
    "bulk": (54, 44, 3.6),
    "turned": (55, 45, 3.6),
    "auto": (56, 46, 2.8),
    "small": (30, 22, 2.2),
    "medium": (40, 31, 2.6),
    "large": (48, 38, 4.0),
    "nm_baseline": (26, 25, 3.3),
    "nmsparse_vw32": (23, 22, 3.3),
    "cublas": (51, 51, 4.0),
}
TABLE_2 = {label: shape for label, (_, shape) in analysis.TABLE_2.items()}
FIG9 = records.published(registry.published("nm_spmm", "fig9"))
TEXT = records.published(registry.published("nm_spmm", "text"))
POINTS = [tuple(p) for p in FIG9[["m", "n", "k"]].drop_duplicates().to_numpy().tolist()]


def time(variant: str, m: int, n: int, k: int, density: float) -> float:
    """µs"""
    dense, sparse, launch = MODEL[variant]
    share = 1.0 if variant.startswith("cublas") else density
    rate = sparse + (dense - sparse) * (density - 0.125) / 0.875
    return launch + 2.0 * m * n * k * share / rate / 1e6


def rate(variant: str, m: int, n: int, k: int, density: float) -> float:
    share = 1.0 if variant.startswith("cublas") else density
    return 2.0 * m * n * k * share / time(variant, m, n, k, density) / 1e6


def speedup(variant: str, m: int, n: int, k: int, density: float) -> float:
    return time("cublas", m, n, k, density) / time(variant, m, n, k, density)


def rows_of(name, points, label="") -> pd.DataFrame:
    """points: (variant, (m, n, k), density, µs[, label])."""
    made = []
    for variant, (m, n, k), density, t, *own in points:
        flops = 2.0 * m * n * k * density
        made.append(
            {"room": "nm_spmm", "experiment": name, "variant": variant}
            | {"label": own[0] if own else label, "m": m, "n": n, "k": k, "density": density}
            | {"median_us": t, "q25_us": t, "q75_us": t, "samples": 50, "flops_def": "2·M·N·W"}
            | {"useful_flops": flops, "tflops": flops / t / 1e6, "gpu": "NVIDIA H200"}
        )
    return pd.DataFrame(made).reindex(columns=list(records.COLUMNS))


def experiment(name, variants, shapes=(CUBE,), densities=ALL, label="", scale=1.0):
    points = [(v, s, d, scale * time(v, *s, d)) for s in shapes for d in densities for v in variants]
    return rows_of(name, points, label)


def stepwise() -> pd.DataFrame:
    return experiment("stepwise", spmm_figures.STEPWISE)


def sizes() -> pd.DataFrame:
    return experiment("sizes", spmm_figures.SIZES, TABLE_2.values())


def llama(points=POINTS, densities=KEPT) -> pd.DataFrame:
    return experiment("llama", (*spmm_figures.LLAMA, "cublas"), points, densities)


def counters(size=4096, variants=spmm_figures.PROFILED) -> pd.DataFrame:
    """FLOP per byte of DRAM, L2 and shared memory are 100, 10 and 5, times the place and the density."""
    found = []
    for place, variant in enumerate(variants, 1):
        for density in KEPT:
            share = 1.0 if variant == "cublas" else density
            flops, per = 2.0 * size**3 * share, place * (1 + share)
            values = {
                ncu.TIME: 1e3 * time(variant, size, size, size, density),
                "dram__bytes_read.sum": 0.75 * flops / (100 * per),
                "dram__bytes_write.sum": 0.25 * flops / (100 * per),
                "lts__t_sectors_op_read.sum": flops / (10 * per) / 32,
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": flops / (5 * per) / 128,
            }
            at = (variant, size, size, size, density)
            found += [(*at, metric, value, "") for metric, value in values.items()]
    return pd.DataFrame(found, columns=list(records.COUNTER_COLUMNS))


CEILINGS = {"FMA": FMA, "DRAM": 4272.0, "L2": 10978.0, "shared memory": 32904.0}
EQ3 = {
    (variant, density): analysis.intensity(rows, columns, density)
    for variant, rows, columns in (("auto", 128, 256), ("v3", 64, 128), ("nm_baseline", 32, 32))
    for density in KEPT
}
ANCHORS = pd.DataFrame(
    [
        (*shape, density, library, share / density)
        for shape in ((512, 512, 512), (2048, 4096, 4096), CUBE, (4096, 22016, 8192))
        for density in KEPT
        for library, share in (("nm_spmm", 0.8), ("nmsparse", 0.45))
    ],
    columns=["m", "n", "k", "density", "library", "speedup"],
)
SHAPES = list(dict.fromkeys(ANCHORS[["m", "n", "k"]].itertuples(index=False, name=None)))
TENSOR = (1.0, 0.5, 0.25, 0.125, 0.0625)


def anchors(shapes=tuple(SHAPES)) -> pd.DataFrame:
    return experiment("anchors", ("auto", "v3", "nm_baseline", "cublas"), shapes, KEPT)


def tensor(gain=(("tf32", 3.0), ("bfloat16", 6.0)), lengths=(32, 128)) -> pd.DataFrame:
    """A variant wins at the density under which density · gain < 1, twice as early at length 128."""
    points = []
    for dtype, factor in gain:
        variant, library, _ = spmm_figures.TENSOR[dtype]
        for length in lengths:
            label = dtype + ("" if length == 32 else f", vectors of {length}")
            for size in ((4096,) * 3, (8192,) * 3):
                dense = 2.0 * size[0] ** 3 / 700e6
                for density in TENSOR:
                    own = dense * density * factor * (1.0 if length == 32 else 0.5)
                    points.append((variant, size, density, own, label))
                    points.append((library, size, density, dense, label))
    return rows_of("tensor", points)


def vectors() -> pd.DataFrame:
    points = []
    for window in (4, 8, 16, 32):
        for length in (4, 8, 16, 32, 64, 128):
            for density in (d for d in (0.5, 0.25, 0.125) if d * window >= 1):
                label = operands._label(int(density * window), window, length, "float32")
                for variant, best in (("auto", 50), ("v3", 44)):
                    own = best * (1 - 1 / length) - 4 * np.log2(32 / window) * density
                    points.append((variant, (2048,) * 3, density, 2.0 * 2048**3 * density / own / 1e6, label))
    return rows_of("vectors", points)


def transition() -> pd.DataFrame:
    devices = [*analysis.TABLE_3.values()]
    devices.append(analysis.Device("H200", 132, 1980, FMA, 4272, 228 << 10, 50 << 20))
    return pd.DataFrame(
        [
            (
                device.name,
                kind,
                sparsity,
                analysis.intensity(64, 128, 1 - sparsity, share=share(sparsity)),
                device.ridge,
            )
            for device in devices
            for kind, share in (
                ("staged whole", lambda _: 1.0),
                ("packed, 4 vectors", lambda s: analysis.needed_share(1 - s, 4)),
            )
            for sparsity in np.linspace(0, 0.99, 199)
        ],
        columns=["gpu", "kind", "sparsity", "intensity", "ridge"],
    )


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    style.apply()
    yield tmp_path
    plt.close("all")


def marked(ax) -> list[tuple[float, float]]:
    """Points of an axes that have a marker of the measured, in the order in which they are drawn."""
    return [
        tuple(point)
        for line in ax.get_lines()
        if line.get_marker() not in ("", "None", None) and line.get_markeredgecolor() != style.CLAIM
        for point in line.get_xydata()
    ]


# ---------------------------------------------------------------- looks, labels


def test_contenders_of_a_figure_are_told_apart():
    """A few share a look, which no figure shows side by side."""
    for shown in (
        spmm_figures.STEPWISE,
        spmm_figures.SIZES,
        spmm_figures.LLAMA,
        ("v3", "v3_split_k", "v3_packed", "v3_unpacked", "wide", "bulk", "cluster", "auto"),
        (*family.RUNGS, "v3", "auto", "cublas"),
        ("auto", "v3", "cublas", "cublas_tf32", "nm_baseline", "cusparse_best"),
        ("tf32", "bf16", "cublas"),
    ):
        looks = [spmm_figures.look(variant) for variant in shown]
        assert len({str(look["marker"]) for look in looks}) == len(shown), shown
    assert spmm_figures.look("v3")["color"] == style.PUBLISHED
    assert spmm_figures.look("auto")["color"] == style.BEST
    assert {look[0] for look in spmm_figures.LOOKS.values()} <= set(style.PALETTE.values())
    with pytest.raises(ValueError, match="no variant 'x'"):
        spmm_figures.look("x")


@pytest.mark.parametrize("dtype", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("window,length", [(32, 32), (32, 8), (16, 32), (4, 128), (8, 1)])
def test_pattern_reads_the_labels_of_the_room(dtype, window, length):
    label = operands._label(window // 2, window, length, dtype)
    assert spmm_figures.pattern(label) == (window, length)


# ---------------------------------------------------------------- step by step


def test_stepwise():
    fig, data = spmm_figures.stepwise(stepwise(), FMA, TEXT)
    measured = data[data["source"] == "measured"]
    for variant in ("v1", "auto", "nmsparse_vw32"):
        for density in ALL:
            at = {"variant": variant, "density": density}
            expected = rate(variant, *CUBE, density)
            assert column(measured, "tflops", **at) == pytest.approx([expected])
            assert column(measured, "per_cent", **at) == pytest.approx([100 * expected / FMA])
            over = time("v1", *CUBE, density) / time(variant, *CUBE, density)
            assert column(measured, "over_base", **at) == pytest.approx([over])
    assert column(measured, "density", variant="cublas") == [1.0]
    (ax,) = fig.get_axes()
    assert len(marked(ax)) == 9 * 5 + 1 and ax.get_ylim()[0] == 0
    assert (0, pytest.approx(100 * rate("v3", *CUBE, 1.0) / FMA)) in marked(ax)
    assert {style.name(v) for v in spmm_figures.STEPWISE} <= set(words(fig))  # at their lines
    legible(fig)


def test_stepwise_draws_the_stated_share_of_the_peak_at_our_contender():
    fig, data = spmm_figures.stepwise(stepwise(), FMA, TEXT)
    stated = [(round(x), round(y / 100, 2)) for x, y in drawn_in(fig.get_axes()[0], style.CLAIM)]
    v3, baseline = (0.96, 0.93, 0.95, 0.88), (0.64, 0.63, 0.49, 0.73)
    assert sorted(stated) == sorted((i, s) for each in (v3, baseline) for i, s in enumerate(each, 1))
    found = data[data["source"] == "stated"]
    assert column(found, "stated", variant="v3") == list(v3)
    assert column(found, "library", density=0.5) == ["nm_spmm", "nmsparse"]
    assert {"NM-SpMM, stated", "nmSPARSE, stated"} <= set(words(fig))
    alone = spmm_figures.stepwise(stepwise(), FMA, TEXT, ("v1", "v2", "v3"))[0]
    assert "nmSPARSE, stated" not in words(alone)  # whose contender is not shown


def test_stepwise_of_what_was_measured():
    df = experiment("stepwise", ("v3", "auto"), densities=(0.25, 0.5))
    fig, data = spmm_figures.stepwise(df, FMA, base="v3")
    assert set(data["variant"]) == {"v3", "auto"} and not fig.legends
    assert {"v3", "auto"} <= set(words(fig))
    assert column(data, "over_base", variant="v3", density=0.5) == [1.0]
    legible(fig)
    with pytest.raises(ValueError, match="lack 'v1', which"):
        spmm_figures.stepwise(df, FMA)
    with pytest.raises(ValueError, match="of one size, and the records have 2"):
        spmm_figures.stepwise(experiment("x", ("v1",), (CUBE, (512,) * 3)), FMA)
    with pytest.raises(ValueError, match="none of v1, v2, .*with label 'tf32'"):
        spmm_figures.stepwise(stepwise(), FMA, label="tf32")


def test_the_first_of_two_experiments_counts():
    twice = pd.concat([stepwise(), experiment("again", ("auto",), scale=2.0)])
    _, data = spmm_figures.stepwise(twice, FMA)
    assert set(data["experiment"]) == {"stepwise"}
    assert not data.duplicated(["variant", "density"]).any()


# ---------------------------------------------------------------- sizes


def test_sizes():
    fig, data = spmm_figures.sizes(sizes(), TABLE_2, FMA)
    for label, shape in TABLE_2.items():
        at = {"size": label, "variant": "medium", "density": 0.25}
        expected = 100 * rate("medium", *shape, 0.25) / FMA
        assert column(data, "per_cent", **at) == pytest.approx([expected])
    assert set(data.loc[data["variant"] == "cublas", "density"]) == {1.0}
    (ax,) = fig.get_axes()
    assert len(marked(ax)) == len(data) == 4 * 5 * 6 + 6
    ticks = [text.get_text() for text in ax.get_xticklabels()]
    assert ticks == [*"ABCDEF"] * 5
    # The sixth size of the second region, of "large".
    assert (12, pytest.approx(100 * rate("large", *CUBE, 0.5) / FMA)) in marked(ax)
    assert "87.5 % sparsity" in words(fig)
    legible(fig)


def test_sizes_have_what_the_authors_published_beside():
    stated = results.published_sizes(trial.stated(paths.HOME))
    assert len(stated) == len(TABLE_2) * 5 and set(stated["library"]) <= set(results.CLASSES)
    best = stated.query("m == n == k == 4096 and density == 1")
    assert best["per_cent"].item() == pytest.approx(100 * 18.609482 / 19.5, rel=1e-6)
    fig, data = spmm_figures.sizes(sizes(), TABLE_2, FMA, stated)
    (ax,) = fig.get_axes()
    hollow = [line for line in ax.get_lines() if line.get_markerfacecolor() == "none"]
    assert [len(line.get_xdata()) for line in hollow] == [6] * 5
    assert (data["source"] == "stated").sum() == len(stated)
    assert "best of theirs, stated, % of the A100's peak" in words(fig)
    legible(fig)


def test_sizes_of_what_was_measured():
    df = sizes()
    some = {"A": TABLE_2["A"], "F": TABLE_2["F"]}
    fig, data = spmm_figures.sizes(df[df["density"] != 1], some, FMA)
    assert set(data["size"]) == {"A", "F"} and "cublas" not in set(data["variant"])
    legible(fig)
    with pytest.raises(ValueError, match="none of the sizes X"):
        spmm_figures.sizes(df, {"X": (7, 7, 7)}, FMA)


# ---------------------------------------------------------------- Llama's layers


def test_llama_draws_every_point_and_the_published_series():
    fig, data = spmm_figures.llama(llama(), FIG9)
    axes = fig.get_axes()
    assert len(axes) == 4
    for ax, density in zip(axes, KEPT, strict=True):
        assert len(marked(ax)) == 4 * 100
        point = 37
        shape = POINTS[point]
        assert any(x == point and y == pytest.approx(speedup("auto", *shape, density)) for x, y in marked(ax))
        theirs = [
            line for line in ax.get_lines() if line.get_color() == style.CLAIM and line.get_marker() in ("", "None")
        ]
        assert sum(len(line.get_xdata()) for line in theirs) == 3 * 100
        assert len({str(line._dash_pattern) for line in theirs}) == 3
        lines = {float(line.get_ydata()[0]) for line in ax.get_lines() if len(line.get_ydata()) == 2}
        assert {1.0, 1 / density} <= lines  # cuBLAS, and the ideal
    stated = data[data["source"] == "stated"]
    assert set(stated["gpu"]) == {"A100"} and len(stated) == 3 * 4 * 100
    one = FIG9[(FIG9["gpu"] == "A100") & (FIG9["point"] == 3)].set_index(["library", "density"])
    expected = one.loc[("nm_spmm", 0.25), "tflops"] / one.loc[("cublas", 1), "tflops"]
    at = {"library": "nm_spmm", "density": 0.25, "place": 3}
    assert column(stated, "speedup", **at) == pytest.approx([expected])
    assert {"NM-SpMM, A100", "Sputnik, A100", "ideal, M/N", "cuBLAS SGEMM"} <= set(labels(fig))
    legible(fig)


def test_llama_breaks_its_lines_where_m_changes():
    fig, _ = spmm_figures.llama(llama(), FIG9)
    green = [x for x in fig.get_axes()[0].get_lines() if x.get_color() == style.BEST]
    assert [len(line.get_xdata()) for line in green] == [20] * 5
    assert [float(line.get_xdata()[0]) for line in green] == [0, 20, 40, 60, 80]


def test_llama_of_a_few_points():
    few = [POINTS[i] for i in (5, 50, 99)]
    fig, data = spmm_figures.llama(llama(few, (0.5, 0.125)), FIG9, "RTX 4090", ("auto",))
    assert sorted(set(data.loc[data["source"] == "measured", "place"])) == [5, 50, 99]
    assert "NM-SpMM, RTX 4090" in labels(fig) and "v3" not in labels(fig)
    legible(fig)
    fig, data = spmm_figures.llama(llama(few, (0.5,)))
    assert sorted(set(data["place"])) == [0, 1, 2] and set(data["source"]) == {"measured"}
    legible(fig)
    with pytest.raises(ValueError, match="no GPU 'H100'"):
        spmm_figures.llama(llama(few), FIG9, "H100")
    with pytest.raises(ValueError, match="no point of the published series"):
        spmm_figures.llama(llama([(7, 7, 7)]), FIG9)
    with pytest.raises(ValueError, match="no point of 'cublas' and one of"):
        spmm_figures.llama(llama(few)[lambda d: d["variant"] != "cublas"], FIG9)


def test_llama_of_every_gpu():
    fig, data = spmm_figures.llama_gpus(FIG9, llama(), measured_on="H200")
    axes = fig.get_axes()
    assert len(axes) == 16
    assert [ax.get_title() for ax in axes[:4]] == ["H200", "A100", "RTX 3090", "RTX 4090"]
    assert len(data[data["source"] == "stated"]) == 3 * 3 * 4 * 100
    for row in range(4):
        assert len({ax.get_ylim() for ax in axes[4 * row : 4 * row + 4]}) == 1
    drawn = sum(len(line.get_xdata()) for line in axes[0].get_lines() if line.get_color() == style.BEST)
    assert drawn == 100 and not marked(axes[1])
    legible(fig)


def test_llama_of_every_gpu_without_records():
    fig, data = spmm_figures.llama_gpus(FIG9)
    assert len(fig.get_axes()) == 12 and "auto" not in labels(fig)
    assert len(data) == 3600
    legible(fig)
    with pytest.raises(ValueError, match="no library beside cuBLAS"):
        spmm_figures.llama_gpus(FIG9[FIG9["library"] != "cublas"])


def test_llama_means_are_geometric():
    fig, data = spmm_figures.llama_means(llama(), FIG9, measured_on="H200")
    own = [speedup("v3", *point, 0.375) for point in POINTS]
    at = {"gpu": "H200", "contender": "v3", "density": 0.375}
    assert column(data, "mean", **at) == pytest.approx([records.geomean(own)])
    assert column(data, "least", **at) == pytest.approx([min(own)])
    assert column(data, "most", **at) == pytest.approx([max(own)])
    # The text: 1.8, 2.4, 3.5 and 6.3 times cuBLAS on the A100.
    stated = [column(data, "mean", gpu="A100", contender="nm_spmm", density=d)[0] for d in KEPT]
    np.testing.assert_allclose(stated, (1.8, 2.4, 3.5, 6.3), rtol=0.04)
    assert (data["points"] == 100).all() and len(data) == 4 * 4 + 3 * 3 * 4
    assert len(drawn_in(fig.get_axes()[1], style.CLAIM)) == 12
    legible(fig)


# ---------------------------------------------------------------- roofline


def test_counted_is_what_the_counters_say():
    data = spmm_figures.counted(counters())
    assert len(data) == 3 * 4 + 1  # cuBLAS does the same at every density
    row = data[(data["variant"] == "v3") & (data["density"] == 0.25)].iloc[0]
    flops = 2.0 * 4096**3 * 0.25
    assert row["useful_flops"] == flops
    assert row["tflops"] == pytest.approx(rate("v3", *CUBE, 0.25))
    assert row["dram_bytes"] == pytest.approx(flops / (100 * 2 * 1.25))
    assert row["l2_bytes"] == pytest.approx(flops / (10 * 2 * 1.25))
    assert row["shared_bytes"] == pytest.approx(flops / (5 * 2 * 1.25))
    cublas = data[data["variant"] == "cublas"].iloc[0]
    assert cublas["useful_flops"] == 2.0 * 4096**3
    with pytest.raises(ValueError, match=f"no counters of auto, .* with {ncu.TIME}"):
        spmm_figures.counted(counters()[lambda d: d["metric"] != ncu.TIME])


def test_counted_knows_other_names_and_missing_counters():
    other = counters().replace({"metric": ncu.OTHER_NAMES})
    data = spmm_figures.counted(other)
    np.testing.assert_allclose(data["dram_bytes"], spmm_figures.counted(counters())["dram_bytes"])
    less = counters()[lambda d: ~d["metric"].str.startswith("dram")]
    data = spmm_figures.counted(less)
    assert data["dram_bytes"].isna().all() and data["l2_bytes"].notna().all()
    fig, _ = spmm_figures.roofline(less, EQ3, CEILINGS)
    assert not marked(fig.get_axes()[1]) and len(marked(fig.get_axes()[2])) == 13


def test_roofline():
    fig, data = spmm_figures.roofline(counters(), EQ3, CEILINGS, TEXT)
    eq3, dram, l2, shared = fig.get_axes()
    measured = data[data["source"] == "measured"]
    for ax, what in ((eq3, "eq3"), (dram, "dram"), (l2, "l2"), (shared, "shared")):
        expected = measured.dropna(subset=[what])
        np.testing.assert_allclose(sorted(marked(ax)), sorted(zip(expected[what], expected["tflops"], strict=True)))
        assert ax.get_xscale() == ax.get_yscale() == "log"
        assert all(ax.get_xlim()[0] < x < ax.get_xlim()[1] for x, _ in marked(ax))
    assert len(marked(eq3)) == 12 and len(marked(dram)) == 13  # cuBLAS has no Eq. 3
    assert column(measured, "eq3", variant="v3", density=0.5) == [EQ3["v3", 0.5]]
    assert any("shared memory 32.9 TB/s" in text for text in words(fig))
    stated = [(EQ3["v3", d], s * FMA) for d, s in zip(KEPT, (0.96, 0.93, 0.95, 0.88), strict=True)]
    for point in stated:
        assert any(np.allclose(point, drawn) for drawn in drawn_in(eq3, style.CLAIM))
    markers = {line.get_markersize() for line in dram.get_lines() if line.get_marker() == "o"}
    assert len(markers) == 4 and min(markers) >= 6  # a size for each sparsity
    legible(fig)


def test_roofline_refuses_what_is_missing_or_mixed():
    with pytest.raises(ValueError, match="needs the ceilings L2, shared memory"):
        spmm_figures.roofline(counters(), EQ3, {"FMA": FMA, "DRAM": 4272.0})
    with pytest.raises(ValueError, match="the counters are of several"):
        both = pd.concat([counters(), counters(2048)])
        spmm_figures.roofline(both, EQ3, CEILINGS)


# ---------------------------------------------------------------- anchors


def test_anchors():
    fig, data = spmm_figures.anchors(anchors(), ANCHORS)
    axes = fig.get_axes()
    assert [ax.get_title(loc="left") for ax in axes] == [f"{s:g} % sparsity" for s in (50, 62.5, 75, 87.5)]
    for ax, density in zip(axes, KEPT, strict=True):
        ours = [speedup("auto", *shape, density) for shape in SHAPES]
        mean = records.geomean(ours)
        assert column(data[data["m"].isna()], "speedup", contender="auto", density=density) == pytest.approx([mean])
        xs = [x for x, _ in marked(ax)]
        assert all(any(np.isclose(x, v) for x in xs) for v in [*ours, mean])
        stated = [x for x, _ in drawn_in(ax, style.CLAIM)]
        assert sum(np.isclose(x, 0.8 / density) for x in stated) == len(SHAPES) + 1
        ratios = [v / (0.8 / density) for v in [*ours, mean]]
        said = [t.get_text() for t in ax.texts if t.get_text().endswith("×")]
        assert said == [f"{ratio:.2f}×" for ratio in ratios]
        lines = {float(line.get_xdata()[0]) for line in ax.get_lines() if len(line.get_xdata()) == 2}
        assert {1.0, 1 / density} <= lines
    ticks = [text.get_text() for text in axes[0].get_yticklabels()]
    assert ticks[-1] == "geometric mean" and ticks[0] == "512 × 512 × 512"
    legible(fig)


def test_anchors_of_what_was_measured():
    fig, data = spmm_figures.anchors(anchors(SHAPES[:2]), ANCHORS[ANCHORS["density"] == 0.25])
    assert set(data["density"]) == {0.25} and len(fig.get_axes()) == 1
    assert set(data["m"].dropna()) == {512, 2048}
    legible(fig)
    # A shape that lacks a contender is drawn, and not in the mean.
    df = anchors()
    df = df[~((df["variant"] == "v3") & (df["m"] == 512))]
    fig, data = spmm_figures.anchors(df, ANCHORS)
    assert set(data.loc[data["m"].isna(), "points"]) == {3}
    with pytest.raises(ValueError, match="no shape in common"):
        spmm_figures.anchors(anchors([(7, 7, 7)]), ANCHORS)


# ---------------------------------------------------------------- tensor cores


def test_tensor_says_from_which_sparsity_on_it_wins():
    fig, data = spmm_figures.tensor(tensor())
    top, other, below, _ = fig.get_axes()
    for dtype, label, factor in (
        ("TF32", "tf32", 3),
        ("TF32", "tf32, vectors of 128", 1.5),
        ("BF16", "bfloat16", 6),
        ("BF16", "bfloat16, vectors of 128", 3),
    ):
        rows = data[data["label"] == label]
        np.testing.assert_allclose(rows["speedup"], 1 / (rows["density"] * factor))
        np.testing.assert_allclose(rows["crossing"], 1 - 1 / factor)
        assert f"≥ {100 * (1 - 1 / factor):.0f} %" in words(fig)
        assert any(dtype in ax.get_title() for ax in (top, other))
    assert len(marked(top)) == 2 * 2 * 5
    crossings = sorted({round(1 - 1 / x, 4) for x, _ in marked(below)})
    assert crossings == [pytest.approx(1 / 3, abs=1e-4), pytest.approx(2 / 3, abs=1e-4)]
    assert top.get_xscale() == top.get_yscale() == "log"
    assert "L = 128, 8\u202f192³" in labels(fig)
    legible(fig)


@pytest.mark.parametrize("factor,said,crossing", [(0.9, "0 %", 0.0), (99.0, "never", np.nan)])
def test_tensor_wins_always_or_never(factor, said, crossing):
    fig, data = spmm_figures.tensor(tensor([("tf32", factor)], (32,)))
    assert said in words(fig)
    np.testing.assert_array_equal(data["crossing"], crossing)
    assert set(data["variant"]) == {"tf32"}
    legible(fig)


def test_the_last_crossing_counts():
    density = np.array([1, 0.5, 0.25, 0.125])
    assert spmm_figures.crossing_of(density, np.array([1.2, 0.5, 2.0, 3.0])) == pytest.approx(1 - 2**-1.5)
    assert np.isnan(spmm_figures.crossing_of(density, np.array([1.2, 2.0, 2.0, 0.9])))


def test_tensor_needs_a_variant_beside_its_library():
    df = tensor()
    with pytest.raises(ValueError, match="no tf32 or bf16 beside cuBLAS"):
        spmm_figures.tensor(df[df["variant"].isin(["tf32", "bf16"])])
    with pytest.raises(ValueError, match="room for 7 lines, not 8"):
        spmm_figures.tensor(tensor(lengths=(16, 32, 64, 128)))


# ---------------------------------------------------------------- vector length, transition


def test_vectors():
    fig, data = spmm_figures.vectors(vectors(), FMA)
    axes = fig.get_axes()
    assert [ax.get_title() for ax in axes] == [f"{s:g} % sparsity" for s in (50, 75, 87.5)]
    for ax, windows in zip(axes, (4, 4, 3), strict=True):  # 87.5 % of 4 rows is none
        assert len(marked(ax)) == 2 * 6 * windows
        assert ax.get_xscale() == "log"
    at = {"variant": "auto", "window": 8, "vector": 64, "density": 0.25}
    expected = 50 * (1 - 1 / 64) - 4 * 2 * 0.25
    assert column(data, "tflops", **at) == pytest.approx([expected])
    assert labels(fig) == ["M = 4", "M = 8", "M = 16", "M = 32", "FMA ceiling", "auto", "v3"]
    hollow = [line for line in axes[0].get_lines() if line.get_markerfacecolor() == "none"]
    assert len(hollow) == 4  # the second contender, told by more than colour
    legible(fig)


def test_vectors_of_one_contender_at_one_size():
    fig, data = spmm_figures.vectors(vectors(), shown=("v3",))
    assert set(data["variant"]) == {"v3"} and "FMA ceiling" not in labels(fig)
    legible(fig)
    with pytest.raises(ValueError, match="one contender or two"):
        spmm_figures.vectors(vectors(), shown=("v1", "v2", "v3"))
    with pytest.raises(ValueError, match="the records are of several"):
        spmm_figures.vectors(pd.concat([vectors(), stepwise()]))


def test_transition_marks_where_memory_becomes_the_limit():
    df = transition()
    fig, data = spmm_figures.transition(df)
    a100 = data[(data["gpu"] == "A100") & (data["kind"] == "staged whole")]
    expected = analysis.transition(analysis.TABLE_3["A100"], 64, 128)
    assert a100["crossing"].iloc[0] == pytest.approx(expected, abs=0.002)
    assert set(data.loc[data["gpu"] == "RTX 4090", "crossing"]) == {0.0}
    packed = data[(data["gpu"] == "A100") & (data["kind"] == "packed, 4 vectors")]
    assert packed["crossing"].isna().all()
    (x, y), *rest = marked(fig.get_axes()[0])
    assert not rest and y == pytest.approx(analysis.TABLE_3["A100"].ridge)
    assert x == pytest.approx(100 * expected, abs=0.2)
    said = " ".join(words(fig))
    assert "staged whole: always" in said and "packed, 4 vectors: never" in said
    assert f"staged whole: {100 * expected:.0f} %" in said
    assert "stated transition: 70 %" in labels(fig)
    legible(fig)


def test_transition_of_one_gpu_and_what_it_refuses():
    df = transition()
    one = df[df["gpu"] == "A100"]
    fig, _ = spmm_figures.transition(one, stated=None)
    assert len(fig.get_axes()) == 1 and not any("stated" in text for text in labels(fig))
    legible(fig)
    with pytest.raises(ValueError, match="several of one"):
        spmm_figures.transition(pd.concat([one, one.assign(ridge=1.0)]))
    with pytest.raises(ValueError, match="four kinds of lines, not 5"):
        spmm_figures.transition(pd.concat([one.assign(kind=str(i)) for i in range(5)]))


# ---------------------------------------------------------------- on a page


def made() -> dict:
    return {
        "stepwise": spmm_figures.stepwise(stepwise(), FMA, TEXT),
        "sizes": spmm_figures.sizes(sizes(), TABLE_2, FMA),
        "llama": spmm_figures.llama(llama(), FIG9),
        "llama_gpus": spmm_figures.llama_gpus(FIG9, llama(), measured_on="H200"),
        "llama_means": spmm_figures.llama_means(llama(), FIG9, measured_on="H200"),
        "roofline": spmm_figures.roofline(counters(), EQ3, CEILINGS, TEXT),
        "anchors": spmm_figures.anchors(anchors(), ANCHORS),
        "tensor": spmm_figures.tensor(tensor()),
        "vectors": spmm_figures.vectors(vectors(), FMA),
        "transition": spmm_figures.transition(transition()),
    }


def test_every_chart_can_be_shown_with_the_shipped_numbers():
    page = ""
    for name, (fig, data) in made().items():
        for line in fig.findobj(plt.Line2D):
            if line.get_marker() not in ("", "None", None) and len(line.get_xdata()) > 1:
                assert line.get_markersize() >= 4, name  # readable in print
        colours = {to_hex(line.get_color()) for line in fig.findobj(plt.Line2D)}
        assert not colours & {"#000000", "#ffffff"}, name  # seen in both modes
        shown = style.show(fig, "nm_spmm", name, data, f"Alt of {name}.", "Caption.")
        root = ElementTree.fromstring(shown.svg_path.read_text())
        assert root.get("aria-label") == f"Alt of {name}." and root.get("role") == "img"
        assert style.INK not in shown.markup and "currentColor" in shown.markup
        assert len(pd.read_csv(shown.csv_path)) == len(data)
        page += shown.markup
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))


def test_trials_are_drawn_beside_what_was_expected():
    came = pd.Series({0.5: 0.9, 0.125: 1.2})
    outcomes = pd.DataFrame({"trial": ["one", "two"], "factor": [1.1, 1.05], "came": [came, came * 1.5]})
    fig, data = spmm_figures.trials(outcomes)
    (ax,) = fig.get_axes()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["one", "two"]
    assert drawn_in(ax, style.CLAIM) == [(1.05, 1.0), (1.1, 0.0)]
    assert data["came"].tolist() == [0.9, 1.2, 0.9 * 1.5, 1.2 * 1.5]
    legible(fig)
    with pytest.raises(ValueError, match="no trial was measured"):
        spmm_figures.trials(outcomes[:0])
