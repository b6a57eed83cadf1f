"""Measuring a prefill, point by point, or reading what was recorded; what was not recorded is None.

    prefill.csv        the whole model, a row for each configuration, length and share of blocks (`records.COLUMNS`)
    prefill_ffn.csv    the first layer's FFN alone
    prefill/*.csv      parts.csv: where the time goes; attention.csv: what was chosen; checks.csv: the last hidden state

A point that is there is not measured again. Everything runs from CUDA graphs, in the harness's order and with its
statistics (`bench.measure`): launches of contenders in turns, after a flush of the L2.
"""

from __future__ import annotations

import copy
import functools
import gc
import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact.drawing.prose import folders
from artifact.measure import bench, check, device, records
from artifact.measure import run as harness
from artifact.measure.apart import captured
from artifact.measure.run import Prepared, Run
from artifact.rooms.async_sparse.arithmetic import ROOM
from artifact.rooms.async_sparse.prefill.configurations import (
    ATTENTION,
    CONFIGURATIONS,
    DENSE,
    DENSITIES,
    KICK_LAYERS,
    KICK_LENGTHS,
    LAYER_LENGTHS,
    LAYERS,
    LENGTHS,
    PART_LENGTHS,
    SIZES,
    WEIGHTS,
    flops,
)
from kernels.contract import Problem

EXPERIMENT, LAYER = "prefill", "prefill_ffn"
FOLDER = "prefill"  #: beside the records, of tables that are none
TABLES = {
    "parts": ("configuration", "n", "density", "part", "us"),
    "attention": ("n", "backend", "vertical_share", "kept_share"),
    "checks": ("configuration", "density", "rel_diff", "noise"),
}
MORE = ("layers", "gpu", "when")  #: columns of every table
NEEDS = ("torch", "transformers", "cupy")
#: Device time for a contender at a point, and samples at least: of what takes seconds, few.
BUDGET_S = 0.4
SAMPLES = {4096: 7, 16384: 5, 65536: 3}
CHECKED = 256  #: tokens whose FFN is compared with float64
CHECK_LENGTH = 1024  #: of the last hidden state
CHOICE_LENGTH = 16384  #: of the tokens that choose a pattern for each head
#: How often the dense model's own difference from float32 a sparse model's may be.
NOISES = 2.0
#: By how much a profiled pass may be longer than the timed one.
APART = 0.1
FLOPS_DEF = "the dense model's: 2 for each weight and token, and causal attention"
FFN_DEF = "2·nnz·N"


def installed() -> bool:
    """Whether PyTorch, transformers and CuPy are here."""
    return all(importlib.util.find_spec(name) for name in NEEDS)


def can_measure(run: Run | None) -> bool:
    """Whether a prefill can be measured: on Hopper, with the libraries, as `run` says."""
    hopper = run is not None and str(run.machine.get("compute_capability")) == "9.0"
    return hopper and run.mode == "measure" and installed()


def sizes(run: Run) -> dict[str, Any]:
    return SIZES | ({"num_hidden_layers": KICK_LAYERS} if run.preset == "kick" else {})


def plan(preset: str) -> list[tuple[int, float, tuple[str, ...]]]:
    """Points of the whole model: tokens, share of blocks, configurations. Sparse attention does not know the share of
    blocks, and is measured beside each, as the dense model is: a record has all contenders at all points."""
    lengths, densities = (KICK_LENGTHS, DENSITIES[:1]) if preset == "kick" else (LENGTHS, DENSITIES)
    return [(n, d, tuple(CONFIGURATIONS)) for d in densities for n in lengths]


def layer_plan(preset: str) -> list[tuple[int, float, tuple[str, ...]]]:
    """Points of the FFN alone."""
    lengths, densities = (LAYER_LENGTHS, DENSITIES) if preset != "kick" else (KICK_LENGTHS, DENSITIES[:1])
    return [(n, d, tuple(LAYERS)) for d in densities for n in lengths]


# ---------------------------------------------------------------- what a chapter asks for


def whole(run: Run | None) -> pd.DataFrame | None:
    """Fig. 8: every configuration at every length."""
    return _records(run, EXPERIMENT, plan, measure_whole)


