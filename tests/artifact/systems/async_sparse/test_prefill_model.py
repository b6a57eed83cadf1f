"""The prefill's model and attention on the host, where PyTorch and transformers are: small sizes, plain arithmetic."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from refused import refused

from artifact.measure import bench, records, verification
from artifact.systems.async_sparse.prefill import attention, measure, model as of
from artifact.systems.async_sparse.prefill.model import CONFIGURATIONS, LAYERS, PARTS, SIZES

torch = pytest.importorskip("torch")
SMALL = SIZES | {
    "vocab_size": 128,
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
N, LAST = 1024, attention.LAST


@pytest.fixture(autouse=True)
def on_host(monkeypatch):
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)


@pytest.fixture
def few(monkeypatch):
    """Budgets that leave most of a short sequence out."""
    for name, tokens in (("VERTICAL", 128), ("SLASH", 256), ("TOPK", 384)):
        monkeypatch.setattr(attention, name, tokens)


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("transformers")
    return of.build(0, "cpu", SMALL)


def heads(count: int = 4, keys: int = 2, d: int = 32):
    made = torch.Generator().manual_seed(0)
    return [torch.randn(1, h, N, d, generator=made) for h in (count, keys, keys)]


# ------------------------------------------------------------------------------------- patterns


def test_vertical_slash_keeps_the_best_columns_and_diagonals(few):
    """By loops over queries and keys."""
    q, k, _ = heads()
    score = (q[0, :, -LAST:] @ k[0].repeat_interleave(2, 0).transpose(1, 2)) * 32**-0.5
    own = torch.arange(N - LAST, N)
    score = score.masked_fill(torch.arange(N) > own[:, None], -torch.inf).softmax(-1)
    distance = torch.zeros(4, N)
    for i in range(LAST):
        distance[:, : own[i] + 1] += score[:, i, : own[i] + 1].flip(-1)
    columns, diagonals = (x.view(4, 8, 128).sum(-1) for x in (score.sum(1), distance))
    expected = torch.zeros(4, 8, 8, dtype=torch.bool)
    for h in range(4):
        vertical, slash = columns[h].topk(1).indices, diagonals[h].topk(2).indices
        for i in range(8):
            for j in range(i + 1):
                expected[h, i, j] = j in vertical or i - j in slash or i == j
    assert torch.equal(attention.vertical_slash(q, k), expected)


def test_block_sparse_keeps_the_best_means_and_the_diagonal(few):
    q, k, _ = heads()
    kept = attention.block_sparse(q, k)
    means = q.view(4, 8, 128, 32).mean(2) @ k.repeat_interleave(2, 1).view(4, 8, 128, 32).mean(2).transpose(1, 2)
    for h in range(4):
        for i in range(8):
            best = means[h, i, : i + 1].topk(min(3, i + 1)).indices.tolist()
            assert kept[h, i].nonzero().flatten().tolist() == sorted({*best, i})


def test_the_dominant_pattern_is_the_one_that_holds_more(few):
    q, k, _ = heads(2, 2)
    q, k = 0.05 * q, 0.05 * k
    k[0, 0, 640], k[0, 0, 641] = 4.0, -4.0  # a single column, which a mean of 128 keys hides
    q[0, 0] += 4.0
    assert attention.dominant(q, k).shape == (2,) and attention.dominant(q, k)[0]


def test_sparse_attention_is_attention_over_what_was_kept(few):
    q, k, v = heads()
    own = torch.tensor([True, True, False, False])
    whole = attention.select(q, k, own).repeat_interleave(128, 1).repeat_interleave(128, 2).tril()
    score = (q[0] @ k[0].repeat_interleave(2, 0).transpose(1, 2)) * 32**-0.5
    want = score.masked_fill(~whole, -torch.inf).softmax(-1) @ v[0].repeat_interleave(2, 0)
    assert torch.allclose(attention.over(q, k, v, attention.select(q, k, own))[0], want, atol=1e-5)


# ------------------------------------------------------------------------------------- the model


def sparse(model, density: float, seed: int) -> dict:
    """What takes the place of FFNs, new for each test."""
    measure.sparse_ffns.cache_clear()
    return {ffn: made for ffn, (made, _) in measure.sparse_ffns(model, density, seed).items()}


def states(model, ids, **ffns):
    """The last hidden state in each configuration."""
    found = {}
    with torch.no_grad():
        for name, c in CONFIGURATIONS.items():
            with of.configured(model, c, ffns.get(c.ffn, {}), ids.shape[1]):
                found[name] = of.last_hidden(model, ids).double()
    return found


def test_fused_passes_and_our_attention_change_rounding_alone(model):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    plain = Qwen2ForCausalLM(Qwen2Config(**SMALL)).bfloat16().eval()
    plain.load_state_dict(model.state_dict())
    ids = of.tokens(model, 256, 1)
    of.choose_backend(model, 256)
    with torch.no_grad():
        got, want = of.logits(model, ids), plain(ids).logits[:, -1]
    assert measure.difference(got.double(), want.double()) < 0.03


def test_configurations_change_what_they_say_and_leave_the_model_as_it_was(model, few):
    ids = of.tokens(model, N, 3)
    of.choose_patterns(model, of.tokens(model, N, 4))
    of.choose_backend(model, N)
    found = states(model, ids, **sparse(model, 0.4, 0))
    apart = {name: measure.difference(x, found["dense"]) for name, x in found.items()}
    assert apart["dense"] == 0 and all(x > 0.01 for name, x in apart.items() if name != "dense")
    assert measure.difference(found["ffn_ours"], found["ffn"]) < 0.02
    again = states(model, ids, **sparse(model, 0.4, 0))
    assert all(torch.equal(found[name], again[name]) for name in found)


def test_every_ffn_is_checked_against_float64(model, monkeypatch):
    modules = sparse(model, 0.4, 0)
    for ffn in modules.values():
        assert 0 < measure.ffn_error(model, ffn, 0.4, 0, 300).rel_err < verification.LIMITS["bfloat16"].rel_err
    wrong = modules["gated"]["model.layers.0.mlp"]
    monkeypatch.setattr(wrong, "val", wrong.val.roll(1, 0))
    refused(
        "the FFN at 300 tokens is wrong: relative error",
        measure.ffn_error,
        *(model, modules["gated"], 0.4, 0, 300),
        kind=verification.WrongResult,
    )


# ------------------------------------------------------------------------------------- parts


def event(name: str, us: float, parent=None, where: str = "CPU"):
    return SimpleNamespace(
        name=name,
        device_time_total=us,
        cpu_parent=parent,
        device_type=f"DeviceType.{where}",
        time_range=SimpleNamespace(elapsed_us=lambda: us),
    )


def test_parts_are_the_ranges_and_the_rest_is_what_lies_in_none():
    ffn = event("part: ffn", 70)
    events = [
        ffn,
        event("aten::mm", 70, ffn),
        event("part: norms", 5),
        event("aten::add", 25),
        event("part: ffn", 70, where="CUDA"),
        event("gemm", 70, where="CUDA"),
    ]
    found = of.summed(events)
    assert set(found) == set(PARTS) and (found["ffn"], found["norms"], found["rest"]) == (70, 5, 25)
    np.testing.assert_allclose(sum(found.values()), 100)
    events[0] = event("part: ffn", 0)  # the profiler does not know what it called
    events[1] = event("aten::mm", 0, events[0])
    assert of.summed(events) == found
    refused("CUPTI", of.summed, events[2:4], kind=RuntimeError)


# ------------------------------------------------------------------------------------- a measurement


class Graph:
    """Of several that share memory, as CUDA graphs of one pool do: each writes over what the others left."""

    every: list[Graph] = []

    def __init__(self, call):
        self.call = torch.no_grad()(call)
        self.output = self.call()
        self.every.append(self)

    def replay(self):
        for other in self.every:
            other.output.fill_(torch.nan)
        self.output.copy_(self.call())


def captured(call, pool=None):
    graph = Graph(call)
    return graph, graph.output


def timed(graphs, opened, n):
    for graph in graphs.values():
        graph.replay()
    return dict.fromkeys(graphs, bench.Timing(10.0, 9.0, 11.0, 3, 1.0, 1.0, "", True))


def profiled(model, call):
    with torch.no_grad():
        call()
    return dict.fromkeys(PARTS, 1.0)


@pytest.fixture
def measuring(model, few, monkeypatch, tmp_path):
    """A run that seems to measure on a GPU: everything but clocks, graphs and the profiler is as there."""
    model.vertical_share = of.choose_patterns(model, of.tokens(model, N, 2))
    for where, name, what in (
        (measure.Prefill, "model", model),
        (measure, "timed", timed),
        (measure, "captured", captured),
        (measure, "can_measure", lambda run: True),
        (measure, "DENSITIES", (0.5,)),
        (of, "profiled", profiled),
        (torch.cuda, "graph_pool_handle", lambda: None),
    ):
        monkeypatch.setattr(where, name, what)
    measure.sparse_ffns.cache_clear()
    monkeypatch.setattr(Graph, "every", [])
    yield SimpleNamespace(preset="kick", seed=0, folder=tmp_path, device=None, machine={"gpu": "NVIDIA H200"})
    measure.sparse_ffns.cache_clear()


def test_a_measurement_writes_rows_and_tables_once(measuring, monkeypatch):
    measure.measure(measuring)
    whole, layer = (records.read(measuring.folder / f"{name}.csv") for name in ("prefill", "prefill_ffn"))
    assert whole["variant"].tolist() == list(CONFIGURATIONS) and (whole["label"] == "4 layers").all()
    assert whole["graph"].all() and whole["rel_err"].between(1e-4, 4e-3).all()
    assert whole.set_index("variant")["prepare_bytes"].gt(0).sum() == 4  # those with sparse FFNs
    assert layer["rel_err"].between(1e-4, 4e-3).all() and layer["variant"].tolist() == list(LAYERS)
    tables = {path.stem: pd.read_csv(path) for path in (measuring.folder / "prefill").glob("*.csv")}
    rows = {"parts": len(PARTS) * len(CONFIGURATIONS), "attention": 1, "checks": 2}
    assert {name: len(table) for name, table in tables.items()} == rows
    attended = tables["attention"].iloc[0]
    assert 0.2 < attended["kept_share"] < 1 and attended["backend"] == "MATH"
    monkeypatch.setattr(measure.Prefill, "model", None)  # nothing asks for a model again
    measure.measure(measuring)
    assert records.read(measuring.folder / "prefill.csv").equals(whole)


def test_logits_that_are_not_finite_are_no_record(measuring, monkeypatch):
    logits = of.logits
    monkeypatch.setattr(of, "logits", lambda *given: logits(*given) * torch.nan)
    refused("not finite", measure.measure, measuring, kind=verification.WrongResult)
    assert not (measuring.folder / "prefill.csv").is_file()
