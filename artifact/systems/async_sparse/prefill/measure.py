"""Measuring a prefill, point by point: what is there already is not measured again.

    prefill.csv        the whole model, a row for each configuration, length and share of blocks (`records.COLUMNS`)
    prefill_ffn.csv    the first layer's FFN alone
    prefill/*.csv      parts.csv: where the time goes; attention.csv: what was chosen; checks.csv: the last hidden state

Everything runs from CUDA graphs, in the harness's order and with its statistics (`bench.measure`): launches of
contenders in turns, after a flush of the L2.
"""

import copy
import importlib.util
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from itertools import product
from typing import Any

import pandas as pd

from artifact.book.study import where
from artifact.measure import bench, device, records, verification
from artifact.measure.apart import captured, free
from artifact.measure.run import Prepared, Run, row
from artifact.systems.async_sparse.prefill import model as of
from artifact.systems.async_sparse.prefill.model import (
    ATTENTION,
    CHECK_LENGTH,
    CONFIGURATIONS,
    DENSE,
    DENSITIES,
    FFN,
    FFN_OURS,
    FOLDER,
    KICK_LAYERS,
    KICK_LENGTHS,
    LAYER,
    LAYER_LENGTHS,
    LAYERS,
    LENGTHS,
    PART_LENGTHS,
    SIZES,
    WHOLE,
    flops,
    label,
)
from kernels.contract import Operands, Problem
from kernels.lazy import torch
from kernels.library import layers

SYSTEM = "async_sparse"
#: Record → its contenders, all at all points: sparse attention does not know the share of blocks, and is measured
#: beside each, as the dense model is.
PLANS = {LAYER: LAYERS, WHOLE: CONFIGURATIONS}
ALL_LENGTHS = {LAYER: LAYER_LENGTHS, WHOLE: LENGTHS, "parts": PART_LENGTHS}
#: Device time for a contender at a point, and samples at least: of what takes seconds, few.
BUDGET_S = 0.4
SAMPLES = {4096: 7, 16384: 5, 65536: 3}
CHECKED = 256  #: tokens whose FFN is compared with float64
CHOICE_LENGTH = 16384  #: of the tokens that choose a pattern for each head
#: How often the dense model's own difference from float32 a sparse model's may be.
NOISES = 2.0
#: By how much a profiled pass may be longer than the timed one.
APART = 0.1
FLOPS_DEF = "the dense model's: 2 for each weight and token, and causal attention"
FFN_DEF = "2·nnz·N"
M, K = 18944, 3584  #: of a record's rows: those of gate_proj


def can_measure(run: Run) -> bool:
    """Tell whether a prefill can be measured: on Hopper, with the libraries, as `run` says."""
    hopper = run.mode == "measure" and str(run.machine.get("compute_capability")) == "9.0"
    return hopper and all(map(importlib.util.find_spec, ("torch", "transformers", "cupy")))


def measure(run: Run) -> None:
    """Measure what is not there yet, then make the tables.

    One share of blocks after the other, FFNs alone first, lengths as they grow. Does nothing where a prefill cannot be
    measured.
    """
    if can_measure(run):
        made = Prefill(run)
        for density, record in product(made.densities, PLANS):
            for n in made.missing(record, density):
                made.point(record, n, density)
                free()
        for table in (made.checks, made.parts, made.attention):
            made.write(table)


@lru_cache(1)
def sparse_ffns(model, density: float, seed: int) -> dict[str, tuple[dict, float]]:
    """Return what takes the place of FFNs or of their projections, and the milliseconds that it took.

    By `Configuration.ffn`, with the same blocks in all; by our kernel each of the first FFN's projections alone.
    """
    name, of_first = next(iter(layers.masks(model, density, seed=seed).items()))
    replaced, ffn = layers.classes().BlockSparseLinear.of, model.get_submodule(name)
    made: dict[str, tuple[dict, float]] = {
        "": ({}, 0.0),
        "unit_ring": ({f"{name}.{p}": replaced(getattr(ffn, p), m) for p, m in of_first.items()}, 0.0),
    }
    for called, published in (("opt5", True), ("gated", False)):
        began = time.perf_counter()
        modules = layers.replacements(model, density, seed=seed, published=published)
        torch.cuda.synchronize()
        made[called] = modules, (time.perf_counter() - began) * 1e3
    return made