def elsewhere(run: Run | None) -> dict[str, pd.DataFrame]:
    """Name of a GPU -> its record of the whole model: this page's first, then the others that have one."""
    found = {} if run is None else folders(run.folder.parent)
    of = {gpu: folder / ROOM / f"{EXPERIMENT}.csv" for gpu, folder in found.items()}
    read = {gpu: records.read(path) for gpu, path in of.items() if path.is_file()}
    return {gpu: df[df["label"] == ""] for gpu, df in read.items() if (df["label"] == "").any()}


def layer(run: Run | None) -> pd.DataFrame | None:
    """The FFN alone: dense, as published, and ours."""
    return _records(run, LAYER, layer_plan, measure_layer)


def table(run: Run | None, name: str) -> pd.DataFrame | None:
    """One of `TABLES`, measured first where it is not there and can be. Raises ValueError, one sentence, for a file
    that is not whole."""
    if run is None:
        return None
    path = run.folder / FOLDER / f"{name}.csv"
    if can_measure(run):
        {"parts": measure_parts, "attention": measure_attention, "checks": measure_checks}[name](run)
    if not path.is_file():
        return None
    df = pd.read_csv(path)
    for column in (*TABLES[name], *MORE):
        if column not in df or df[column].isna().any():
            raise ValueError(
                f"{path}: the column {column!r} is missing or has gaps, so this table is not whole: measure it again"
            )
    return df


def _records(run: Run | None, experiment: str, points: Callable, measure: Callable):
    if run is None:
        return None
    path = run.folder / f"{experiment}.csv"
    if can_measure(run):
        todo = _todo(run, experiment, points)
        if todo:
            measure(run, todo)
    if not path.is_file():
        return None
    df = records.read(path)
    label = _label(run) if run.mode == "measure" else ""
    return df[df["label"] == (label if label in set(df["label"]) else df["label"].iloc[0])]


def _todo(run: Run, experiment: str, points: Callable) -> list[tuple]:
    """Points that a record has not; what it shall have is written beside it."""
    path, wanted = run.folder / f"{experiment}.csv", points(run.preset)
    todo = missing(path, wanted, run)
    if todo:
        records.plan(path, [(name, _label(run), *_shape(n), d) for n, d, names in wanted for name in names])
    return todo


def steps(run: Run) -> list[tuple[str, Callable[[], None]]]:
    """(what, its measurement) of all that is not there yet, in an order that makes the most of little time: one share
    of blocks after the other, FFNs alone first, lengths as they grow, then tables."""
    ffns, models = _todo(run, LAYER, layer_plan), _todo(run, EXPERIMENT, plan)
    made: list[tuple[str, Callable[[], None]]] = []

    def add(what: str, measure: Callable, points: list[tuple], density: float) -> None:
        for point in (point for point in points if point[1] == density):
            name = f"{what}, {point[0]} tokens, {density:g} of the blocks"
            made.append((name, functools.partial(measure, run, [point])))

    for density in dict.fromkeys(d for _, d, _ in plan(run.preset)):
        add("FFN alone", measure_layer, ffns, density)
        add("whole model", measure_whole, models, density)
        if density == DENSITIES[0]:
            made += [
                ("checks", functools.partial(measure_checks, run)),
                ("parts", functools.partial(measure_parts, run)),
                ("attention", functools.partial(measure_attention, run)),
            ]
    return made


def missing(path: Path, points: Iterable[tuple], run: Run) -> list[tuple]:
    """Those of the points that a record has not whole."""
    if not path.is_file():
        return list(points)
    df = records.read(path)
    have = {*zip(df["variant"], df["label"], df["n"], df["density"].round(9), df["seed"], strict=True)}
    return [
        (n, d, names)
        for n, d, names in points
        if not {(name, _label(run), n, round(d, 9), run.seed) for name in names} <= have
    ]


def _label(run: Run) -> str:
    """What tells rows from those of the whole model with random weights, which claims are judged on."""
    folder = os.environ.get(WEIGHTS, "")
    if folder:
        return f"weights of {Path(folder).name}"
    return "" if run.preset == "full" else f"{KICK_LAYERS} layers"


def _shape(n: int) -> tuple[int, int, int]:
    """m, n, k of a record's row: of gate_proj."""
    return SIZES["intermediate_size"], n, SIZES["hidden_size"]


# ---------------------------------------------------------------- the model, made once


@functools.cache
def _model(seed: int, layers: int):
    """The model on the current GPU, with a pattern for each head."""
    import torch

    from artifact.rooms.async_sparse.prefill import model

    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    made = model.build(seed, "cuda", SIZES | {"num_hidden_layers": layers})
    made.vertical_share = model.choose_patterns(made, model.tokens(made, CHOICE_LENGTH, seed + 1))
    return made


