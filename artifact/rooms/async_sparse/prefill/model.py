"""The model whose prefill is measured: transformers' Qwen2 in the sizes of Qwen2.5-7B, and its configurations.

Weights are random, of a seed and made on the device, unless the environment names a folder of real ones (WEIGHTS=).
The passes between products are compiled once and alike for all configurations, the dense one too: RMSNorm, rotary
embedding and SwiGLU each read and write once. PyTorch and transformers are imported when a model is made.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from artifact.rooms.async_sparse.prefill import attention
from artifact.rooms.async_sparse.prefill.configurations import SIZES, WEIGHTS, Configuration
from kernels.library import layers

NAME = "sparsity_on_trial"  #: of the attention function among transformers'


def build(seed: int, device, sizes: Mapping[str, Any] = SIZES, folder: str | None = None):
    """A causal language model in BF16 on a device, ready for `configure`. folder: of weights, by default WEIGHTS'."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

    folder = os.environ.get(WEIGHTS, "") if folder is None else folder
    if folder:
        made = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    else:
        before = torch.get_default_dtype()
        torch.manual_seed(seed)
        try:
            torch.set_default_dtype(torch.bfloat16)
            with torch.device(device):
                made = Qwen2ForCausalLM(Qwen2Config(**sizes))
        finally:
            torch.set_default_dtype(before)
    made.eval().requires_grad_(False)
    _compile_passes(made)
    _take_attention(made)
    return made


def sizes_of(model) -> dict[str, Any]:
    """Its sizes, by the names of `SIZES`."""
    return {name: getattr(model.config, name) for name in SIZES if hasattr(model.config, name)}


def tokens(model, n: int, seed: int):
    """int64 (1, n), random, on the model's device."""
    import torch

    where = model.device
    made = torch.Generator(where).manual_seed(seed)
    return torch.randint(model.config.vocab_size, (1, n), device=where, generator=made)


def last_hidden(model, ids):
    """The hidden state of the last token, (1, hidden), after the last norm."""
    return model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, -1]


def logits(model, ids):
    """The logits of the last token alone: those of all would take 20 GB at 65,536."""
    return model.get_output_embeddings()(last_hidden(model, ids))


# ---------------------------------------------------------------- passes between products


def rms_norm(x, weight, eps: float):
    wide = x.float()
    scaled = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return weight * scaled.to(x.dtype)


def swiglu(gate, up):
    from torch.nn.functional import silu

    return (silu(gate.float()) * up.float()).to(gate.dtype)


@functools.cache
def _fused(function: Callable) -> Callable:
    import torch

    return torch.compile(function)  # once more at a second length, and then for all


def _pass(function: Callable, x) -> Callable:
    """A pass as it runs where x is: compiled on a GPU."""
    return _fused(function) if x.is_cuda else function


def _compile_passes(model) -> None:
    """Norms, rotary embedding and SwiGLU of a Qwen2- or Llama-like model, each in one compiled pass."""
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.forward = functools.partial(_norm, module)
    for name in layers.ffns(model):
        module = model.get_submodule(name)
        module.forward = functools.partial(_ffn, module)
    source = sys.modules[type(model).__module__]
    rotary = source.apply_rotary_pos_emb
    if not hasattr(rotary, "before"):

        def apply(q, k, cos, sin, *args, **kwargs):
            with _part("rotary"):
                return _pass(rotary, q)(q, k, cos, sin, *args, **kwargs)

        apply.before = rotary
        source.apply_rotary_pos_emb = apply


def _norm(module, x):
    with _part("norms"):
        return _pass(rms_norm, x)(x, module.weight, module.variance_epsilon)


def _ffn(module, x):
    return module.down_proj(_pass(swiglu, x)(module.gate_proj(x), module.up_proj(x)))


def _part(name: str):
    """A range of the profiler's."""
    from torch.profiler import record_function

    return record_function(PREFIX + name)


PREFIX = "part: "  #: how ranges begin; what follows is one of `configurations.PARTS`


# ---------------------------------------------------------------- attention


def _take_attention(model) -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _attend)
    model.set_attn_implementation(NAME)
    for module in attentions(model):
        module.sparse, module.backend, module.is_vertical, module.choosing = False, "", None, False


def attentions(model) -> list:
    """The attention of each layer, in order."""
    return [module for module in model.modules() if hasattr(module, "q_proj")]


def _attend(module, query, key, value, attention_mask, **_):
    if module.choosing:
        module.is_vertical = attention.dominant(query, key)
    if not module.backend:
        module.backend = attention.fastest_backend(query, key, value)
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
    import torch

    for module in attentions(model):
        module.sparse, module.choosing, module.backend = False, True, ""
    with torch.no_grad():
        last_hidden(model, ids)
    for module in attentions(model):
        module.choosing, module.backend = False, ""
    return [float(module.is_vertical.float().mean()) for module in attentions(model)]


def choose_backend(model, n: int) -> str:
    """SDPA's fastest backend for n tokens, from now on that of every layer; its name."""
    import torch

    c = model.config
    heads, keys = c.num_attention_heads, c.num_key_value_heads
    shape = (1, n, -1, c.hidden_size // heads)
    q, k, v = (  # as projections hand them on
        torch.randn(1, n, h * shape[-1], device=model.device, dtype=model.dtype).view(shape).transpose(1, 2)
        for h in (heads, keys, keys)
    )
    found = attention.fastest_backend(q, k, v)
    for module in attentions(model):
        module.backend = found
    return found


# ---------------------------------------------------------------- configurations


class Configured:
    """The model in a configuration, while entered: with the modules that it replaces, and its attention."""

    def __init__(self, model, configuration: Configuration, modules: Mapping[str, Any], n: int):
        self.model, self.modules = model, modules if configuration.ffn else {}
        self.sparse = configuration.attention == "sparse" or (
            configuration.attention == "pays" and attention.most_kept(n) <= attention.WORTH
        )

    def __enter__(self):
        self.before = layers.put(self.model, self.modules)
        for module in attentions(self.model):
            module.sparse = self.sparse
        return self.model

    def __exit__(self, *_):
        layers.put(self.model, self.before)
        for module in attentions(self.model):
            module.sparse = False


def sparse_ffns(model, density: float, seed: int) -> dict[str, dict[str, Any]]:
    """By `Configuration.ffn`, what takes the place of the FFNs: the same blocks in both."""
    return {
        "opt5": layers.replacements(model, density, seed=seed, published=True),
        "gated": layers.replacements(model, density, seed=seed),
    }
