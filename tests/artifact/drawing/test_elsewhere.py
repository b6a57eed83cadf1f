"""The page on other GPUs: tables of routes and records, the same in the README; one GPU's records beside another's."""

import shutil

import pytest
import synthetic

from artifact import paths
from artifact.book import text as text_
from artifact.drawing import provenance
from artifact.drawing.pages import elsewhere
from artifact.measure import records
from artifact.verdicts import judge, load, measures
from kernels.library import routes

SYSTEM = "casper_sparse"


@pytest.mark.parametrize(
    ("made", "text"),
    [(elsewhere.multiplied, "README.md"), (elsewhere.multiplied, "book/library.md"), (elsewhere.tried, "README.md")],
)
def test_a_table_is_the_same_wherever_it_stands(made, text):
    assert judge.table(made()) in (paths.ROOT / text).read_text()


def test_families_that_get_the_same_share_a_column(monkeypatch):
    df, table = elsewhere.multiplied(), routes.table()
    assert {name for column in df.columns[2:] for name in column.split("; ")} == {f.name for f in routes.FAMILIES}
    assert df.shape[1] < 2 + len(routes.FAMILIES)
    table["CSR", "float32"]["B200"] = "something else"
    monkeypatch.setattr(routes, "table", lambda: table)
    assert "B200" in elsewhere.multiplied().columns


def test_a_family_without_records_was_never_run(tmp_path, gpu_folder):
    shutil.copytree(gpu_folder, tmp_path / "an-a100")
    records.write_machine(tmp_path / "an-a100" / SYSTEM, synthetic.machine() | {"compute_capability": "8.0"})
    for root, ran in ((tmp_path, {"8.0"}), (tmp_path / "none", set())):
        df = elsewhere.tried(root).set_index("compute capability")["kernels"]
        assert {capability for capability, said in df.items() if said.startswith("measured")} == ran
        assert set(df.drop([*ran])) == {"compiled, never run"}


# ---------------------------------------------------------------- two GPUs


@pytest.fixture(autouse=True)
def few(monkeypatch):
    chosen = [c for c in load.claims() if c.id in ("abstract-speedup", "wide-speedup", "tall-best")]
    monkeypatch.setattr(elsewhere.compare.load, "claims", lambda: chosen)


def said(c, block: str) -> str:
    made = text_.page("elsewhere")
    made.add(elsewhere.facts(c))
    return made(block)


def test_two_gpus_on_the_page(two, tmp_path):
    """One of them with a slower memory."""
    other = shutil.copytree(two["NVIDIA X1"], tmp_path / "nvidia-x1")
    records.write(other / "ceilings" / "ceilings.csv", synthetic.ceilings("NVIDIA X1", copy=synthetic.COPY_GBPS / 1.4))
    found = two | {"NVIDIA X1": other}
    (c,) = elsewhere.comparisons(found).values()
    fig, data = elsewhere.figure(c)
    ours = data[data["variant"] == "warp_per_row"].set_index("experiment")
    for column in ("gain", "faster"):
        assert ours[column].to_dict() == pytest.approx({n: s / 2 for n, s in synthetic.SPEEDUP.items()})
    dashed = {round(line.get_xdata()[0], 2) for line in fig.axes[0].lines if line.get_linestyle() == "--"}
    assert dashed == {1.4} and "1.40×" in said(c, "caption")
    changed, ceilings = elsewhere.changes(c), elsewhere.ceilings(c).set_index("ceiling")["ratio"]
    assert len(changed) == (~c.verdicts["agrees"]).sum() > 0 and changed["claim"].str.contains("#claim-").all()
    assert changed["times"].str.contains("warp_per_row [0-9.]+×").all() and ceilings["copy"] == pytest.approx(1.4)
    assert dict(elsewhere.start(found, {"other": c}))["changes"] == len(changed)
    assert f"{len(changed)} change" in said(c, "other_gpu")


def test_what_one_side_does_not_give_is_counted(gpu_folder, tmp_path):
    """One has no sweep along M, which a claim of the three needs; or too little for a comparison."""
    frames = {name: synthetic.experiment(name, gpu="NVIDIA X1") for name in ("wide", "square")}
    (c,) = elsewhere.comparisons(
        {"one": gpu_folder, "other": synthetic.folder(tmp_path, frames, "NVIDIA X1", "nvidia-x1")}
    ).values()
    counts = dict(elsewhere.facts(c))
    assert counts["alone.NVIDIA H200"] == (c.verdicts["fresh"] != c.verdicts["shipped"]).sum() > 0
    assert counts["alone.NVIDIA X1"] == 0 and counts["neither"] == 0
    part = synthetic.folder(tmp_path / "less", {"wide": frames["wide"].iloc[:8]}, "NVIDIA X1", "nvidia-x1")
    assert "too few" in elsewhere.comparisons({"one": part, "other": gpu_folder})["other"]


def test_a_second_measurement_and_verdicts_that_change(two):
    own = two["NVIDIA H200"]
    (c,) = elsewhere.comparisons({"fresh": own, "as shipped": own}).values()
    assert elsewhere.changes(c) is None and dict(elsewhere.facts(c))["off"] == 0
    assert elsewhere.titles(c)[0] != elsewhere.titles(c)[1]
    judged = judge.everywhere(load.claims(), two)
    changed, one, other = provenance.changed(judged), *(df.set_index("id")["verdict"] for df in judged.values())
    assert set(changed["id"]) == set(
        one.index[((one != measures.NOT_MEASURED) & (other != measures.NOT_MEASURED)) & (one != other)]
    )
    assert provenance.changed({"one": judged["NVIDIA H200"]}).empty