@functools.lru_cache(1)
def _sparse(seed: int, layers: int, density: float):
    """(`model.sparse_ffns`, milliseconds that each took)."""
    import torch

    from kernels.library import layers as library

    made, ms = {}, {}
    for ffn, published in (("opt5", True), ("gated", False)):
        began = time.perf_counter()
        made[ffn] = library.replacements(_model(seed, layers), density, seed=seed, published=published)
        torch.cuda.synchronize()
        ms[ffn] = (time.perf_counter() - began) * 1e3
    return made, ms


def _of(run: Run):
    return _model(run.seed, sizes(run)["num_hidden_layers"])


def _sparse_of(run: Run, density: float):
    return _sparse(run.seed, sizes(run)["num_hidden_layers"], density)


def _free() -> None:
    import torch

    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# ---------------------------------------------------------------- times


def timed(graphs: Mapping[str, Any], opened, least: int) -> dict[str, bench.Timing]:
    """Times of CUDA graphs by the harness's protocol: in turns, each after a flush. opened: `cuda.core.Device`."""
    import torch

    flush = torch.empty(bench.flush_bytes(opened.properties.l2_cache_size), dtype=torch.uint8, device="cuda")

    def run(names):
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in names]
        flush.zero_()  # a head start for the host
        for name, (begin, end) in zip(names, events, strict=True):
            flush.zero_()
            begin.record()
            graphs[name].replay()
            end.record()
        seen = bench.watch(lambda: device.sample(opened), events[-1][1].query)
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e3 for begin, end in events], seen

    names = list(graphs)
    engine = bench.Engine(run, 100.0, dict.fromkeys(names, 0.0), lambda name: None)
    found = bench.measure(names, engine, BUDGET_S, least, bench.MAX_SAMPLES)
    return {name: replace(timing, graph=True) for name, timing in found.items()}


def _least(n: int) -> int:
    return next(count for length, count in SAMPLES.items() if n <= length)


def _problem(run: Run, n: int, density: float, nnz: int, work: float, definition: str, least: float):
    def nowhere():
        raise RuntimeError("a prefill has no operands of the room's")

    m, n, k = _shape(n)
    return Problem(
        ROOM,
        _label(run),
        m,
        n,
        k,
        nnz,
        density,
        run.seed,
        int(work),
        definition,
        int(least),
        int(least),
        nowhere,
        nowhere,
    )


def measure_whole(run: Run, todo: list[tuple]) -> None:
    """Check and time every configuration at these points, and append a row for each to the record."""
    import torch

    from artifact.rooms.async_sparse.prefill import model as of

    model = _of(run)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    for n, density, names in todo:
        began = time.perf_counter()
        modules, ms = _sparse_of(run, density)
        of.choose_backend(model, n)
        ids = of.tokens(model, n, run.seed + 2)
        errors = {ffn: ffn_error(model, modules.get(ffn, {}), density, run.seed, n) for ffn in ("", *modules)}
        graphs, pool, held = {}, torch.cuda.graph_pool_handle(), {}
        for name in names:
            c = CONFIGURATIONS[name]
            with of.Configured(model, c, modules.get(c.ffn, {}), n):
                graphs[name], held[name] = captured(functools.partial(of.logits, model, ids), pool)
        times = timed(graphs, run.device, _least(n))
        for name in names:
            # The graphs share memory, so the others have written over what it left.
            graphs[name].replay()
            if not bool(torch.isfinite(held[name]).all()):
                raise check.WrongResult(f"{name} at {n} tokens: the logits are not finite.")
        nnz = sum(_kept(module) for module in modules["gated"].values())
        problem = _problem(run, n, density, nnz, flops(sizes(run) | of.sizes_of(model), n), FLOPS_DEF, weights)
        records.append(
            run.folder / f"{EXPERIMENT}.csv",
            [
                harness.row(
                    problem,
                    name,
                    EXPERIMENT,
                    Prepared(ms.get(CONFIGURATIONS[name].ffn, 0.0), _bytes(modules.get(CONFIGURATIONS[name].ffn, {}))),
                    errors[CONFIGURATIONS[name].ffn],
                    times[name],
                    gpu=run.machine["gpu"],
                    when=_now(),
                )
                for name in names
            ],
        )
        del graphs, held, pool
        _free()
        base = times[DENSE].median_us
        said = ", ".join(f"{name} {base / t.median_us:.2f}×" for name, t in times.items())
        _say(f"{n} tokens, {density:g} of the blocks: dense {base / 1e3:.1f} ms; {said}", began)


