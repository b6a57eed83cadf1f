"""What 2:4 gains in a whole model: prefill and decode in the sizes of Qwen2.5-7B and Llama-3-8B, in BF16 and FP8.

    python -m artifact.systems.tensor_core_24.model [FOLDER]   model.csv and model_host.csv anew, on a GPU with PyTorch
    python -m artifact.systems.tensor_core_24.model FOLDER --small --models Llama-3-8B       two layers, a quick trial

Weights are random. Four contenders share the embedding and the last layer, which stay dense in BF16: nn.Linear, dense
e4m3 by `torch._scaled_mm`, and what `sparsify` makes of the projections in either precision. Each decoder layer is
compiled by torch.compile, equal ones once; a step, all layers and the logits, is one CUDA graph, and graphs are
replayed in turns. Prefill makes the logits of its last token alone; decode is one token of each sequence, whose caches
hold 1,024 positions. model_host.csv: what a call costs the host, without a compiler or a graph.
"""

import copy
import itertools
import time
import timeit
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch
from torch import nn

from artifact import command
from artifact.measure import apart, device
from artifact.systems.tensor_core_24.tables import HOST_MODEL, KEY, WHOLE_MODEL
from kernels.contract import require
from kernels.library.semi_structured import SemiStructuredLinear, SemiStructuredLinearFP8, kept, sparsify

COLUMNS = (*KEY, "ms", "ms_q25", "ms_q75", "replays")
HOST_COLUMNS = ("layer", "inputs", "outputs", "tokens", "us")
CONTENDERS = (("bf16", "dense"), ("bf16", "2:4"), ("e4m3", "dense"), ("e4m3", "2:4"))
HEAD, EPS, SEED = 128, 1e-6, 5
PADDED = 32  #: rows that dense FP8 pads fewer tokens to, where that is faster
BUDGET_S, MOST = 1.5, 100  #: what replays of a phase may take, and how many of each graph there are at most
#: Relative error of a layer. Numbers in e4m3 are 2.6% off, root mean square; of four products in a row come 7 to 10%.
LIMITS = {"bf16": 1e-2, "e4m3": 0.15}
HOST_SIZE, HOST_TOKENS = (4096, 4096), (1, 16)
HOST_CALLS, HOST_BATCHES = 50, 10  #: so few calls between two waits that the queue of launches is never full
torch._dynamo.config.recompile_limit = 256
torch._dynamo.config.accumulated_recompile_limit = 1024
BF16: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}

#: Sizes, as configurations of transformers have them. keys: heads of keys and values; inner: of the FFN; bias: of q, k
#: and v.
Model = namedtuple("Model", "name hidden layers heads keys inner vocab theta bias")
MODELS = {
    "Qwen2.5-7B": Model("Qwen2.5-7B", 3584, 28, 28, 4, 18944, 152064, 1e6, True),
    "Llama-3-8B": Model("Llama-3-8B", 4096, 32, 32, 8, 14336, 128256, 5e5, False),
}
#: tokens: of each sequence in one step; context: positions that the last one attends to; least: replays of each graph.
Phase = namedtuple("Phase", "name sequences tokens context least")
PHASES = (Phase("prefill", 1, 4096, 4096, 8), *(Phase("decode", n, 1, 1024, 20) for n in (1, 4, 16)))


# ---------------------------------------------------------------- the model


def quantised(x):
    """Return (e4m3, scales (rows, 1)) of rows, each with its largest magnitude at 448."""
    unit = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / 448
    return (x.float() / unit).to(torch.float8_e4m3fn), unit


