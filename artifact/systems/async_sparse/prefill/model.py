"""The model whose prefill is measured: transformers' Qwen2 in the sizes of Qwen2.5-7B, its configurations and parts.

What is compared, and what it is called, needs no PyTorch.

Weights are random, of a seed and made on the device, unless the environment names a folder of real ones (WEIGHTS=).
The passes between products are compiled once and alike for all configurations, the dense one too: RMSNorm, rotary
embedding and SwiGLU each read and write once.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifact.measure.run import Run
from artifact.systems.async_sparse.prefill import attention
from kernels.lazy import Lazy, torch
from kernels.library import layers

profiler, transformers = Lazy("torch.profiler"), Lazy("transformers")


# ---------------------------------------------------------------- what is compared


@dataclass(frozen=True)
class Configuration:
    """A prefill: which parts of the model are sparse, as in the source or ours."""

    called: str  #: in figures and tables
    attention: str = "dense"  #: "dense"; "sparse" always; "pays" where the pattern keeps few enough blocks
    ffn: str = ""  #: "" dense; "opt5" each projection by the source's kernel; "gated" ours, "unit_ring" each by ours
    stated: str = ""  #: the source's name of it in published/text.csv


DENSE, ATTENTION, FFN, BOTH = "dense", "attention", "ffn", "both"
FFN_OURS, BOTH_OURS = "ffn_ours", "both_ours"
CONFIGURATIONS: dict[str, Configuration] = {
    DENSE: Configuration("dense"),
    ATTENTION: Configuration("sparse attention", "sparse", stated="minference"),
    FFN: Configuration("sparse FFN, as published", ffn="opt5", stated="opt5"),
    BOTH: Configuration("both, as published", "sparse", "opt5", "both"),
    FFN_OURS: Configuration("sparse FFN, ours", ffn="gated"),
    BOTH_OURS: Configuration("both, ours", "pays", "gated"),
}
#: The FFN layer alone: the dense one, the source's, ours in three launches and a pass, ours in two launches.
LAYERS: dict[str, Configuration] = {
    "ffn_dense": Configuration("dense"),
    "ffn_opt5": Configuration("as published", ffn="opt5"),
    "ffn_unit_ring": Configuration("ours, projections apart", ffn="unit_ring"),
    "ffn_gated": Configuration("ours, gate and up in one", ffn="gated"),
}
#: The ranges of the profiler, and what is in none of them: how they are called.
PARTS = {
    "ffn": "FFN",
    "attention": "attention",
    "selection": "choosing blocks",
    "projections": "projections of attention",
    "norms": "norms",
    "rotary": "rotary embedding",
    "rest": "the rest",
}
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
LAYER_LENGTHS = (4096, 16384, 65536)
PART_LENGTHS = (1024, 4096, 16384, 65536)
DENSITIES = (0.1, 0.05)
#: Qwen2.5-7B, as its config.json has it.
SIZES: dict[str, Any] = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "use_sliding_window": False,
}
#: Environment variable: a folder of weights that transformers' from_pretrained reads.
WEIGHTS = "WEIGHTS"
KICK_LAYERS, KICK_LENGTHS = 4, (1024,)
CHECK_LENGTH = 1024  #: tokens whose last hidden state is compared with float32's
WHOLE, LAYER, FOLDER = "prefill", "prefill_ffn", "prefill"  #: records, and the folder of tables beside them


def label(run: Run) -> str:
    """Return what tells rows from those of the whole model with random weights, which claims are judged on."""
    usual = f"{KICK_LAYERS} layers" if run.preset == "kick" else ""
    return f"weights of {Path(os.environ[WEIGHTS]).name}" if os.environ.get(WEIGHTS) else usual


def flops(sizes: Mapping[str, Any], n: int) -> float:
    """Return those of a dense prefill of n tokens up to the last token's logits.

    Two for each weight and token, and causal attention; embedding, norms and softmax are not counted.
    """
    hidden, keys = sizes["hidden_size"], sizes["num_key_value_heads"] / sizes["num_attention_heads"]
    weights = 2 * hidden * hidden * (1 + keys) + 3 * hidden * sizes["intermediate_size"]
    return sizes["num_hidden_layers"] * (2 * n * weights + 2 * hidden * n * (n + 1)) + 2 * hidden * sizes["vocab_size"]


# ---------------------------------------------------------------- the model


NAME = "sparsity_on_trial"  #: of the attention function among transformers'
PREFIX = "part: "  #: how ranges of the profiler begin; what follows is one of PARTS
#: Module → the part that a range around it is of.
RANGED = {"mlp": "ffn"} | dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "projections")


def build(seed: int, device, sizes: Mapping[str, Any] = SIZES):
    """Make a causal language model in BF16 on a device, ready for `configured`."""
    if folder := os.environ.get(WEIGHTS):
        made = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    else:
        torch.manual_seed(seed)
        with torch.device(device):
            made = transformers.AutoModelForCausalLM.from_config(
                transformers.Qwen2Config(**sizes), dtype=torch.bfloat16
            )
    made.eval().requires_grad_(False)
    # Norms, rotary embedding and SwiGLU of a Qwen2- or Llama-like model are one compiled pass each.
    for module in made.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = functools.partial(_norm, module)
    for module in layers.ffns(made).values():
        module.forward = functools.partial(_ffn, module)
    _compile_rotary(sys.modules[type(made).__module__])
    transformers.AttentionInterface.register(NAME, _attend)
    made.set_attn_implementation(NAME)
    for module in attentions(made):
        module.sparse, module.seen, module.backend, module.is_vertical = False, None, "", None
    return made


def tokens(model, n: int, seed: int):
    """Return int64 (1, n), random, on the model's device."""
    return torch.randint(
        model.config.vocab_size, (1, n), device=model.device, generator=torch.Generator(model.device).manual_seed(seed)
    )


