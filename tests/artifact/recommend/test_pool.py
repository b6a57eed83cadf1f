"""What systems say in their map.toml, and which records become a pool."""

import re
import shutil

import pytest
import synthetic
import worlds

from artifact import paths, registry
from artifact.measure import records
from artifact.recommend import landscape, statistics

RECORDED = paths.RECORDED / "nvidia-h200"
TOML = """
[[real]]
experiment = "real"
precision = "FP32"
order = "given"
formats = { "win*" = "windows", "*" = "CSR" }

[[generated]]
experiment = "wide"
pattern = "blocks"
precision = "BF16"
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with one system, that has a map."""
    source = registry.FOLDER / "casper_sparse"
    (tmp_path / "casper_sparse").mkdir()
    shutil.copy(source / "system.toml", tmp_path / "casper_sparse")
    (tmp_path / "casper_sparse" / "map.toml").write_text(TOML)
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('order = "given"\n', "", "the key 'order' is missing"),
        ('"FP32"', '"FP4"', "'precision' is 'FP4', but must be 'FP32'"),
        ('"blocks"', '"stripes"', "'pattern' is 'stripes', but must be 'non-zeros"),
        (
            'order = "given"',
            'order = "given"\ncolour = 1',
            "'colour' is none of experiment",
        ),
        ("[[generated]]", "[[made]]", "'made' is none of real, generated"),
    ],
)
def test_a_map_that_is_not_whole_is_refused(folder, old, new, says):
    assert old in TOML
    (folder / "casper_sparse" / "map.toml").write_text(TOML.replace(old, new, 1))
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        landscape.maps(folder)
    assert "casper_sparse/map.toml" in str(caught.value)


def world(folder, matrices=12):
    """Records and statistics of a synthetic pool below `folder`, which has the system's map."""
    made = worlds.pool(matrices)
    gpu = folder / "records" / "nvidia-h200"
    records.write_machine(gpu / "casper_sparse", synthetic.machine())
    records.write(gpu / "casper_sparse" / "real.csv", made.df)
    rows = "".join(
        ",".join([name, "given", *(str(getattr(s, c)) for c in statistics.COLUMNS[2:])]) + "\n"
        for name, s in made.matrices.items()
    )
    path = folder / "casper_sparse" / "statistics.csv"
    path.write_text(",".join(statistics.COLUMNS) + "\n" + rows)
    return gpu


def test_a_pool_has_the_rows_whose_matrices_have_statistics(folder):
    gpu = world(folder)
    (found,) = landscape.pools(gpu, folder)
    assert len(found.matrices) == 12 and set(found.df["label"]) == set(found.matrices)
    path = folder / "casper_sparse" / "statistics.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    (found,) = landscape.pools(gpu, folder)
    assert "m11" not in found.matrices and "m11" not in set(found.df["label"])
    path.write_text("".join(lines[: landscape.LEAST_MATRICES]))
    assert landscape.pools(gpu, folder) == [], "too few say nothing"


def test_a_precision_that_was_not_recorded_is_a_sentence(folder):
    gpu = world(folder)
    assert landscape.pool(gpu, "FP32", folder).about.experiment == "real"
    with pytest.raises(ValueError, match="no records of real matrices in TF32 on nvidia-h200; recorded: FP32"):
        landscape.pool(gpu, "TF32", folder)


def test_what_races_on_the_gpu_is_advised_only_where_the_others_are_not_as_good():
    made = worlds.pool(8)
    assert made.advisable == ["plain", "cut", "win", "cusparse_alg2"]
    alone = landscape.Pool(made.about, made.df[made.df["variant"] == "auto"], made.matrices)
    assert alone.advisable == ["auto"]
    df = made.df.copy()
    df.loc[df["variant"] == "auto", "median_us"] /= 2
    better = landscape.Pool(made.about, df, made.matrices)
    assert better.advisable == ["plain", "cut", "win", "cusparse_alg2", "auto"]


def test_a_point_that_only_those_take_which_race_counts_against_the_others():
    """At one in five nobody else was measured: they are as good at the rest, but that is not nearly all."""
    made = worlds.pool(10)
    left = made.df["label"].isin(["m0", "m1"]) & (made.df["variant"] != "auto")
    holes = landscape.Pool(made.about, made.df[~left], made.matrices)
    assert "auto" in holes.advisable and "auto" not in made.advisable
