"""What 2:4 gains in a whole model: what the page says of a file, and one small layer on a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from artifact.measure import apart
from artifact.rooms.tensor_core_24 import tables

COLUMNS = (*tables.KEY, "ms", "ms_q25", "ms_q75", "replays")
GPU = SimpleNamespace(name="NVIDIA H100 80GB HBM3")
MS = {("bf16", "dense"): 9.0, ("bf16", "2:4"): 6.0, ("e4m3", "dense"): 5.0, ("e4m3", "2:4"): 4.0}


@pytest.fixture
def file(tmp_path):
    """Two models, one prefill and two decodes each; the second takes twice as long throughout."""
    steps = [("prefill", 4096, 4096), ("decode", 1, 1024), ("decode", 16, 1024)]
    rows = [
        (name, *step, *of, slower * ms, 0.9 * slower * ms, 1.1 * slower * ms, 20)
        for name, slower in (("small", 1), ("large", 2))
        for step in steps
        for of, ms in MS.items()
    ]
    apart.write(tmp_path / "model.csv", __file__, GPU, COLUMNS, rows)
    return tmp_path / "model.csv"


def test_a_speedup_is_over_dense_in_the_same_precision(file):
    df = tables.models(file)
    assert len(df) == 2 * 3 * len(MS) and set(COLUMNS) < set(df)
    for (precision, weight), part in df.groupby(["precision", "weight"]):
        assert np.allclose(part["speedup"], MS[precision, "dense"] / MS[precision, weight])


def test_rows_in_another_order_have_the_same_speedup(file, tmp_path):
    df = apart.read(file).sample(frac=1, random_state=3)
    other = tmp_path / "other.csv"
    apart.write(other, __file__, GPU, COLUMNS, df.to_numpy())
    found, right = (tables.models(x).set_index(tables.KEY)["speedup"] for x in (other, file))
    assert found.sort_index().equals(right.sort_index())


def test_the_table_has_a_row_for_each_step_of_each_model():
    df = tables.whole()
    assert len(df) == 8 and not df.isna().any(axis=None) and (df["bf16 dense over"] == 1).all()
    assert {"decode, 1 sequence", "decode, 16 sequences", "prefill, 4,096 tokens"} < set(df["step"])
    assert set(tables.host()) == {"layer", "size", "us_1", "us_16"}


@pytest.mark.gpu
@pytest.mark.parametrize("phase", [("prefill", 1, 256, 256, 1), ("decode", 4, 1, 256, 1)])
@pytest.mark.parametrize("bias", [True, False])
def test_each_contender_multiplies_as_the_dense_layer(phase, bias):
    torch = pytest.importorskip("torch")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma is what Hopper has")
    from artifact.rooms.tensor_core_24 import model

    torch.manual_seed(model.SEED)
    tiny, phase = model.Model("tiny", 512, 1, 4, 2, 1024, 64, 1e4, bias), model.Phase(*phase)
    with torch.no_grad():
        layers, inputs = model.contenders(tiny), model.inputs_of(tiny, phase)[0]
        errors = model.check(layers, phase, inputs)
        assert set(errors) == set(model.CONTENDERS) and errors["bf16", "dense"] == 0
        assert errors["bf16", "2:4"] < errors["e4m3", "dense"]
        layers["bf16", "2:4"] = layers["bf16", "dense"]  # which is not pruned
        with pytest.raises(ValueError, match="2:4 weights in bf16 is .* off") as caught:
            model.check(layers, phase, inputs)
        assert "\n" not in str(caught.value)
