"""What the code of others gave here: apart from published numbers and from records, with what is known of it."""

import re

import pytest
from contenders import refused

from artifact import registry
from artifact.measure import external
from artifact.measure.device import slug
from artifact.paths import HOME
from artifact.verdicts import load

FOUND = [measured for system in registry.find() for measured in external.find(system)]


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
        assert not df.duplicated([*external.POINT]).any() and (df["density"] <= 1).all()


@pytest.mark.parametrize(
    "old,new,says",
    [
        ('commit = "143', 'commits = "143', "the key 'commit' is missing"),
        ("what =", 'colour = "red"\nwhat =', "the key 'colour' is none of such a file's"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, old, new, says):
    assert old in whole()
    refused(f"x.toml: {says}", external.find, "nm_spmm", made(tmp_path, whole().replace(old, new, 1)))


def test_numbers_need_a_rate_or_a_speedup(tmp_path):
    folder = made(tmp_path, whole(), "# s\nm,n,k,density,library,time\n1,1,1,0.5,a,2\n")
    refused(
        "needs the columns m, n, k, density, library, and speedup",
        external.nearest("nm_spmm", "x", HOME, folder).numbers,
        folder,
    )


def test_the_first_that_has_it_stands_in_where_the_home_gpu_has_none(tmp_path):
    toml = whole().replace("NVIDIA H200", "NVIDIA B")
    folder = made(tmp_path, toml, gpu="nvidia-b")
    made(tmp_path, toml.replace("NVIDIA B", "NVIDIA A"), gpu="nvidia-a")
    assert [m.gpu for m in external.find("nm_spmm", folder, "x")] == ["NVIDIA A", "NVIDIA B"]
    assert external.nearest("nm_spmm", "x", "nvidia-c", folder).gpu == "NVIDIA A"
    assert external.nearest("nm_spmm", "x", "nvidia-b", folder).gpu == "NVIDIA B"
    made(tmp_path, whole())
    assert [m.gpu for m in external.find("nm_spmm", folder, "x")] == ["NVIDIA H200", "NVIDIA A", "NVIDIA B"]
    assert external.nearest("nm_spmm", "x", "nvidia-c", folder).gpu == "NVIDIA H200"
