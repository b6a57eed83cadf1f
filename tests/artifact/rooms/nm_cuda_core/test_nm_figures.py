"""The figures of nm_cuda_core, on records of a made-up machine that are good for nothing else."""

import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from drawn import column, drawn_in, labels, legible, words

from artifact import registry

matplotlib.use("agg")


from artifact.drawing import plot, style
from artifact.measure import records
from artifact.profiling import ncu
from artifact.rooms.nm_cuda_core import figures, pictures
from artifact.rooms.nm_cuda_core.figures import findings
from kernels.formats import nm

ORDER = (
    "baseline",
    "prefetch",
    "prefetch_kept",
    "pipelined",
    "double_buffer",
    "double_buffer_split1",
    "element_wise",
)
SIZES = tuple(2**p for p in range(6, 14))
# A constant in µs, a rate in GB/s for three matrices, one in TFLOP/s (of N:M, or of dense FLOPs).
TIMES = {
    "baseline": (3.0, 900, 30),
    "prefetch": (3.0, 890, 29.4),
    "prefetch_kept": (3.4, 700, 24),
    "pipelined": (3.2, 930, 31),
    "double_buffer": (4.2, 950, 33),
    "double_buffer_split1": (3.6, 940, 32),
    "element_wise": (3.8, 300, 11),
    "cublas": (5.0, 2000, 50),
    "cublas_transfers": (60.0, 9, 50),
    "cublas_allocation": (40.0, 800, 50),
    "cublas_handle": (600.0, 2000, 50),
    "cpu_loop": (0.1, 5, 0.0012),
}


def times(variant: str, n) -> np.ndarray:
    """µs"""
    constant, gbps, tflops = TIMES[variant]
    n = np.asarray(n, dtype=float)
    flops = n**3 if variant in ORDER else 2 * n**3
    return constant + 12 * n**2 / gbps / 1e3 + flops / tflops / 1e6


def experiment(name="published", variants=tuple(TIMES), sizes=SIZES, label="", scale=1.0):
    rows = []
    for n in sizes:
        for variant in variants:
            if variant == "cpu_loop" and n > 2048:
                continue
            t = scale * float(times(variant, n))
            rows.append(
                {"room": "nm_cuda_core", "experiment": name, "variant": variant, "label": label}
                | {"m": n, "n": n, "k": n, "density": 0.5}
                | {"median_us": t, "q25_us": 0.9 * t, "q75_us": 1.2 * t}
                | {"useful_flops": float(n) ** 3, "tflops": float(n) ** 3 / t / 1e6}
            )
    return pd.DataFrame(rows)


def stated(*rows) -> pd.DataFrame:
    columns = ["quantity", "size", "variant", "low", "high", "unit"]
    return pd.DataFrame(list(rows), columns=columns)


NAN = float("nan")
PUBLISHED = stated(
    ("tflops", 64, "cublas", 0.001, 0.001, "TFLOP/s"),
    ("tflops", 512, "cublas", 0.43, 0.43, "TFLOP/s"),
    ("tflops", 2048, "cublas", 2.9, 2.9, "TFLOP/s"),
    ("tflops", 4096, "cublas", 7.3, 7.3, "TFLOP/s"),
    ("tflops", 8192, "cublas", 10.8, 10.8, "TFLOP/s"),
    ("tflops", 64, "baseline", 0.06, 0.06, "TFLOP/s"),
    ("tflops", 1024, "baseline", 4, 5, "TFLOP/s"),
    ("tflops", 8192, "sparse", 2.1, 2.9, "TFLOP/s"),
    ("peak_size", NAN, "sparse", 1024, 1024, ""),
    ("time", 2048, "baseline", 3.35, 3.35, "ms"),
    ("time", 2048, "double_buffer", 3.08, 3.08, "ms"),
    ("speedup_cpu", 64, "cublas", 0.1, 0.1, "×"),
    ("speedup_cpu", 512, "baseline", 1e3, 1e4, "×"),
    ("speedup_cpu", NAN, "baseline", 1e2, 1e4, "×"),
    ("speedup_cublas", 512, "baseline", 16, 16, "×"),
    ("speedup_cublas", 2048, "baseline", 1.7, 1.9, "×"),
    ("speedup_cublas", 4096, "baseline", NAN, 1, "×"),
    ("speedup_baseline", 1024, "double_buffer", NAN, 1, "×"),
    ("speedup_baseline", 2048, "double_buffer", 1.08, 1.08, "×"),
    ("speedup_baseline", 4096, "double_buffer", 1.08, NAN, "×"),
    ("speedup_baseline", 2048, "prefetch", 0.97, 1.03, "×"),
)