def last_hidden(model, ids):
    """Return the hidden state of the last token, (1, hidden), after the last norm."""
    return model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, -1]


def logits(model, ids):
    """Return the logits of the last token alone: those of all would take 20 GB at 65,536."""
    return model.get_output_embeddings()(last_hidden(model, ids))


# ---------------------------------------------------------------- passes between products


def rms_norm(x, weight, eps: float):
    """Normalise x by its root mean square in float32, times `weight`."""
    wide = x.float()
    return weight * (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def swiglu(gate, up):
    """Return silu(gate) · up, computed in float32."""
    from torch.nn.functional import silu  # in what is compiled, no import waits for its first use

    return (silu(gate.float()) * up.float()).to(gate.dtype)


@functools.cache
def as_pass(function: Callable, on_gpu: bool) -> Callable:
    """Return a pass as it runs on a device: compiled on a GPU, once more at a second length, and then for all."""
    return torch.compile(function) if on_gpu else function


@functools.cache
def _compile_rotary(source) -> None:
    rotary = source.apply_rotary_pos_emb

    def apply(q, k, *args, **kwargs):
        with _range("rotary"):
            return as_pass(rotary, q.is_cuda)(q, k, *args, **kwargs)

    source.apply_rotary_pos_emb = apply


def _norm(module, x):
    with _range("norms"):
        return as_pass(rms_norm, x.is_cuda)(x, module.weight, module.variance_epsilon)


def _ffn(module, x):
    return module.down_proj(as_pass(swiglu, x.is_cuda)(module.gate_proj(x), module.up_proj(x)))


def _range(name: str):
    return profiler.record_function(PREFIX + name)


# ---------------------------------------------------------------- attention


def attentions(model) -> list:
    """Return the attention of each layer, in order."""
    return [module for module in model.modules() if hasattr(module, "q_proj")]


def _attend(module, query, key, value, attention_mask, **_):
    if module.is_vertical is None:
        module.is_vertical = attention.dominant(query, key)
    kept = None
    if module.sparse:
        query, key, value = (x.contiguous() for x in (query, key, value))
        with _range("selection"):
            kept = attention.select(query, key, module.is_vertical)
        if module.seen is not None:
            module.seen.append(kept)
    with _range("attention"):
        made = (
            attention.dense(query, key, value, module.backend)
            if kept is None
            else attention.over(query, key, value, kept)
        )
    return made.transpose(1, 2).contiguous(), None


def choose_patterns(model, ids) -> list[float]:
    """Choose each head's pattern on these tokens, none of those measured; the share of vertical-slash by layer."""
    choose_backend(model, ids.shape[1])
    for module in attentions(model):
        module.is_vertical = None
    with torch.no_grad():
        last_hidden(model, ids)
    return [float(module.is_vertical.float().mean()) for module in attentions(model)]


def choose_backend(model, n: int) -> str:
    """Choose SDPA's fastest backend for n tokens, from now on that of every layer; its name."""
    c = model.config
    shape = (1, n, -1, c.hidden_size // c.num_attention_heads)
    q, k, v = (  # as projections hand them on
        torch.randn(1, n, h * shape[-1], device=model.device, dtype=model.dtype).view(shape).transpose(1, 2)
        for h in (c.num_attention_heads, c.num_key_value_heads, c.num_key_value_heads)
    )
    found = attention.fastest_backend(q, k, v)
    for module in attentions(model):
        module.backend = found
    return found


@contextmanager
def configured(
    model, configuration: Configuration, modules: Mapping[str, Any], n: int, seen: list | None = None
) -> Iterator[None]:
    """Have the model in a configuration meanwhile: with the modules that it replaces, and its attention.

    seen: what blocks of attention were kept is added to it, layer by layer.
    """
    pays = configuration.attention == "pays" and attention.most_kept(n) <= attention.WORTH
    before = layers.put(model, modules)
    for module in attentions(model):
        module.sparse, module.seen = pays or configuration.attention == "sparse", seen
    try:
        yield
    finally:
        layers.put(model, before)
        for module in attentions(model):
            module.sparse, module.seen = False, None


# ---------------------------------------------------------------- where the time goes


@contextmanager
def ranges(model) -> Iterator[None]:
    """Put ranges of the profiler around every FFN and the projections of attention, meanwhile."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if part := RANGED.get(name.rpartition(".")[2]):
                stack.callback(setattr, module, "forward", module.forward)
                module.forward = _range(part)(module.forward)
        yield


def profiled(model, call: Callable) -> dict[str, float]:
    """Return part of PARTS → microseconds on the GPU of one call, after one that compiles."""
    with torch.no_grad():
        call()
        torch.cuda.synchronize()
        both = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
        with ranges(model), profiler.profile(activities=both, acc_events=True) as seen:
            call()
            torch.cuda.synchronize()
    return summed(seen.events())


def summed(events: Sequence) -> dict[str, float]:
    """Return microseconds of each part, of the profiler's events; "rest" is what lies in no range.

    An event on the host has the device time of all that it called; where the profiler could not tell what a range
    called, the range's own span on the device stands for it. Raises RuntimeError where no kernel lies in an FFN.
    """
    host, device = ([e for e in events if str(e.device_type).endswith("CPU") == here] for here in (True, False))
    called = {part: sum(e.device_time_total for e in host if e.name == PREFIX + part) for part in PARTS}
    found = {
        part: float(us or sum(e.time_range.elapsed_us() for e in device if e.name == PREFIX + part))
        for part, us in called.items()
    }
    if not found["ffn"] > 0:
        raise RuntimeError("the profiler saw no kernel in an FFN: it needs CUPTI, which a container may withhold")
    total = sum(e.device_time_total for e in host if e.cpu_parent is None)
    return found | {"rest": max(0.0, float(total - sum(called.values())))}