def measure_layer(run: Run, todo: list[tuple]) -> None:
    """Check and time the first layer's FFN by itself at these points."""
    import torch

    model = _of(run)
    for n, density, names in todo:
        began = time.perf_counter()
        ffns = first_ffns(model, density, run.seed)
        x = _input(model, n, run.seed)
        graphs, pool, held, errors = {}, torch.cuda.graph_pool_handle(), {}, {}
        for name in names:
            graphs[name], held[name] = captured(functools.partial(ffns[name], x), pool)
            with torch.no_grad():
                got = ffns[name](x)[:, :CHECKED]
            want = ffn_reference(
                model,
                1.0 if name == "ffn_dense" else density,
                run.seed,
                x[:, :CHECKED],
                name == "ffn_gated",
            )
            errors[name] = compared(name, got, want)
            del got, want
        times = timed(graphs, run.device, 7)
        nnz = _kept(ffns["ffn_gated"])
        problem = _problem(run, n, density, nnz, 2.0 * nnz * n, FFN_DEF, 2 * nnz + 4 * n * SIZES["hidden_size"])
        records.append(
            run.folder / f"{LAYER}.csv",
            [
                harness.row(
                    problem,
                    name,
                    LAYER,
                    Prepared(0.0, 0),
                    errors[name],
                    times[name],
                    gpu=run.machine["gpu"],
                    when=_now(),
                )
                for name in names
            ],
        )
        del graphs, held, pool, ffns, x
        _free()
        base = times["ffn_dense"].median_us
        said = ", ".join(f"{name} {base / t.median_us:.2f}×" for name, t in times.items())
        _say(f"FFN alone, {n} tokens, {density:g} of the blocks: {said}", began)


def _say(line: str, began: float) -> None:
    print(f"{ROOM}/prefill: {line} ({time.perf_counter() - began:.0f} s)", flush=True)


# ---------------------------------------------------------------- is it right?


def first_ffns(model, density: float, seed: int) -> dict[str, Callable]:
    """By the names of `LAYERS`, the first layer's FFN: (1, n, hidden) to the same."""
    from artifact.rooms.async_sparse.prefill import model as of
    from kernels.library import layers

    name, of_first = next(iter(layers.masks(model, density, seed=seed).items()))
    ffn = model.get_submodule(name)
    made = layers.classes()
    projections = {p: getattr(ffn, p) for p in layers.PROJECTIONS}

    def apart(published: bool):
        gate, up, down = (
            made.BlockSparseLinear.of(linear, of_first[p], published) for p, linear in projections.items()
        )
        return lambda x: down(of._pass(of.swiglu, x)(gate(x), up(x)))

    return {
        "ffn_dense": ffn,
        "ffn_opt5": apart(True),
        "ffn_unit_ring": apart(False),
        "ffn_gated": made.SparseFFN(*projections.values(), of_first),
    }


def ffn_reference(model, density: float, seed: int, x, fused: bool = False):
    """The first layer's FFN with its weights masked, of a few tokens, in float64 but for what a layer hands on in BF16:
    both products and what SwiGLU makes of them; fused, silu of the gate's and the product with up's. density 1:
    not masked."""
    import torch
    from torch.nn import functional

    from kernels.library import layers

    name, of_first = next(iter(layers.masks(model, density, seed=seed).items()))
    ffn = model.get_submodule(name)
    gate, up, down = (layers.masked(getattr(ffn, p).weight, of_first[p]).double() for p in layers.PROJECTIONS)

    def rounded(tensor):
        return tensor.to(x.dtype).double()

    with torch.no_grad():
        wide = x.double()
        g, u = wide @ gate.t(), wide @ up.t()
        if fused:
            hidden = rounded(functional.silu(g)) * u
        else:
            hidden = functional.silu(rounded(g)) * rounded(u)
        return rounded(hidden) @ down.t()


def ffn_error(model, modules: Mapping[str, Any], density: float, seed: int, n: int) -> check.Errors:
    """Errors of the first layer's FFN as a configuration has it, on n tokens of which CHECKED are compared."""
    import torch

    from kernels.library import layers

    x = _input(model, n, seed)
    first = next(iter(layers.ffns(model)))
    before = layers.put(model, modules)
    try:
        with torch.no_grad():
            got = model.get_submodule(first)(x)[:, -CHECKED:].clone()
    finally:
        layers.put(model, before)
    fused = first in modules
    want = ffn_reference(model, density if modules else 1.0, seed, x[:, -CHECKED:], fused)
    return compared(f"the FFN at {n} tokens", got, want)