def counters(sizes=(256, 2048), variants=figures.PROFILED) -> pd.DataFrame:
    rows = []
    metrics = [metric for metric, _ in ncu.REPORT_METRICS.values()]
    for size in sizes:
        for place, variant in enumerate(variants):
            point = (variant, size, size, size, 0.5)
            values = {m: 10.0 + i + 100 * place + size / 1e3 for i, m in enumerate(metrics)}
            for i, reason in enumerate(ncu.STALLS):
                weight = {"long_scoreboard": 4, "barrier": 1.3, "wait": 1.1, "selected": 1}
                weight |= {"short_scoreboard": 0.6, "mio_throttle": 0.5, "drain": 0.05}
                value = weight.get(reason, 0.02) * (1 + 0.2 * place) * (2048 / size) ** 0.3
                values[figures.STALL.format(reason)] = value + i / 1e3
            rows += [(*point, metric, value, "") for metric, value in values.items()]
    return pd.DataFrame(rows, columns=list(records.COUNTER_COLUMNS))


def fig3(*rows) -> pd.DataFrame:
    columns = ["quantity", "size", "variant", "low", "high", "unit", "metric"]
    return pd.DataFrame(list(rows), columns=columns)


# ---------------------------------------------------------------- pictures of the format


def test_nm_picture_shows_the_matrix_and_its_arrays():
    b = nm.random(8, 8, 2, 4, 1, 3)
    fig, data = pictures.nm_picture(b)
    rebuilt = np.zeros((8, 8))
    np.add.at(rebuilt, (data["row"], data["column"]), data["value"])
    np.testing.assert_array_equal(rebuilt, nm.to_dense(b))
    assert (data["row"] // 4 == data["group"]).all()
    legible(fig)
    assert {"B: 8 × 8, 2:4 along K", "values: 4 × 8"} <= set(words(fig))


def test_gather_picture_marks_the_wrong_columns():
    needs = [1, 1, 0, 2, 1, 0, 0, 2]
    index = np.array([needs, [3] * 8], np.int32)
    b = nm.validate(nm.Nm(4, 8, 2, 4, 1, np.ones(index.shape, np.float32), index))
    fig, data = pictures.gather_picture(b, 8)
    assert data["needs"].tolist() == needs and data["gets"].tolist() == [1] * 8
    assert data["right"].tolist() == [need == 1 for need in needs]
    said = words(fig)
    assert said.count("≠") == 5 and said.count("=") == 3  # by more than colour
    assert "5 of 8 columns are multiplied with the wrong column of A" in said
    assert len([p for p in fig.get_axes()[0].patches if p.get_hatch()]) == 5
    legible(fig)


# ---------------------------------------------------------------- scaling


def test_scaling_counts_dense_flops_for_libraries():
    fig, data = figures.scaling(experiment(), PUBLISHED, ORDER)
    n = 4096
    measured = data[data["source"] == "measured"]
    assert set(measured["variant"]) == set(figures.SCALING)
    for variant, flops in (("cublas", 2 * n**3), ("baseline", n**3)):
        expected = flops / times(variant, n) / 1e6
        assert column(measured, "tflops", variant=variant, size=n) == pytest.approx([expected])
    assert column(measured, "tflops", variant="cpu_loop", size=64)[0] < 0.0013
    left, right = fig.get_axes()
    assert {left.get_xscale(), left.get_yscale(), right.get_yscale()} == {"log"}
    assert left.get_ylabel().endswith("(TFLOP/s)") and right.get_ylabel().endswith("(ms)")
    assert figures.STATED in labels(fig)
    legible(fig)


def test_scaling_draws_medians_and_their_rates():
    fig, data = figures.scaling(experiment(), None, ORDER)
    left, right = fig.get_axes()
    assert {style.name(variant) for variant in figures.SCALING} <= set(words(fig)) and not fig.legends
    for variant in figures.SCALING:
        sizes = [n for n in SIZES if variant != "cpu_loop" or n <= 2048]
        took = times(variant, sizes) / 1e3
        flops = np.array(sizes, float) ** 3 * (1 if variant in ORDER else 2)
        look = style.look(variant, ORDER)
        for ax, values in ((left, flops / took / 1e9), (right, took)):
            (line,) = (
                line
                for line in ax.get_lines()
                if line.get_marker() == look["marker"] and line.get_color() == look["color"]
            )
            np.testing.assert_allclose(line.get_xdata(), sizes)
            np.testing.assert_allclose(line.get_ydata(), values)
        assert column(data, "time_ms", variant=variant) == pytest.approx(list(took))
        quarter = column(data, "q25_us", variant=variant)
        assert quarter == pytest.approx([900 * t for t in took])


def test_scaling_draws_published_points_at_their_sizes():
    fig, data = figures.scaling(experiment(), PUBLISHED, ORDER)
    left, right = (drawn_in(ax, style.CLAIM) for ax in fig.get_axes())
    assert right == [(2048, 3.08), (2048, 3.35)]
    assert {(64, 0.001), (8192, 10.8), (64, 0.06)} <= set(left) and len(left) == 8
    middle = [y for x, y in left if x == 1024]
    assert middle == [pytest.approx(20**0.5)]  # of a range, beside its bar
    assert len(data[data["source"] == "stated"]) == 10
    joined = [line.get_xdata() for line in fig.get_axes()[0].get_lines() if line.get_marker() == ""]
    joined = {tuple(x) for x in joined if len(x) > 2}
    assert joined == {
        (64, 512, 2048, 4096, 8192),
        (64, 1024, 8192),
    }  # of cuBLAS, of the sparse kernels
    assert {"cuBLAS, stated", "sparse kernels, stated"} <= set(words(fig))


def test_scaling_without_published_numbers_or_cpu():
    some = experiment(variants=("baseline", "cublas"), sizes=(256, 512))
    fig, data = figures.scaling(some, None, ORDER)
    assert not fig.legends and len(data) == 4
    legible(fig)


def test_the_first_of_two_experiments_counts():
    df = pd.concat([experiment("published"), experiment("cpu", scale=3.0)])
    _, data = figures.scaling(df, None, ORDER)
    assert set(data["experiment"]) == {"published"}
    _, data = figures.scaling(df.iloc[::-1], None, ORDER)
    assert set(data["experiment"]) == {"cpu"}


def test_a_figure_is_of_one_pattern():
    df = pd.concat([experiment(), experiment("patterns", label="8:32")])
    with pytest.raises(ValueError, match="mix patterns .*8:32"):
        figures.scaling(df, None, ORDER)
    with pytest.raises(ValueError, match="none of cpu_loop"):
        figures.scaling(experiment().assign(m=7), None, ORDER)


def test_speedups():
    fig, data = figures.speedups(experiment(), PUBLISHED, ORDER)
    for over, variant, n in (
        ("cpu_loop", "cublas_handle", 64),
        ("cpu_loop", "baseline", 2048),
        ("cublas", "double_buffer", 8192),
        ("cublas_handle", "prefetch", 64),
    ):
        expected = times(over, n) / times(variant, n)
        got = column(data, "speedup", over=over, variant=variant, size=n)
        assert got == pytest.approx([expected])
    assert not column(data, "speedup", over="cpu_loop", size=4096)  # too slow to be measured
    left, right = (drawn_in(ax, style.CLAIM) for ax in fig.get_axes())
    assert left == [(64, 0.1), (512, pytest.approx(10**3.5))]  # a claim of no size is not drawn
    assert right == [(512, 16), (2048, pytest.approx((1.7 * 1.9) ** 0.5)), (4096, 1)]
    for ax in fig.get_axes():
        assert any(np.all(np.asarray(line.get_ydata()) == 1) for line in ax.get_lines())
    legible(fig)
    with pytest.raises(ValueError, match="neither cpu_loop nor cublas"):
        figures.speedups(experiment(variants=("baseline",)), None, ORDER)


# ---------------------------------------------------------------- readings


@pytest.mark.parametrize(
    "constant,square,cube",
    [
        (5e-4, 0, 0),  # a handle in every call
        (0, 1e-9, 0),  # transfers
        (0, 0, 2e-13),  # a kernel
        (5e-4, 0, 2e-13),
        (1e-5, 1e-9, 1e-13),
    ],
)
def test_fit_readings_finds_what_a_curve_is_made_of(constant, square, cube):
    n = np.array(SIZES, dtype=float)
    fit = figures.fit_readings(n, constant + square * n**2 + cube * n**3)
    found = np.array([fit.constant, fit.square, fit.cube]) * (1, 1e6, 1e9)  # at a size of 1000
    np.testing.assert_allclose(found, (constant, 1e6 * square, 1e9 * cube), rtol=1e-6, atol=1e-15)
    assert np.abs(fit.residuals).max() < 1e-9
    assert fit.seconds([100]) == pytest.approx([constant + 1e4 * square + 1e6 * cube])
    assert fit.gbps == pytest.approx(12 / square / 1e9) if square else fit.gbps > 1e9
    assert fit.tflops == pytest.approx(2 / cube / 1e12) if cube else fit.tflops > 1e9
    assert figures.Fit(constant, 0, 0, fit.residuals).gbps == np.inf


def test_fit_readings_counts_every_size_alike():
    n = np.array(SIZES, dtype=float)
    noise = np.random.default_rng(0).uniform(0.9, 1.1, n.size)
    fit = figures.fit_readings(n, (1e-5 + 1e-13 * n**3) * noise)
    assert fit.constant == pytest.approx(1e-5, rel=0.1)  # although the largest size takes 5000 times that
    assert fit.cube == pytest.approx(1e-13, rel=0.15) and fit.square < 2e-12
    assert 0.01 < np.abs(fit.residuals).max() < 0.15


@pytest.mark.parametrize("sizes,seconds", [([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [1, 2])])
def test_fit_readings_needs_three_sizes(sizes, seconds):
    with pytest.raises(ValueError, match="three sizes"):
        figures.fit_readings(sizes, seconds)


@pytest.mark.parametrize("bad", [0, -1, NAN, np.inf])
def test_fit_readings_needs_times(bad):
    with pytest.raises(ValueError, match="positive and finite"):
        figures.fit_readings([1, 2, 3], [1, bad, 3])


def test_cublas_times_come_from_tflops():
    seconds = figures.cublas_times(PUBLISHED)
    assert seconds.index.tolist() == [64, 512, 2048, 4096, 8192]
    assert seconds[2048] == pytest.approx(2 * 2048**3 / 2.9e12)
    with pytest.raises(ValueError, match="no 'tflops' of 'cublas'"):
        figures.cublas_times(stated())


@pytest.mark.parametrize("truth", figures.READINGS)
def test_compare_readings_recognises_another_machine(truth):
    """The published machine: this one's reading `truth`, with a slower GPU and a slower host."""
    n = np.array(SIZES, dtype=float)
    kernel = times("cublas", n)
    seconds = (4 * kernel + 2.5 * (times(truth, n) - kernel)) / 1e6
    rows = [
        ("tflops", size, "cublas", rate, rate, "TFLOP/s")
        for size, rate in zip(SIZES, 2 * n**3 / seconds / 1e12, strict=True)
    ]
    table = figures.compare_readings(experiment(), stated(*rows)).set_index("reading")
    assert list(table.index) == [*figures.READINGS, "published"]
    assert table.loc[truth, "kernel_scale"] == pytest.approx(4)
    assert table.loc[truth, "rms_error"] < 1e-6
    assert table.loc[truth, "worst_factor"] == pytest.approx(1)
    if truth != "cublas":
        assert table.loc[truth, "extra_scale"] == pytest.approx(2.5)
        # Both are a cost per call, and on this machine the one is 15 times the other.
        twins = {"cublas_allocation", "cublas_handle"}
        others = table.drop(["published", *(twins if truth in twins else {truth})])
        assert others["rms_error"].min() > 0.02 and others["worst_factor"].min() > 1.05
    assert table.loc["cublas_transfers", "gbps"] == pytest.approx(9, rel=1e-3)
    assert table.loc["cublas", "tflops"] == pytest.approx(50, rel=1e-3)
    assert table.loc["cublas_handle", "constant_us"] == pytest.approx(600, rel=1e-3)


def test_compare_readings_needs_the_kernel_and_three_sizes():
    with pytest.raises(ValueError, match="lack 'cublas'"):
        figures.compare_readings(experiment(variants=("cublas_handle",)), PUBLISHED)
    with pytest.raises(ValueError, match="shares 2 sizes"):
        figures.compare_readings(experiment(sizes=(64, 512)), PUBLISHED)


def test_readings():
    seconds = figures.cublas_times(PUBLISHED)
    fit = figures.fit_readings(seconds.index, seconds)
    fig, data = figures.readings(experiment(), PUBLISHED, fit)
    assert set(data[data["source"] == "measured"]["variant"]) == set(figures.READINGS)
    mine = column(data, "time_ms", source="stated", size=2048)
    assert mine == pytest.approx([1e3 * seconds[2048]])
    fitted = column(data, "fitted_ms", source="stated", size=512)
    assert fitted == pytest.approx(list(1e3 * fit.seconds([512])))
    assert [ax.get_title() for ax in fig.get_axes()] == [f"{plot.number(s)}³" for s in seconds.index]
    for ax, (size, t) in zip(fig.get_axes(), seconds.items(), strict=True):
        unit = {"µs": 1e6, "ms": 1e3}[ax.get_ylabel()]
        assert drawn_in(ax, style.CLAIM) == [(1.9, pytest.approx(unit * t))]
        bars = {x: [b for b in ax.patches if b.get_x() + b.get_width() / 2 == x] for x in (0, 1)}
        alone, each = times("cublas", size), [times(r, size) for r in figures.READINGS[1:]]
        here = alone + sum(max(float(r - alone), 0) for r in each)  # every part once, on the kernel
        assert sum(bar.get_height() for bar in bars[0]) == pytest.approx(unit * here / 1e6)
        fitted = float(fit.seconds([size])[0])
        assert sum(bar.get_height() for bar in bars[1]) == pytest.approx(unit * fitted)
        parts = {bar.get_hatch() for bar in ax.patches if bar.get_height()}
        assert len(parts) == len(figures.READINGS)
    assert len(labels(fig)) == len(figures.READINGS) + 1
    legible(fig)


# ---------------------------------------------------------------- variants


def test_variants():
    fig, data = figures.variants(experiment(), ORDER, PUBLISHED)
    n = 2048
    expected = times("baseline", n) / times("double_buffer", n)
    got = column(data, "over_baseline", source="measured", variant="double_buffer", size=n)
    assert got == pytest.approx([expected])
    fastest = data[data["fastest"] == True]  # noqa: E712 - the stated rows have no such value
    assert set(fastest["size"]) == set(SIZES)
    assert column(fastest, "variant", size=64) == [
        "baseline",
        "prefetch",
    ]  # within 2% of each other
    assert column(fastest, "variant", size=8192) == ["double_buffer"]
    (ax,) = fig.get_axes()
    frames = [patch for patch in ax.patches if not patch.get_fill()]
    assert len(frames) == len(fastest)
    said = words(fig)
    assert f"{expected:.2f}" in said and {"(1.08)", "(< 1)", "(> 1.08)", "(0.97–1.03)"} <= set(said)
    best = min(times(v, n) for v in ORDER)
    assert plot.number(float(f"{best:.3g}")) in said
    legible(fig)


def test_variants_of_some():
    fig, data = figures.variants(experiment(), ORDER, None, shown=ORDER[:2])
    assert set(data["variant"]) == {"baseline", "prefetch"}
    assert [text.get_text() for text in fig.get_axes()[0].get_yticklabels()] == [
        "baseline",
        "prefetch",
        "fastest (µs)",
    ]
    legible(fig)
    with pytest.raises(ValueError, match="lack 'baseline'"):
        figures.variants(experiment(variants=("prefetch",)), ORDER)
    with pytest.raises(ValueError, match="no variant but 'baseline'"):
        figures.variants(experiment(), ORDER, shown=("baseline",))


def test_cost_of_element_wise():
    scaling = experiment("scaling")
    true = experiment("element_wise", ("element_wise", "cublas"), label="2:4 element-wise", scale=2)
    fig, data = figures.cost_of_element_wise(pd.concat([scaling, true]), ORDER)
    expected = times("element_wise", 512) / times("baseline", 512)
    own = column(data, "time_over_baseline", line="element_wise on vectors of 32", size=512)
    assert own == pytest.approx([expected])
    other = column(data, "time_over_baseline", line="element_wise on element-wise 2:4", size=512)
    assert other == pytest.approx([2 * expected])
    assert set(data["variant"]) == {"element_wise", "cublas"}
    legible(fig)
    _, data = figures.cost_of_element_wise(scaling, ORDER)
    assert set(data["line"]) == {"element_wise on vectors of 32", "cuBLAS, dense"}
    with pytest.raises(ValueError, match="no 'element_wise'"):
        figures.cost_of_element_wise(experiment(variants=("baseline", "cublas")), ORDER)


# ---------------------------------------------------------------- counters

#: What a metric of the report is over its counter: fractions in per cent, bytes in MB, the others as they are.
FACTORS = {
    "SM throughput (%)": 1,
    "DRAM throughput (%)": 1,
    "Active warps (%)": 1,
    "Warps launched": 1,
    "Inst / cycle": 1,
    "Drain stalls (%)": 100,
    "Long scoreboard (%)": 100,
    "L1 traffic (MB)": 1e-6,
    "Store bank conflicts": 1,
}


def test_counters_table():
    df = counters()
    table, data = figures.counters_table(df, None)
    assert len(table) == 2 * len(ncu.REPORT_METRICS) == 18
    metrics = table[("", "metric")]
    assert metrics[::2].tolist() == list(ncu.REPORT_METRICS) and not any(metrics[1::2])
    assert table.columns.get_level_values(0).tolist() == ["", "", *["256³"] * 5, *["2048³"] * 5]
    for row, (metric, (counter, _)) in enumerate(ncu.REPORT_METRICS.items()):
        raw = df[(df["metric"] == counter) & (df["m"] == 256)].set_index("variant")["value"]
        mine = data[(data["metric"] == metric) & (data["size"] == 256)]
        values = mine[mine["quantity"] == "value"].set_index("variant")
        assert values["low"].equals(values["high"])
        np.testing.assert_allclose(values["low"][raw.index], FACTORS[metric] * raw)
        for variant in ("prefetch", "double_buffer"):
            shown = table.loc[2 * row, ("256³", f"{variant} / baseline")]
            assert float(shown.removesuffix("×")) == pytest.approx(raw[variant] / raw["baseline"], rel=0.01)


def test_counters_table_has_what_is_stated_below():
    counter, _ = list(ncu.REPORT_METRICS.values())[5]
    counter = counter.rpartition(".")[0] + ".pct"  # as the source's version calls a .ratio
    published = fig3(
        ("x", 256, "baseline", 7.44, 7.44, "%", counter),
        ("x", 256, "double_buffer", 68.31, 68.31, "%", counter),
        ("x", 256, "double_buffer", 68, 68, "%", counter),
        ("x_ratio", 256, "prefetch", NAN, 1, "×", counter),
        ("x", 2048, "baseline", 0, 0, "%", counter),
        ("x", 2048, "prefetch", 1.5, 2, "%", counter),
        ("x", 2048, "double_buffer", 1166393, 1166393, "%", counter),
        ("y", 2048, "double_buffer", 5, 5, "%", "sm__foreign.sum"),
    )
    table, data = figures.counters_table(counters(), published)
    assert table.iloc[11].tolist() == [
        *("", "stated", "7.44", "–", "68.3", "< 1.00×", "9.18×"),
        *("0", "1.5–2", "1\u202f166\u202f393", "–", "∞×"),
    ]
    rest = table.iloc[1::2, 2:].drop(index=11)
    assert rest.eq("–").all(axis=None)
    assert data[data["source"] == "stated"]["metric"].nunique() == 1


def test_counters_table_shows_what_is_missing():
    df = counters()
    gone = ncu.REPORT_METRICS["SM throughput (%)"][0]
    table, data = figures.counters_table(df[df["metric"] != gone], None)
    assert table.iloc[0, 2:].eq("–").all() and not table.iloc[2, 2:].eq("–").any()
    assert "SM throughput (%)" not in set(data["metric"])
    nothing = df.assign(value=0.0)
    table, _ = figures.counters_table(nothing, None)
    assert table.iloc[0, 2:].tolist() == ["0", "0", "0", "–", "–"] * 2
    with pytest.raises(ValueError, match="no counters of baseline"):
        figures.counters_table(df.assign(m=3), None)
    with pytest.raises(ValueError, match="is there twice"):
        figures.counters_table(pd.concat([df, df]), None)


def test_counters_table_of_the_shipped_numbers():
    """Every value of the report's Fig. 3 finds its place in the table, with its ratio."""
    published = records.published(registry.published("nm_cuda_core", "fig3"))
    table, data = figures.counters_table(counters(), published)
    below = table.iloc[1::2].reset_index(drop=True)
    for size in ("256³", "2048³"):
        for title in ("baseline", "double_buffer", "double_buffer / baseline"):
            assert not below[size, title].eq("–").any()
    row = list(ncu.REPORT_METRICS).index(table[("", "metric")][0])
    assert below.loc[row, ("256³", "double_buffer / baseline")] == "2.50×"
    assert "∞×" in set(below["256³", "double_buffer / baseline"])


def test_stalls():
    df = counters(variants=ORDER)
    fig, data = figures.stalls(df, ORDER)
    assert {"long_scoreboard", "barrier", "drain", "other"} <= set(data["reason"])
    assert "selected" not in set(data["reason"]) and len(set(data["reason"])) < 9
    raw = df[df["metric"].str.contains("issue_stalled") & ~df["metric"].str.contains("_selected_")]
    back = df[df["metric"].str.contains("stalled_not_selected_")]
    raw = pd.concat([raw, back])
    for variant in ORDER:
        for size in (256, 2048):
            here = data[(data["variant"] == variant) & (data["size"] == size)]
            all_of_it = raw[(raw["variant"] == variant) & (raw["m"] == size)]["value"].sum()
            assert here["warps_stalled_per_issue"].sum() == pytest.approx(all_of_it)
    assert [ax.get_title(loc="left") for ax in fig.get_axes()] == [
        "M = N = K = 256",
        "M = N = K = 2\u202f048",
    ]
    handles = fig.legends[0].get_patches()
    assert len({patch.get_hatch() for patch in handles[:-1]}) == len(handles) - 1
    legible(fig)


def test_stalls_of_what_was_counted():
    df = counters(sizes=(256,))
    fig, data = figures.stalls(df[df["variant"] == "baseline"], ORDER, least=0.3, named=())
    assert set(data["reason"]) == {"long_scoreboard", "other"}
    assert len(fig.get_axes()) == 1
    legible(fig)
    with pytest.raises(ValueError, match="no stall reasons"):
        figures.stalls(df[~df["metric"].str.contains("stalled")], ORDER)


# ---------------------------------------------------------------- as alternative texts


def test_alternative_texts_tell_what_was_found():
    df = experiment()
    seconds = figures.cublas_times(PUBLISHED)
    fit = figures.fit_readings(seconds.index, seconds)
    text = findings.scaling(figures.scaling(df, PUBLISHED, ORDER)[1])
    assert "0.001 at 64³ (cublas)" in text and "4 to 5 at 1024³ (baseline)" in text
    assert "cuBLAS SGEMM" in text and "at 8192³" in text
    text = findings.speedups(figures.speedups(df, PUBLISHED, ORDER)[1])
    assert "Over CPU, one thread, 64³ to 2048³" in text and "at most 1 at 4096³ (baseline)" in text
    text = findings.readings(figures.readings(df, PUBLISHED, fit)[1])
    assert "64³: here what “cuBLAS, handle per call” adds" in text
    text = findings.variants(figures.variants(df, ORDER, PUBLISHED)[1])
    assert "64³ baseline and prefetch; " in text and "8192³ double_buffer." in text
    text = findings.stalls(figures.stalls(counters(), ORDER)[1])
    assert re.search(r"Most wait at 256³ those of \d of 3 for", text)
    both = pd.concat([df, experiment("e", ("element_wise",), label="2:4 element-wise", scale=2)])
    text = findings.element_wise(figures.cost_of_element_wise(both, ORDER)[1])
    ratio = times("element_wise", 64) / times("baseline", 64)
    assert f"element_wise on vectors of 32 goes from {ratio:.2f} to" in text


# ---------------------------------------------------------------- on a page


def test_every_figure_can_be_shown_with_the_shipped_numbers():
    df = experiment()
    fig2, fig4 = (records.published(registry.published("nm_cuda_core", f)) for f in ("fig2", "fig4"))
    seconds = figures.cublas_times(fig2)
    fit = figures.fit_readings(seconds.index, seconds)
    made = {
        "scaling": figures.scaling(df, fig2, ORDER),
        "speedups": figures.speedups(df, fig2, ORDER),
        "readings": figures.readings(df, fig2, fit),
        "variants": figures.variants(df, ORDER, fig4),
        "element_wise": figures.cost_of_element_wise(df, ORDER),
        "stalls": figures.stalls(counters(), ORDER),
    }
    page = ""
    for name, (fig, data) in made.items():
        legible(fig)
        shown = style.show(fig, "nm_cuda_core", name, data, f"Alt of {name}.", "Caption.")
        root = ElementTree.fromstring(shown.svg_path.read_text())
        assert root.get("aria-label") == f"Alt of {name}." and root.get("role") == "img"
        assert style.INK not in shown.markup and "currentColor" in shown.markup
        assert len(pd.read_csv(shown.csv_path)) == len(data)
        page += shown.markup
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