def turned(x, cos, sin):
    """Rotate queries or keys by their positions (rotary embedding)."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class DenseFP8(nn.Module):
    """An nn.Linear in e4m3, a scale for each output and for each token, made in a pass that may be fused."""

    def __init__(self, linear):
        super().__init__()
        weight, unit = quantised(linear.weight.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scales", unit.T.contiguous())
        self.register_parameter("bias", linear.bias)
        self.rows = 0  #: what fewer tokens are padded to

    def quantise(self, x):
        """Return x in e4m3 with its scale, padded to the rows that the library takes."""
        lines = x.reshape(-1, x.shape[-1])
        missing = max(self.rows - lines.shape[0], 0)
        return quantised(nn.functional.pad(lines, (0, 0, 0, missing)) if missing else lines)

    def forward(self, x, done=None):
        """done: x as `quantise` makes it, which layers that read the same share."""
        return self.product(*(done or self.quantise(x)))[: x.numel() // x.shape[-1]].view(*x.shape[:-1], -1)

    def product(self, x, unit):
        """Multiply quantised x by the weight, with the library's kernel."""
        return torch._scaled_mm(
            x,
            self.weight.t(),
            scale_a=unit,
            scale_b=self.scales,
            bias=self.bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )


class Decoder(nn.Module):
    """A decoder layer: attention over a cache that it writes to, and SwiGLU, each after RMSNorm."""

    def __init__(self, model: Model):
        super().__init__()
        hidden, inner, heads, keys = model.hidden, model.inner, HEAD * model.heads, HEAD * model.keys
        sizes = {
            **{"q": (hidden, heads), "k": (hidden, keys), "v": (hidden, keys), "o": (heads, hidden)},
            **{"gate": (hidden, inner), "up": (hidden, inner), "down": (inner, hidden)},
        }
        for name, (inputs, outputs) in sizes.items():
            made = nn.Linear(inputs, outputs, bias=model.bias and name in "qkv", **BF16)
            setattr(self, f"{name}_proj", made)
            nn.init.normal_(made.weight, std=inputs**-0.5)
        self.before, self.between = (nn.RMSNorm(hidden, eps=EPS, **BF16) for _ in range(2))

    def forward(self, h, cos, sin, keys, values, at, causal: bool):
        """Return the hidden state after this layer, reading and writing its keys and values."""
        sequences, tokens, _ = h.shape
        read, shape = self.read(self.before(h), self.q_proj), (sequences, tokens, -1, HEAD)
        q = turned(self.q_proj(*read).view(shape).transpose(1, 2), cos, sin)
        keys[:, :, at] = turned(self.k_proj(*read).view(shape).transpose(1, 2), cos, sin)
        values[:, :, at] = self.v_proj(*read).view(shape).transpose(1, 2)
        seen = nn.functional.scaled_dot_product_attention(q, keys, values, is_causal=causal, enable_gqa=True)
        h = h + self.o_proj(seen.transpose(1, 2).reshape(sequences, tokens, -1))
        read = self.read(self.between(h), self.gate_proj)
        return h + self.down_proj(nn.functional.silu(self.gate_proj(*read)) * self.up_proj(*read))

    def read(self, x, by):
        """Return what several layers are called with: FP8 quantises once for all of them."""
        return (x, by.quantise(x)) if hasattr(by, "quantise") else (x,)


def linears(layer, cls) -> dict[str, Any]:
    """Return name → a decoder layer's modules of a class."""
    return {name: x for name, x in layer.named_children() if isinstance(x, cls)}


def contenders(model: Model) -> dict[tuple[str, str], Any]:
    """Return (precision, weight) → a decoder layer, all four of the same weights."""
    dense = Decoder(model).requires_grad_(False)
    eight = copy.deepcopy(dense)
    for name, x in linears(eight, nn.Linear).items():
        setattr(eight, name, DenseFP8(x))
    return {
        ("bf16", "dense"): dense,
        ("bf16", "2:4"): sparsify(copy.deepcopy(dense)),
        ("e4m3", "dense"): eight,
        ("e4m3", "2:4"): sparsify(copy.deepcopy(dense), dtype="e4m3"),
    }


@partial(torch.compile, dynamic=False, fullgraph=True)
def called(layer, *inputs):
    """Return what a layer makes of its inputs, compiled once for all layers of a contender in a phase."""
    return layer(*inputs)