def compared(what: str, got, want) -> check.Errors:
    """Errors of a tensor against one in float64. Raises `check.WrongResult` where they are over BF16's limits."""
    difference = got.double() - want
    rms = want.square().mean().sqrt()
    errors = check.Errors(
        float(difference.norm() / want.norm()),
        float((difference.abs() / want.abs().clamp(min=float(rms))).max()),
    )
    limit = check.LIMITS["bfloat16"]
    if not (errors.rel_err <= limit.rel_err and errors.max_err <= limit.max_err):
        raise check.WrongResult(
            f"{what} is wrong: rel_err {errors.rel_err:.1e} (limit {limit.rel_err:g}), max_err "
            f"{errors.max_err:.1e} (limit {limit.max_err:g})."
        )
    return errors


def _input(model, n: int, seed: int):
    """What a norm hands to an FFN: (1, n, hidden), of unit variance."""
    import torch

    made = torch.Generator(model.device).manual_seed(seed + 3)
    shape = (1, n, model.config.hidden_size)
    return torch.randn(shape, device=model.device, dtype=model.dtype, generator=made)


def _kept(module) -> int:
    """Values of a sparse FFN's blocks."""
    return sum(m.col_idx.numel() * 64 * 64 for m in module.modules() if hasattr(m, "col_idx"))


def _bytes(modules: Mapping[str, Any]) -> int:
    return sum(b.numel() * b.element_size() for m in modules.values() for b in m.buffers())


# ---------------------------------------------------------------- tables beside the records


def _append(run: Run, name: str, rows: list[dict]) -> None:
    path = run.folder / FOLDER / f"{name}.csv"
    more = {"layers": sizes(run)["num_hidden_layers"], "gpu": run.machine["gpu"], "when": _now()}
    new = pd.DataFrame([row | more for row in rows], columns=[*TABLES[name], *MORE])
    old = [pd.read_csv(path)] if path.is_file() else []
    text = pd.concat([*old, new], ignore_index=True).to_csv(index=False, lineterminator="\n")
    records.write_text(path, text)


def _have(run: Run, name: str, *columns: str) -> set[tuple]:
    path = run.folder / FOLDER / f"{name}.csv"
    if not path.is_file():
        return set()
    df = pd.read_csv(path)
    df = df[df["layers"] == sizes(run)["num_hidden_layers"]]
    return {*df[list(columns)].itertuples(index=False, name=None)}


def measure_attention(run: Run) -> None:
    """What was chosen for attention at each length: SDPA's backend, patterns, the share of causal blocks kept."""
    import torch

    from artifact.rooms.async_sparse.prefill import attention
    from artifact.rooms.async_sparse.prefill import model as of

    have = _have(run, "attention", "n")
    for n in KICK_LENGTHS if run.preset == "kick" else LENGTHS:
        if (n,) in have:
            continue
        model = _of(run)
        backend, shares = of.choose_backend(model, n), []
        selected = attention.select

        def watched(q, k, is_vertical, selected=selected, shares=shares):
            kept = selected(q, k, is_vertical)
            shares.append(kept.float().mean() * 2 * kept.shape[-1] / (kept.shape[-1] + 1))
            return kept

        attention.select = watched
        try:
            with torch.no_grad(), of.Configured(model, CONFIGURATIONS[ATTENTION], {}, n):
                of.last_hidden(model, of.tokens(model, n, run.seed + 2))
        finally:
            attention.select = selected
        _append(
            run,
            "attention",
            [
                {
                    "n": n,
                    "backend": backend,
                    "vertical_share": sum(model.vertical_share) / len(model.vertical_share),
                    "kept_share": float(torch.stack(shares).mean()),
                }
            ],
        )
        _free()


def timed_us(run: Run, name: str, n: int, density: float) -> float:
    """Microseconds of a configuration in the records of whole models; NaN where it is not there."""
    path = run.folder / f"{EXPERIMENT}.csv"
    if not path.is_file():
        return math.nan
    df = records.read(path)
    same = (df["variant"] == name) & (df["n"] == n) & np.isclose(df["density"], density)
    return float(df.loc[same & (df["label"] == _label(run)), "median_us"].iloc[-1]) if same.any() else math.nan


