"""What is compared: each configuration, what it makes sparse and how, and what it is called. Needs no PyTorch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifact.measure.run import Run


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
    if folder := os.environ.get(WEIGHTS):
        return f"weights of {Path(folder).name}"
    return {"kick": f"{KICK_LAYERS} layers"}.get(run.preset, "")


def flops(sizes: dict, n: int, density: float = 1.0) -> float:
    """Return those of a prefill of n tokens up to the last token's logits: two for each weight and token, and causal
    attention; embedding, norms and softmax are not counted. density: of the FFN's blocks."""
    hidden, keys = sizes["hidden_size"], sizes["num_key_value_heads"] / sizes["num_attention_heads"]
    weights = 2 * hidden * hidden * (1 + keys) + 3 * hidden * sizes["intermediate_size"] * density
    layer = 2 * n * weights + 2 * hidden * n * (n + 1)
    return sizes["num_hidden_layers"] * layer + 2 * hidden * sizes["vocab_size"]