def inputs_of(model: Model, phase: Phase) -> list[tuple]:
    """Return what each layer is called with besides hidden states; its caches are full from the start."""
    size = phase.sequences, model.keys, phase.context, HEAD
    at = torch.arange(phase.context - phase.tokens, phase.context, device="cuda")
    angles = (at[:, None] * model.theta ** (torch.arange(0, HEAD, 2, device="cuda") / -HEAD)).repeat(1, 2)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    return [
        (cos, sin, torch.randn(size, **BF16), torch.randn(size, **BF16), at, phase.tokens > 1)
        for _ in range(model.layers)
    ]


def check(layers: dict[tuple[str, str], Any], phase: Phase, inputs: tuple) -> dict[tuple[str, str], float]:
    """Return the relative error of what each contender's layer makes.

    Of 2:4 against the dense one with its weights pruned.

    Raises ValueError, one sentence, where it is too large. The input is small, so that the output is what a layer adds.
    """
    dense, errors = layers["bf16", "dense"], {}
    pruned = copy.deepcopy(dense)
    for x in linears(pruned, nn.Linear).values():
        x.weight.mul_(kept(x.weight))
    h = 0.1 * torch.randn((phase.sequences, phase.tokens, dense.q_proj.in_features), **BF16)
    for (precision, weight), layer in layers.items():
        right = called(pruned if weight == "2:4" else dense, h, *inputs).float()
        error = float((called(layer, h, *inputs).float() - right).norm() / right.norm())
        require(
            error < LIMITS[precision],
            f"a layer with {weight} weights in {precision} is {error:.1e} off in {phase.name}, but less than "
            f"{LIMITS[precision]:g} is right: its kernels, or what was compiled, are wrong",
        )
        errors[precision, weight] = error
    return errors


# ---------------------------------------------------------------- what is measured


def in_turns(calls: Mapping[Any, Callable], count: int) -> dict[Any, list[float]]:
    """Return milliseconds of each call, all enqueued at once.

    A first round, for which the host may be late, is left out.
    """
    events: dict[Any, list[tuple]] = {key: [] for key in calls}
    for _, (key, call) in itertools.product(range(count + 1), calls.items()):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        events[key].append((begin, end))
    torch.cuda.synchronize()
    return {key: [a.elapsed_time(b) for a, b in pairs[1:]] for key, pairs in events.items()}


def rows_of_fp8(layers: list, tokens: int) -> int:
    """Return to how many rows dense FP8 pads so many tokens: what is faster for the products of these layers."""
    if tokens >= PADDED:
        return tokens

    def replay(rows):
        x, unit = quantised(torch.randn(rows, layers[0].weight.shape[1], device="cuda"))
        return apart.captured(lambda: [layer.product(x, unit) for layer in layers])[0].replay

    ms = in_turns({rows: replay(rows) for rows in (tokens, PADDED)}, 5)
    return min(ms, key=lambda rows: np.median(ms[rows]))


def race(stacks: dict, ends: tuple, model: Model, phase: Phase) -> dict[tuple[str, str], list[float]]:
    """Return contender → milliseconds of each replay, in turns, once a layer and all logits were found right.

    stacks: contender → layers; ends: what comes before and after them.
    """
    rows = rows_of_fp8([x.gate_proj for x in stacks["e4m3", "dense"]], phase.sequences * phase.tokens)
    for x in (x for layer in stacks["e4m3", "dense"] for x in linears(layer, DenseFP8).values()):
        x.rows = rows
    inputs = inputs_of(model, phase)
    errors = check({c: stack[0] for c, stack in stacks.items()}, phase, inputs[0])
    print(f"# dense FP8 in {rows} rows; relative errors", *(f"{x:.1e}" for x in errors.values()), flush=True)
    ids = torch.randint(model.vocab, (phase.sequences, phase.tokens), device="cuda")

    def step(stack):
        h = ends[0](ids)
        for layer, more in zip(stack, inputs, strict=True):
            h = called(layer, h, *more)
        return called(ends[1], h[:, -1:])

    pool = torch.cuda.graph_pool_handle()
    graphs = {c: apart.captured(partial(step, stack), pool) for c, stack in stacks.items()}
    begin = time.perf_counter()
    for c, (graph, logits) in graphs.items():
        graph.replay()
        require(
            bool(logits.isfinite().all()),
            f"{model.name} in {' '.join(c)} has logits that are not finite: see the {phase.name}",
        )
    count = int(np.clip(BUDGET_S / (time.perf_counter() - begin), phase.least, MOST))
    ms = in_turns({c: graph.replay for c, (graph, _) in graphs.items()}, count)
    for graph, _ in graphs.values():
        graph.reset()
    return ms