class Prefill:
    """A measurement of a model that is made once."""

    def __init__(self, run: Run) -> None:
        kick = run.preset == "kick"
        self.run, self.densities = run, DENSITIES[:1] if kick else DENSITIES
        self.sizes = SIZES | ({"num_hidden_layers": KICK_LAYERS} if kick else {})
        self.lengths = {name: KICK_LENGTHS if kick else all_of for name, all_of in ALL_LENGTHS.items()}

    @cached_property
    def model(self):
        """The model on the current GPU, with a pattern for each head."""
        torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
        made = of.build(self.run.seed, "cuda", self.sizes)
        made.vertical_share = of.choose_patterns(made, of.tokens(made, CHOICE_LENGTH, self.run.seed + 1))
        return made

    # ------------------------------------------------------------ records

    def missing(self, record: str, density: float) -> list[int]:
        """Return the lengths of which a record has not all contenders; what it shall have is written beside it."""
        path, names, lengths = self.run.folder / f"{record}.csv", PLANS[record], self.lengths[record]
        df = records.read(path) if path.is_file() else pd.DataFrame(columns=list(records.COLUMNS))
        df = where(df, label=label(self.run), seed=self.run.seed, density=density)
        if todo := [n for n in lengths if {*names} - {*where(df, n=n)["variant"]}]:
            records.plan(path, product(names, [label(self.run)], [M], lengths, [K], self.densities))
        return todo

    def point(self, record: str, n: int, density: float) -> None:
        """Check and time all contenders of a record at n tokens, and append a row for each.

        Raises `verification.WrongResult` for an FFN or an output that is wrong.
        """
        model, seed, first = self.model, self.run.seed, next(iter(layers.ffns(self.model)))
        ffns, backend = sparse_ffns(model, density, seed), of.choose_backend(model, n)
        ids, x = of.tokens(model, n, seed + 2), _input(model, n, seed)
        errors = {ffn: ffn_error(model, made, density, seed, n) for ffn, (made, _) in ffns.items()}
        graphs, pool = {}, torch.cuda.graph_pool_handle()
        for name, c in PLANS[record].items():
            with of.configured(model, c, ffns[c.ffn][0], n):
                call = partial(of.logits, model, ids) if record == WHOLE else partial(model.get_submodule(first), x)
                graphs[name] = captured(call, pool)
        times = timed({name: graph for name, (graph, _) in graphs.items()}, self.run.device, n)
        for name, (graph, output) in graphs.items():
            graph.replay()  # the graphs share memory, so the others have written over what it left
            if not bool(torch.isfinite(output).all()):
                raise verification.WrongResult(f"{name} at {n} tokens: the output is not finite.")
        every = [module for name, module in ffns["gated"][0].items() if record == WHOLE or name == first]
        nnz = 64 * 64 * sum(m.col_idx.numel() for ffn in every for m in ffn.modules() if hasattr(m, "col_idx"))
        prepared = dict.fromkeys(ffns, Prepared(0.0, 0))
        work, said, least = 2 * nnz * n, FFN_DEF, 2 * nnz + 4 * n * K
        if record == WHOLE:
            work, said, least = int(flops(model.config.to_dict(), n)), FLOPS_DEF, _bytes(model.parameters())
            prepared = {
                f: Prepared(ms, sum(_bytes(m.buffers()) for m in made.values())) for f, (made, ms) in ffns.items()
            }
        none = partial(Operands, None, None)  # nobody asks for them
        problem = Problem(
            room=SYSTEM,
            label=label(self.run),
            m=M,
            n=n,
            k=K,
            nnz=nnz,
            density=density,
            seed=seed,
            useful_flops=work,
            flops_def=said,
            least_bytes=least,
            requested_bytes=least,
            make_host=none,
            make_device=none,
        )
        records.append(
            self.run.folder / f"{record}.csv",
            [
                row(problem, name, record, prepared[c.ffn], errors[c.ffn], times[name], **self.about())
                for name, c in PLANS[record].items()
            ],
        )
        print(f"{SYSTEM}/{record}: {n} tokens, {density:g} of the blocks, SDPA's {backend}", flush=True)

    def about(self) -> dict[str, str]:
        """Return what tells where and when a row was measured."""
        return {"gpu": self.run.machine["gpu"], "when": datetime.now(UTC).isoformat(timespec="seconds")}

    # ------------------------------------------------------------ tables beside the records

    def write(self, make: Callable[[], pd.DataFrame]) -> None:
        """Write a table of its name below what the file holds, unless that is of this model already."""
        path, count = self.run.folder / FOLDER / f"{make.__name__}.csv", self.sizes["num_hidden_layers"]
        old = [pd.read_csv(path, float_precision="round_trip")] if path.is_file() else []
        if not any((df["layers"] == count).any() for df in old):
            df = pd.concat([*old, make().assign(layers=count, **self.about())], ignore_index=True)
            records.write_text(path, df.to_csv(index=False, lineterminator="\n"))
            free()

    def attention(self) -> pd.DataFrame:
        """Return what attention was at each length: SDPA's backend, patterns, the share of causal blocks kept."""
        rows, vertical = [], sum(self.model.vertical_share) / len(self.model.vertical_share)
        for n in self.lengths[WHOLE]:
            backend, seen = of.choose_backend(self.model, n), list[Any]()
            with torch.no_grad(), of.configured(self.model, CONFIGURATIONS[ATTENTION], {}, n, seen):
                of.last_hidden(self.model, of.tokens(self.model, n, self.run.seed + 2))
            shares = [kept.float().mean() * 2 * kept.shape[-1] / (kept.shape[-1] + 1) for kept in seen]
            rows.append((n, backend, vertical, float(torch.stack(shares).mean())))
        return pd.DataFrame(rows, columns=["n", "backend", "vertical_share", "kept_share"])

    def parts(self) -> pd.DataFrame:
        """Return where the GPU's time goes, for each configuration at some lengths: by ranges of PyTorch's profiler.

        A profiled pass is launched by the host and not from a graph, and ranges hold what the GPU waits for in them.
        Parts that add up to more than the timed call, by over APART, are left out.
        """
        density, rows = self.densities[0], []
        df = where(records.read(self.run.folder / f"{WHOLE}.csv"), label=label(self.run), density=density)
        for n, (name, c) in product(self.lengths["parts"], CONFIGURATIONS.items()):
            of.choose_backend(self.model, n)
            ids = of.tokens(self.model, n, self.run.seed + 2)
            with of.configured(self.model, c, sparse_ffns(self.model, density, self.run.seed)[c.ffn][0], n):
                found = of.profiled(self.model, partial(of.logits, self.model, ids))
            over = sum(found.values()) / where(df, variant=name, n=n)["median_us"].iloc[-1]
            if over <= 1 + APART:
                rows += [(name, n, density, part, us) for part, us in found.items()]
            else:
                print(f"{name} at {n} tokens is left out: profiled, it took {over:.2f} times as long as timed")
            free()
        return pd.DataFrame(rows, columns=["configuration", "n", "density", "part", "us"])

    def checks(self) -> pd.DataFrame:
        """Return how far the last hidden state is from float32's (`hidden_errors`).

        Raises `verification.WrongResult` where a sparse model is further off than NOISES times the dense one.
        """
        density, ids = self.densities[0], of.tokens(self.model, CHECK_LENGTH, self.run.seed + 4)
        found, noise = hidden_errors(
            self.model,
            {ffn: made for ffn, (made, _) in sparse_ffns(self.model, density, self.run.seed).items()},
            density,
            self.run.seed,
            ids,
        )
        if not all(off <= NOISES * noise for off in found.values()):
            raise verification.WrongResult(
                f"The last hidden state differs from float32's by {found}, and that of the dense model with the same "
                f"weights by {noise:.1e}."
            )
        return pd.DataFrame({"configuration": [*found], "density": density, "rel_diff": found.values(), "noise": noise})


