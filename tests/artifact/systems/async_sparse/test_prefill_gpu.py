"""The prefill on a GPU: a model of four layers, FlexAttention, graphs, parts, a whole small measurement."""

from types import SimpleNamespace

import pandas as pd
import pytest

from artifact.measure import device, records, verification
from artifact.measure.apart import captured
from artifact.systems.async_sparse.prefill import attention, measure, model as of
from artifact.systems.async_sparse.prefill.model import CONFIGURATIONS, PARTS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
SEED, N = 11, 1024

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("prefill")]


@pytest.fixture(autouse=True)
def hopper():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma is what Hopper has")


@pytest.fixture(scope="module")
def model():
    return measure.Prefill(SimpleNamespace(preset="kick", seed=SEED)).model


@pytest.mark.parametrize("n", [1024, 4096])
def test_flex_attention_is_attention_over_what_was_kept(monkeypatch, n):
    for name, tokens in (("VERTICAL", 128), ("SLASH", 256), ("TOPK", 384)):
        monkeypatch.setattr(attention, name, tokens)
    torch.manual_seed(SEED)
    q, k, v = (torch.randn(1, h, n, 128, device="cuda").bfloat16() for h in (8, 2, 2))
    own = torch.arange(8, device="cuda") % 2 == 0
    kept = attention.select(q, k, own)
    assert 128 / n < kept.float().mean() < 0.6  # more than the diagonal
    whole = kept.repeat_interleave(128, 1).repeat_interleave(128, 2).tril()
    keys, values = (x[0].repeat_interleave(4, 0).double() for x in (k, v))
    score = (q[0].double() @ keys.transpose(1, 2)) * 128**-0.5
    want = score.masked_fill(~whole, -torch.inf).softmax(-1) @ values
    assert measure.difference(attention.over(q, k, v, kept)[0].double(), want) < 6e-3


def test_a_captured_model_gives_what_it_gives_without(model):
    ids = of.tokens(model, N, SEED)
    of.choose_backend(model, N)
    for c in CONFIGURATIONS.values():
        modules, _ = measure.sparse_ffns(model, 0.1, SEED)[c.ffn]
        with of.configured(model, c, modules, N), torch.no_grad():
            graph, output = captured(lambda: of.logits(model, ids))
            want = of.logits(model, ids)
        for _ in range(2):
            output.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert measure.difference(output.double(), want.double()) < 1e-3, c.called


@pytest.mark.alone
def test_a_kick_measures_everything_once(tmp_path):
    opened = device.require().open()
    run = SimpleNamespace(
        mode="measure",
        preset="kick",
        seed=SEED,
        folder=tmp_path,
        device=opened,
        machine={"gpu": torch.cuda.get_device_name(), "compute_capability": "9.0"},
    )
    measure.measure(run)
    df, layer = (records.read(tmp_path / f"{name}.csv") for name in ("prefill", "prefill_ffn"))
    assert set(df["variant"]) == set(CONFIGURATIONS) and (df["label"] == "4 layers").all()
    assert df["graph"].all() and (df["rel_err"] < verification.LIMITS["bfloat16"].rel_err).all()
    assert (layer["median_us"] > 0).all()
    parts, chosen, checks = (pd.read_csv(tmp_path / "prefill" / f"{t}.csv") for t in ("parts", "attention", "checks"))
    assert set(parts["part"]) == set(PARTS) and parts.query("part == 'ffn'")["us"].min() > 0
    assert len(chosen) == 1 and len(checks) == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.csv")}
    measure.measure(run)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.csv")} == before