def measure_parts(run: Run) -> None:
    """Where the GPU's time goes, for each configuration at some lengths: by ranges of PyTorch's profiler.

    A profiled pass is launched by the host and not from a graph, and ranges hold what the GPU waits for in them. Parts
    that add up to more than the timed call, by over `APART`, are left out.
    """
    from artifact.rooms.async_sparse.prefill import model as of
    from artifact.rooms.async_sparse.prefill import parts

    density = DENSITIES[0]
    have = _have(run, "parts", "configuration", "n")
    for n in KICK_LENGTHS if run.preset == "kick" else PART_LENGTHS:
        for name, c in CONFIGURATIONS.items():
            if (name, n) in have:
                continue
            model = _of(run)
            modules, _ = _sparse_of(run, density)
            of.choose_backend(model, n)
            ids = of.tokens(model, n, run.seed + 2)
            with of.Configured(model, c, modules.get(c.ffn, {}), n):
                found = parts.profiled(model, lambda ids=ids, model=model: of.logits(model, ids))
            over = sum(found.values()) / timed_us(run, name, n, density)
            if over > 1 + APART:
                said = f"the profiled pass took {over:.2f} times as long as the timed one"
                print(f"{ROOM}/parts: {name} at {n} tokens is left out: {said}")
                _free()
                continue
            _append(
                run,
                "parts",
                [
                    {"configuration": name, "n": n, "density": density, "part": part, "us": us}
                    for part, us in found.items()
                ],
            )
            _free()


def measure_checks(run: Run) -> None:
    """How far the last hidden state is from float32's, sparse, and dense with the same weights masked (`apart`).

    Raises `check.WrongResult` where a sparse model is further off than NOISES times the dense one.
    """
    from artifact.rooms.async_sparse.prefill import model as of

    density = DENSITIES[0]
    if {(name,) for name in ("ffn", "ffn_ours")} <= _have(run, "checks", "configuration"):
        return
    model = _of(run)
    ids = of.tokens(model, CHECK_LENGTH, run.seed + 4)
    found, noise = apart(model, _sparse_of(run, density)[0], density, run.seed, ids)
    for name, difference in found.items():
        if not difference <= NOISES * noise:
            raise check.WrongResult(
                f"{name}: the last hidden state differs by {difference:.1e} from float32's, and that of the dense "
                f"model with the same weights by {noise:.1e}."
            )
    _append(
        run,
        "checks",
        [
            {"configuration": name, "density": density, "rel_diff": difference, "noise": noise}
            for name, difference in found.items()
        ],
    )
    _free()


def apart(model, modules: Mapping, density: float, seed: int, ids) -> tuple[dict[str, float], float]:
    """(configuration -> how far its last hidden state is from that of the masked dense model in float32, how far that
    model's own is in BF16), as norms of differences over the norm. The model is as before afterwards."""
    import torch

    from artifact.rooms.async_sparse.prefill import model as of
    from kernels.library import layers

    of.choose_backend(model, ids.shape[1])
    found = {}
    with torch.no_grad():
        for name in ("ffn", "ffn_ours"):
            c = CONFIGURATIONS[name]
            with of.Configured(model, c, modules[c.ffn], ids.shape[1]):
                found[name] = of.last_hidden(model, ids).double()
        kept = masked_in_place(model, layers.masks(model, density, seed=seed))
        try:
            dense = of.last_hidden(model, ids).double()
            wide = copy.deepcopy(model).float()
            for module in of.attentions(wide):
                module.backend = "MATH"  # which takes float32
            want = of.last_hidden(wide, ids).double()
        finally:
            for weight, whole_again in kept:
                weight.copy_(whole_again)
    return {name: difference(got, want) for name, got in found.items()}, difference(dense, want)


def masked_in_place(model, masks: Mapping) -> list[tuple]:
    """Mask the FFNs' weights; (weight, what it was, on the host) of each, to put back."""
    from kernels.library import layers

    kept = []
    for name, of_ffn in masks.items():
        for p, mask in of_ffn.items():
            weight = getattr(model.get_submodule(name), p).weight
            kept.append((weight, weight.detach().to("cpu", copy=True)))
            weight.copy_(layers.masked(weight, mask))
    return kept


def difference(got, want) -> float:
    """‖got - want‖ / ‖want‖."""
    return float((got - want).norm() / want.norm())
