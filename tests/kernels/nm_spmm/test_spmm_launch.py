"""What the room offers: variants in their order, sweeps of problems that exist, and one way to each kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from artifact import registry
from kernels import nm_spmm as room
from kernels.contract import require_whole
from kernels.nm_spmm import analysis, family, ladder, launch, nmsparse, operands, published, tensor

SWEEPS = {preset: room.sweeps(preset) for preset in ("full", "kick")}
EXPERIMENTS = [
    "stepwise",
    "sizes",
    "llama",
    "anchors",
    "unstructured",
    "packing",
    "tried",
    "vectors",
    "ragged",
    "tensor",
]


LADDER = ("wide", "banks", "bulk", "ahead", "stream", "rolled", "turned", "cluster")

# ----------------------------------------------------------------------------------------- variants


def test_the_paper_then_our_ladder_then_the_tuner_then_tensor_cores():
    assert list(room.VARIANTS) == [
        "v1",
        "v2",
        "v3",
        "v3_packed",
        "v3_unpacked",
        "v3_split_k",
        "v3_searched",
        "small",
        "medium",
        "large",
        "square",
        "nmsparse_vw32",
        *LADDER,
        "auto",
        "tf32",
        "bf16",
    ]
    own = [name for name, kernel in room.VARIANTS.items() if kernel.published]
    assert own == ["v1", "v2", "v3", "small", "medium", "large"], "the others are studies, or ours"
    for name, kernel in room.VARIANTS.items():
        assert kernel.name == name and bool(kernel.prediction) != kernel.published, name
        assert kernel.idea and "\n" not in kernel.idea + kernel.prediction


def test_every_entry_is_of_its_source():
    for name, kernel in room.VARIANTS.items():
        assert kernel.entries and len(set(kernel.entries)) == len(kernel.entries), name
        for entry in kernel.entries:
            # What v2 is below 70% is v1's kernel, which v1 lists.
            assert entry.startswith(f"{kernel.source.stem}<"), entry


def test_no_source_is_left_over():
    used = {kernel.source.name for kernel in room.VARIANTS.values()}
    there = {path.name for path in launch.HERE.glob("*.cu")}
    assert there == used | {"generate.cu"}


def test_the_baselines_are_the_libraries_and_the_kernel_of_another_room():
    names = list(registry.contenders(room.BASELINES, None))
    assert names[:4] == ["cublas", "cublas_tf32", "cublas_bf16", "nm_baseline"]
    assert all(name.startswith("cusparse_") for name in names[4:]) and len(names) == 8
    assert not set(names) & set(room.VARIANTS)


@pytest.mark.parametrize("name", room.VARIANTS)
def test_each_variant_goes_to_its_module(monkeypatch, name):
    asked = []
    for module, bind in (
        (published, "bind"),
        (nmsparse, "bind"),
        (ladder, "bind"),
        (tensor, "bind"),
        (launch, "bind_auto"),
    ):
        said = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(module, bind, lambda *what, said=said: asked.append((said, what)))
    room.bind(name, "a problem", "a device")
    expected = (
        "launch"
        if name == "auto"
        else "tensor"
        if name in ("tf32", "bf16")
        else ("ladder" if name in LADDER else "nmsparse" if name == nmsparse.NAME else "published")
    )
    assert asked == [(expected, (name, "a problem", "a device"))]


def test_another_variant_is_refused():
    with pytest.raises(ValueError, match="^nm_spmm has no variant 'v4': choose one of v1, v2, v3, "):
        room.bind("v4", None, None)
    with pytest.raises(ValueError, match="^nm_spmm has no variant 'body_4': choose one of"):
        room.bind("body_4", None, None)  # a trial, which is no rung


# ------------------------------------------------------------------------------------------- sweeps


def never():
    raise AssertionError("operands are made on demand")


@pytest.mark.parametrize("preset", SWEEPS)
def test_the_experiments(preset):
    assert list(SWEEPS[preset]) == EXPERIMENTS
    for shapes in SWEEPS[preset].values():
        keys = [tuple(sorted(shape.items())) for shape in shapes]
        assert keys and len(set(keys)) == len(keys)


def test_kick_is_a_part_of_full():
    for experiment, shapes in SWEEPS["kick"].items():
        full = SWEEPS["full"][experiment]
        assert all(shape in full for shape in shapes) and len(shapes) < len(full), experiment
    sizes = [s["m"] * s["n"] * s["k"] for shapes in SWEEPS["kick"].values() for s in shapes]
    assert len(sizes) < 40 and max(sizes) <= 4096**3, "seconds, not minutes"


def test_another_preset_is_refused():
    with pytest.raises(ValueError, match="^preset is 'all', but must be 'full' or 'kick'$"):
        room.sweeps("all")


def test_every_shape_is_a_problem_of_its_own():
    for experiment, shapes in SWEEPS["full"].items():
        points = set()
        for shape in shapes:
            p = replace(room.problem(**shape), make_host=never, make_device=never)
            for name in ("m", "n", "k"):
                require_whole(name, getattr(p, name), 1, 2**31 - 1)
            assert (p.room, p.density) == ("nm_spmm", shape["density"])
            assert p.useful_flops == 2 * p.m * p.nnz > 0
            dtype = shape.get("dtype", "float32")
            assert p.label.startswith(dtype) == (dtype != "float32")
            assert p.limit == ("tf32" if dtype == "tf32" else "")
            points.add((p.label, p.m, p.n, p.k, p.density))
        assert len(points) == len(shapes), f"two points of {experiment} have one name"


def test_the_sweeps_are_the_papers():
    full = SWEEPS["full"]
    sparsities = {0.5, 0.375, 0.25, 0.125}
    at = {name: {(s["m"], s["n"], s["k"]) for s in shapes} for name, shapes in full.items()}
    kept = {name: {s["density"] for s in shapes} for name, shapes in full.items()}
    assert at["stepwise"] == at["packing"] == at["tried"] == {(4096,) * 3}
    assert at["sizes"] == {size for _, size in analysis.TABLE_2.values()}
    assert kept["stepwise"] == kept["sizes"] == sparsities | {1.0}
    assert kept["llama"] == kept["anchors"] == kept["packing"] == kept["tried"] == sparsities
    assert len(at["llama"]) == 100 and len(full["llama"]) == 400
    assert at["unstructured"] < at["anchors"] and max(at["unstructured"]) == (2048, 4096, 4096)
    assert {s["vector"] for s in full["vectors"]} == {4, 8, 16, 32, 64, 128}
    assert {s["group"] for s in full["vectors"]} == {4, 8, 16, 32}
    assert {s["dtype"] for s in full["tensor"]} == {"tf32", "bfloat16"}
    assert any(m % 4 for m, _, _ in at["ragged"]) and any(k % 32 for _, _, k in at["ragged"])


def test_llama_is_in_the_order_of_the_published_series():
    from artifact.measure import records

    df = records.published(registry.published("nm_spmm", "fig9")).drop_duplicates("point")
    theirs = [tuple(row) for row in df.sort_values("point")[["m", "n", "k"]].to_numpy().tolist()]
    mine = dict.fromkeys((s["m"], s["n"], s["k"]) for s in SWEEPS["full"]["llama"])
    assert list(mine) == theirs


def test_the_anchors_are_those_of_the_authors_code():
    from artifact.measure import others

    mine = {(s["m"], s["n"], s["k"]) for s in SWEEPS["full"]["anchors"]}
    assert (8192,) * 3 in mine
    for measured in others.find("nm_spmm", name="anchors"):
        theirs = measured.numbers()[["m", "n", "k"]].to_numpy().tolist()
        assert mine == {tuple(row) for row in theirs}, measured.gpu


def test_every_pattern_of_the_sweeps_fits_every_rung():
    """Vectors and windows that the tuner may be asked for."""
    for shape in SWEEPS["full"]["vectors"]:
        keep = round(shape["density"] * shape["group"])
        slot = 32 if shape["vector"] % 32 == 0 else 4
        for config, *_ in family.RUNGS.values():
            family.check(config, keep, shape["group"], slot, 232_448)


def test_problem_takes_what_the_sweeps_say():
    assert operands.problem is room.problem and operands.problem_from_nm is room.problem_from_nm