def host_rows() -> Iterator[tuple]:
    """Yield the rows of model_host.csv: eager calls, none of which waits for the GPU."""
    linear = nn.Linear(*HOST_SIZE, bias=False, **BF16)
    layers = {
        "nn.Linear": linear,
        "SemiStructuredLinear": SemiStructuredLinear.of(linear),
        "DenseFP8": DenseFP8(linear),
        "SemiStructuredLinearFP8": SemiStructuredLinearFP8.of(linear),
    }
    for tokens, (name, layer) in itertools.product(HOST_TOKENS, layers.items()):
        call, wait = partial(layer, torch.randn(tokens, HOST_SIZE[0], **BF16)), torch.cuda.synchronize
        s = timeit.repeat(call, wait, repeat=HOST_BATCHES + 1, number=HOST_CALLS)[1:]
        row = name, *HOST_SIZE, tokens, round(float(np.median(s)) * 1e6 / HOST_CALLS, 2)
        print(*row, flush=True)
        yield row


def model_rows(model: Model) -> Iterator[tuple]:
    """Yield a model's rows of model.csv, phase by phase."""
    torch.manual_seed(SEED)
    made = [contenders(model) for _ in range(model.layers)]
    stacks = {c: [x[c] for x in made] for c in CONTENDERS}
    last = nn.Sequential(
        nn.RMSNorm(model.hidden, eps=EPS, **BF16), nn.Linear(model.hidden, model.vocab, bias=False, **BF16)
    ).requires_grad_(False)
    ends = nn.Embedding(model.vocab, model.hidden, **BF16).requires_grad_(False), last
    for phase in PHASES:
        for contender, ms in race(stacks, ends, model, phase).items():
            low, median, high = (round(float(x), 4) for x in np.percentile(ms, (25, 50, 75)))
            yield (
                model.name,
                phase.name,
                phase.sequences * phase.tokens,
                phase.context,
                *contender,
                median,
                low,
                high,
                len(ms),
            )


@command.program(
    "artifact.systems.tensor_core_24.model",
    __doc__,
    command.option("folder", nargs="?", type=Path, default=WHOLE_MODEL.parent),
    command.option("--small", action="store_true", help="two layers of each model"),
    command.option("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME"),
)
def main(told: command.Options) -> None:
    """Write both files anew, on the GPU that is here, model.csv after each model."""
    require(
        not told.small or told.folder != WHOLE_MODEL.parent,
        "two layers are a trial, not what the page shows: name another folder",
    )
    told.folder.mkdir(parents=True, exist_ok=True)
    opened, begin, rows = device.require().open(), time.perf_counter(), []
    with torch.no_grad():
        apart.write(told.folder / HOST_MODEL.name, __file__, opened, HOST_COLUMNS, host_rows())
        for name in told.models:
            for row in model_rows(MODELS[name]._replace(layers=2) if told.small else MODELS[name]):
                rows.append(row)
                print(*row, f"# {time.perf_counter() - begin:.0f} s", flush=True)
            apart.write(told.folder / WHOLE_MODEL.name, __file__, opened, COLUMNS, rows)
            torch._dynamo.reset()
            apart.free()
            cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    raise SystemExit(main())
