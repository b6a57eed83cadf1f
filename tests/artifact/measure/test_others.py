"""What the code of others gave here: apart from published numbers and from records, with what is known of it."""

import re
from pathlib import Path

import pytest

from artifact import registry
from artifact.measure import others, records
from artifact.measure.device import slug
from artifact.paths import HOME
from artifact.verdicts import evidence, load
from artifact.verdicts.evidence import NotMeasured

FOUND = [measured for room in registry.find() for measured in others.find(room)]


def made(
    tmp_path,
    toml: str,
    csv: str = "# s\nm,n,k,density,library,tflops\n1,1,1,0.5,a,2\n",
    gpu: str = HOME,
):
    folder = tmp_path / "nm_spmm" / registry.OTHERS / gpu
    folder.mkdir(parents=True)
    (folder / "x.toml").write_text(toml)
    (folder / "x.csv").write_text(csv)
    return tmp_path


def whole() -> str:
    return registry.others("nm_spmm", "anchors", HOME).with_suffix(".toml").read_text()


@pytest.mark.parametrize("measured", FOUND, ids=lambda m: f"{m.room}-{m.name}-{slug(m.gpu)}")
def test_each_says_how_it_was_made(measured):
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", measured.date)
    for text in (measured.code, measured.commit, measured.build, measured.driver, measured.again):
        assert len(text) > 2, measured
    assert len(measured.table()) > 0
    decides = f"others/{measured.name}"
    if any(decides in c.experiment and c.room == measured.room for c in load.claims()):
        df = measured.numbers()
        assert not df.duplicated([*others.POINT]).any() and (df["density"] <= 1).all()


def test_there_is_one_for_nmsparse_and_none_among_published_numbers():
    assert {("nm_spmm", "anchors"), ("async_sparse", "apart")} <= {(m.room, m.name) for m in FOUND}
    for room in registry.find():
        for path in (registry.FOLDER / room / registry.PUBLISHED).glob("*.csv"):
            head = records.published(path).attrs["source"]
            assert "measured by us" not in head and "NVIDIA H200" not in head, path


@pytest.mark.parametrize(
    "old,new,says",
    [
        ('commit = "143', 'commits = "143', "the key 'commit' is missing"),
        ("what =", 'colour = "red"\nwhat =', "the key 'colour' is none of such a file's"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, old, new, says):
    assert old in whole()
    with pytest.raises(ValueError, match=f"x.toml: {says}"):
        others.find("nm_spmm", made(tmp_path, whole().replace(old, new, 1)))


def test_numbers_need_a_rate_or_a_speedup(tmp_path):
    folder = made(tmp_path, whole(), "# s\nm,n,k,density,library,time\n1,1,1,0.5,a,2\n")
    with pytest.raises(ValueError, match="needs the columns m, n, k, density, library, and speedup"):
        others.read("nm_spmm", "x", HOME, folder).numbers(folder)


def found(slug: str, room: str = "nm_spmm") -> evidence.Evidence:
    return evidence.Evidence(Path(slug), room)


def test_they_decide_on_their_gpu_alone():
    ours = found("nvidia-h200").ratio(["others/anchors"], "nm_spmm", "nmsparse")
    assert len(ours) == 36 and (ours > 1).all()
    both = "not run on this GPU, only on an NVIDIA H200 and an NVIDIA H100 80GB HBM3"
    with pytest.raises(NotMeasured, match=both):
        found("nvidia-a100").frame(["others/anchors"])
    with pytest.raises(FileNotFoundError, match="no 'anchor' of others' code on any GPU"):
        found(HOME).frame(["others/anchor"])  # none of that name: no verdict, an error


def test_each_gpu_is_judged_by_its_own_run():
    here, there = (
        found(gpu).ratio(["others/anchors"], "nm_spmm", "nmsparse") for gpu in (HOME, "nvidia-h100-80gb-hbm3")
    )
    assert here.index.equals(there.index) and not here.equals(there)
    assert (here / there).between(0.75, 1.25).all()  # the same cores, some clocks apart


def test_a_gpu_without_a_run_has_the_home_gpus():
    assert others.nearest("nm_spmm", "anchors", "nvidia-h100-80gb-hbm3").gpu.startswith("NVIDIA H100")
    assert others.nearest("nm_spmm", "anchors", "nvidia-a100").gpu == "NVIDIA H200"
    with pytest.raises(FileNotFoundError, match="'nm_spmm' has no 'none' of others' code"):
        others.nearest("nm_spmm", "none", HOME)


def test_the_first_that_has_it_stands_in_where_the_home_gpu_has_none(tmp_path):
    toml = whole().replace("NVIDIA H200", "NVIDIA B")
    folder = made(tmp_path, toml, gpu="nvidia-b")
    made(tmp_path, toml.replace("NVIDIA B", "NVIDIA A"), gpu="nvidia-a")
    assert [m.gpu for m in others.find("nm_spmm", folder, "x")] == ["NVIDIA A", "NVIDIA B"]
    assert others.nearest("nm_spmm", "x", "nvidia-c", folder).gpu == "NVIDIA A"
    assert others.nearest("nm_spmm", "x", "nvidia-b", folder).gpu == "NVIDIA B"


def test_a_run_lies_in_the_folder_of_its_gpu(tmp_path):
    with pytest.raises(ValueError, match="of an NVIDIA H200, so it belongs in the folder 'nvidia-h200'"):
        others.find("nm_spmm", made(tmp_path, whole(), gpu="nvidia-a100"))


def test_speedups_and_rates_become_records():
    df = found("nvidia-h200").frame(["others/anchors"])
    at = df[(df["m"] == 4096) & (df["n"] == 4096) & (df["density"] == 0.25)].set_index("variant")
    assert at.loc["cublas", "median_us"] / at.loc["nm_spmm", "median_us"] == pytest.approx(3.508)
    rate = 2 * 4096**3 * 0.25 / at.loc["nm_spmm", "us"] / 1e6
    assert at.loc["nm_spmm", "tflops"] == pytest.approx(rate, rel=1e-3)
    apart = found("nvidia-h200").frame(["others/rebuilt"])  # speedups without a rate
    assert len(apart) > 0 and apart["tflops"].isna().all()
    rates = found("nvidia-h200", "tensor_core_24").frame(["others/mma_sp"])
    assert rates.set_index(["variant", "m", "n", "k"]).loc[("mma_sp", 512, 512, 512), "tflops"].item() == 7.5