def _bytes(tensors) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _input(model, n: int, seed: int):
    """Return what a norm hands to an FFN: (1, n, hidden), of unit variance."""
    made = torch.Generator(model.device).manual_seed(seed + 3)
    return torch.randn((1, n, model.config.hidden_size), device=model.device, dtype=model.dtype, generator=made)


def timed(graphs: Mapping[str, Any], opened, n: int) -> dict[str, bench.Timing]:
    """Time CUDA graphs of n tokens by the harness's protocol: in turns, each after a flush.

    opened: `cuda.core.Device`.
    """
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

    least = next(count for length, count in SAMPLES.items() if n <= length)
    return bench.measure(list(graphs), run, 100.0, BUDGET_S, least, bench.MAX_SAMPLES, graphs)


# ---------------------------------------------------------------- is it right?


def ffn_error(model, modules: Mapping[str, Any], density: float, seed: int, n: int) -> verification.Errors:
    """Return the errors of the first layer's FFN with these modules, on n tokens.

    CHECKED of them are compared with the FFN with its weights masked, in float64 but for what a layer hands on in
    BF16: both products and what SwiGLU makes of them; as one module, silu of the gate's and the product with up's.
    Without modules nothing is masked. Raises `verification.WrongResult` where they are over BF16's limits.
    """
    x, silu = _input(model, n, seed), torch.nn.functional.silu
    name, masks = next(iter(layers.masks(model, density if modules else 1.0, seed=seed).items()))
    ffn = model.get_submodule(name)
    gate, up, down = (layers.masked(getattr(ffn, p).weight, masks[p]).double() for p in layers.PROJECTIONS)

    def rounded(tensor):
        return tensor.to(x.dtype).double()

    with torch.no_grad():
        with of.configured(model, CONFIGURATIONS[DENSE], modules, n):
            got = model.get_submodule(name)(x)[0, -CHECKED:].double()
        g, u = (x[0, -CHECKED:].double() @ weight.t() for weight in (gate, up))
        hidden = rounded(silu(g)) * u if name in modules else silu(rounded(g)) * rounded(u)
        want = rounded(hidden) @ down.t()
    got, want = (tensor.cpu().numpy() for tensor in (got, want))
    return verification.compare(got, verification.reference(want), f"the FFN at {n} tokens", "bfloat16")


