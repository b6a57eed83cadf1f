"""The model whose prefill is measured: transformers' Qwen2 in the sizes of Qwen2.5-7B, its configurations and parts.

Weights are random, of a seed and made on the device, unless the environment names a folder of real ones (WEIGHTS=).
The passes between products are compiled once and alike for all configurations, the dense one too: RMSNorm, rotary
embedding and SwiGLU each read and write once.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from artifact.measure.lazy import Lazy, torch
from artifact.rooms.async_sparse.prefill import attention
from artifact.rooms.async_sparse.prefill.configurations import PARTS, SIZES, WEIGHTS, Configuration
from kernels.library import layers

NAME = "sparsity_on_trial"  #: of the attention function among transformers'
PREFIX = "part: "  #: how ranges of the profiler begin; what follows is one of PARTS
#: Module → the part that a range around it is of.
RANGED = {"mlp": "ffn"} | dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), "projections")
profiler, transformers = Lazy("torch.profiler"), Lazy("transformers")


def build(seed: int, device, sizes: Mapping[str, Any] = SIZES):
    """Make a causal language model in BF16 on a device, ready for `configured`."""
    if folder := os.environ.get(WEIGHTS):
        made = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    else:
        before = torch.get_default_dtype()
        torch.manual_seed(seed)
        try:
            torch.set_default_dtype(torch.bfloat16)
            with torch.device(device):
                made = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes))
        finally:
            torch.set_default_dtype(before)
    made.eval().requires_grad_(False)
    _compile_passes(made)
    transformers.AttentionInterface.register(NAME, _attend)
    made.set_attn_implementation(NAME)
    for module in attentions(made):
        module.sparse, module.backend, module.is_vertical = False, "", None
    return made


def tokens(model, n: int, seed: int):
    """Return int64 (1, n), random, on the model's device."""
    made = torch.Generator(model.device).manual_seed(seed)
    return torch.randint(model.config.vocab_size, (1, n), device=model.device, generator=made)


def last_hidden(model, ids):
    """Return the hidden state of the last token, (1, hidden), after the last norm."""
    return model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, -1]


def logits(model, ids):
    """Return the logits of the last token alone: those of all would take 20 GB at 65,536."""
    return model.get_output_embeddings()(last_hidden(model, ids))


# ---------------------------------------------------------------- passes between products


def rms_norm(x, weight, eps: float):
    wide = x.float()
    scaled = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return weight * scaled.to(x.dtype)


def swiglu(gate, up):
    from torch.nn.functional import silu  # in what is compiled, no import waits for its first use

    return (silu(gate.float()) * up.float()).to(gate.dtype)


@functools.cache
def as_pass(function: Callable, on_gpu: bool) -> Callable:
    """Return a pass as it runs on a device: compiled on a GPU, once more at a second length, and then for all."""
    return torch.compile(function) if on_gpu else function


def _compile_passes(model) -> None:
    """Make norms, rotary embedding and SwiGLU of a Qwen2- or Llama-like model one compiled pass each."""
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = functools.partial(_norm, module)
    for name in layers.ffns(model):
        module = model.get_submodule(name)
        module.forward = functools.partial(_ffn, module)
    _compile_rotary(sys.modules[type(model).__module__])


@functools.cache
def _compile_rotary(source) -> None:
    rotary = source.apply_rotary_pos_emb

    def apply(q, k, *args, **kwargs):
        with _part("rotary"):
            return as_pass(rotary, q.is_cuda)(q, k, *args, **kwargs)

    source.apply_rotary_pos_emb = apply


def _norm(module, x):
    with _part("norms"):
        return as_pass(rms_norm, x.is_cuda)(x, module.weight, module.variance_epsilon)


def _ffn(module, x):
    return module.down_proj(as_pass(swiglu, x.is_cuda)(module.gate_proj(x), module.up_proj(x)))


def _part(name: str):
    """Return a range of the profiler's."""
    return profiler.record_function(PREFIX + name)


# ---------------------------------------------------------------- attention


def attentions(model) -> list:
    """Return the attention of each layer, in order."""
    return [module for module in model.modules() if hasattr(module, "q_proj")]


def _attend(module, query, key, value, attention_mask, **_):
    if module.is_vertical is None:
        module.is_vertical = attention.dominant(query, key)
    if module.sparse:
        query, key, value = (x.contiguous() for x in (query, key, value))
        with _part("selection"):
            kept = attention.select(query, key, module.is_vertical)
        with _part("attention"):
            made = attention.over(query, key, value, kept)
    else:
        with _part("attention"):
            made = attention.dense(query, key, value, module.backend)
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
def configured(model, configuration: Configuration, modules: Mapping[str, Any], n: int) -> Iterator[None]:
    """Have the model in a configuration meanwhile: with the modules that it replaces, and its attention."""
    pays = configuration.attention == "pays" and attention.most_kept(n) <= attention.WORTH
    before = layers.put(model, modules)
    for module in attentions(model):
        module.sparse = pays or configuration.attention == "sparse"
    try:
        yield
    finally:
        layers.put(model, before)
        for module in attentions(model):
            module.sparse = False


# ---------------------------------------------------------------- where the time goes


@contextmanager
def ranges(model) -> Iterator[None]:
    """Put ranges of the profiler around every FFN and the projections of attention, meanwhile."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if part := RANGED.get(name.rpartition(".")[2]):
                begun: list[Any] = []
                stack.callback(module.register_forward_pre_hook(functools.partial(_begin, begun, part)).remove)
                stack.callback(module.register_forward_hook(functools.partial(_end, begun)).remove)
        yield


def _begin(begun: list, part: str, *_) -> None:
    begun.append(_part(part).__enter__())


def _end(begun: list, *_) -> None:
    begun.pop().__exit__(None, None, None)


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


def summed(events: Iterable) -> dict[str, float]:
    """Return microseconds of each part, of the profiler's events; "rest" is what lies in no range.

    An event on the host has the device time of all that it called; where the profiler could not tell what a range
    called, the range's own span on the device stands for it. Raises RuntimeError where no kernel lies in an FFN.
    """
    events = [(event, str(event.device_type).endswith("CPU")) for event in events]
    total = sum(e.device_time_total for e, on_host in events if on_host and e.cpu_parent is None)
    found = {}
    for part in PARTS:
        mine = [(e, on_host) for e, on_host in events if e.name == PREFIX + part]
        us = sum(e.device_time_total for e, on_host in mine if on_host)
        found[part] = float(us or sum(e.time_range.elapsed_us() for e, on_host in mine if not on_host))
        total += found[part] - us
    if not found["ffn"] > 0:
        raise RuntimeError("the profiler saw no kernel in an FFN: it needs CUPTI, which a container may withhold")
    return found | {"rest": max(0.0, total - sum(found.values()))}
