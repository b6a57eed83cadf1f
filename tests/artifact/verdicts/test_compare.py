import pytest
import synthetic

from artifact.measure import records
from artifact.verdicts import compare


def frames(**how):
    return {name: synthetic.experiment(name, **how) for name in synthetic.SHAPES}


@pytest.fixture
def shipped(tmp_path):
    return synthetic.folder(tmp_path / "shipped")


def test_the_same_records_agree(tmp_path, shipped):
    result = compare.compare(shipped, shipped)
    assert result.same_gpu and result.agrees and result.exit_code == compare.AGREE
    assert result.points["time_ratio"].eq(1).all() and result.points["speedup_ratio"].eq(1).all()
    assert result.verdicts["agrees"].all()
    assert "The records agree." in compare.report(result)


@pytest.mark.parametrize(
    "how,code",
    [
        ({"jitter": 0.01}, compare.AGREE),
        ({"scale": 1.05}, compare.AGREE),  # a slower machine, the same speedups
        ({"scale": 1.2}, compare.DIFFER),
        ({"speedup": 0.5}, compare.DIFFER),
        ({"jitter": 0.3}, compare.DIFFER),  # errors of both signs do not cancel
    ],
)
def test_exit_codes_on_the_same_gpu(tmp_path, shipped, how, code):
    result = compare.compare(synthetic.folder(tmp_path / "fresh", frames(**how)), shipped)
    assert result.exit_code == code


def test_the_tolerance_can_be_chosen(tmp_path, shipped):
    fresh = synthetic.folder(tmp_path / "fresh", frames(scale=1.2))
    assert compare.compare(fresh, shipped, time_tolerance=0.25).exit_code == compare.AGREE
    with pytest.raises(ValueError, match="positive number, not 0"):
        compare.compare(fresh, shipped, speedup_tolerance=0)


def test_what_differs_is_named(tmp_path, shipped):
    fresh = synthetic.folder(tmp_path / "fresh", frames(speedup=1.3))
    result = compare.compare(fresh, shipped)
    off = result.summary[~result.summary["agrees"]]
    assert set(off["variant"]) == {"warp_per_row"}
    text = compare.report(result)
    assert "abstract-speedup: shipped not reproduced" in text and "DIFFER" in text


def test_changed_verdicts_within_tolerance_are_printed_and_no_difference(tmp_path, shipped):
    fresh = synthetic.folder(tmp_path / "fresh", frames(speedup=1.3))
    result = compare.compare(fresh, shipped, speedup_tolerance=9, time_tolerance=9)
    assert result.exit_code == compare.AGREE and not result.verdicts["agrees"].all()
    text = compare.report(result)
    assert "abstract-speedup: shipped not reproduced" in text and "The records agree." in text
    assert "the tolerances decide, not the verdicts" in text
    assert "the tolerances decide" not in compare.report(compare.compare(shipped, shipped))


def test_on_another_gpu_the_claims_decide(tmp_path, shipped):
    other = {"gpu": "NVIDIA L4", "slug": "nvidia-l4"}
    slower = frames(scale=8.0, gpu=other["gpu"])
    fresh = synthetic.folder(tmp_path / "fresh", slower, **other, with_ceilings=False)
    result = compare.compare(fresh, shipped)
    assert not result.same_gpu and result.exit_code == compare.AGREE
    assert "Different GPUs" in compare.report(result)
    faster = frames(speedup=1.3, gpu=other["gpu"])
    result = compare.compare(synthetic.folder(tmp_path / "fresh2", faster, **other), shipped)
    assert result.exit_code == compare.DIFFER


def test_what_one_side_did_not_measure_is_no_difference(tmp_path, shipped):
    made = frames()
    fresh = synthetic.folder(tmp_path / "fresh", {"wide": made["wide"]}, with_ceilings=False)
    result = compare.compare(fresh, shipped)
    assert set(result.points["experiment"]) == {"wide"} and result.exit_code == compare.AGREE


def test_a_part_of_a_sweep_is_compared_at_its_points(tmp_path, shipped):
    part = synthetic.experiment("wide")
    fresh = synthetic.folder(tmp_path / "fresh", {"wide": part[part["n"] <= 1024]})
    result = compare.compare(fresh, shipped)
    assert set(result.points["n"]) == {512, 1024} and result.agrees
    # Two of seven widths at three densities; all three sweeps were shipped.
    assert (result.covered, result.total) == (6, 3 * (7 + 5 + 6))
    assert "cover 6 of the 54 shipped points" in compare.report(result)
    whole = compare.compare(shipped, shipped, "casper_sparse")
    assert whole.covered == whole.total == 54


def test_records_without_a_baseline_compare_times(tmp_path):
    def alone(scale):
        df = synthetic.experiment("wide", scale=scale)
        return {"wide": df[df["variant"] == "warp_per_row"]}

    shipped = synthetic.folder(tmp_path / "shipped", alone(1.0))
    same = compare.compare(synthetic.folder(tmp_path / "a", alone(1.01)), shipped)
    other = compare.compare(synthetic.folder(tmp_path / "b", alone(1.5)), shipped)
    assert (same.exit_code, other.exit_code) == (compare.AGREE, compare.DIFFER)


def test_bad_input(tmp_path, shipped):
    with pytest.raises(FileNotFoundError, match="no records of any room"):
        compare.compare(tmp_path / "nowhere", shipped)
    with pytest.raises(ValueError, match="room 'x' has no records on both sides"):
        compare.compare(shipped, shipped, room="x")
    wide, tall = ({n: synthetic.experiment(n)} for n in ("wide", "tall"))
    a, b = synthetic.folder(tmp_path / "a", wide), synthetic.folder(tmp_path / "b", tall)
    with pytest.raises(ValueError, match="no point of any experiment in common"):
        compare.compare(a, b)
    far = synthetic.experiment("wide")
    far = synthetic.folder(tmp_path / "far", {"wide": far.assign(n=far["n"] + 1)})
    with pytest.raises(ValueError, match="no point of any experiment in common"):
        compare.compare(far, shipped)
    path = a / "casper_sparse" / "wide.csv"
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:-3]))
    for fresh, other in ((a, shipped), (shipped, a)):
        with pytest.raises(ValueError, match="wide.csv: row 162.*lacks"):
            compare.compare(fresh, other)
    path.write_text(whole[:-30])
    with pytest.raises(ValueError, match="truncated|not an ISO"):
        compare.compare(a, shipped)
    assert records.rooms(shipped) == ["casper_sparse", "ceilings"]