def hidden_errors(model, modules: Mapping, density: float, seed: int, ids) -> tuple[dict[str, float], float]:
    """Return how far each configuration's last hidden state is from the masked dense model's in float32.

    (configuration → that, how far that model's own is in BF16), as norms of differences over the norm.
    """
    of.choose_backend(model, ids.shape[1])
    found = {}
    with torch.no_grad():
        for name in (FFN, FFN_OURS):
            with of.configured(model, CONFIGURATIONS[name], modules[CONFIGURATIONS[name].ffn], ids.shape[1]):
                found[name] = of.last_hidden(model, ids).double()
        own = copy.deepcopy(model)
        own.load_state_dict(
            {
                f"{name}.{p}.weight": layers.masked(getattr(own.get_submodule(name), p).weight, mask)
                for name, masks in layers.masks(model, density, seed=seed).items()
                for p, mask in masks.items()
            },
            strict=False,
        )
        dense = of.last_hidden(own, ids).double()
        own.float()
        for module in of.attentions(own):
            module.backend = "MATH"  # which takes float32
        want = of.last_hidden(own, ids).double()
    return {name: difference(got, want) for name, got in found.items()}, difference(dense, want)


def difference(got, want) -> float:
    """Return ‖got - want‖ / ‖want‖."""
    return float((got - want).norm() / want.norm())
