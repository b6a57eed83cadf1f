"""On a GPU: what was advised is also measured, beside everybody else of the records that it comes from."""

import numpy as np
import pytest
import scipy.sparse

from artifact import cli, paths
from artifact.recommend import landscape

PRECISIONS = sorted({p.about.precision for p in landscape.pools(paths.RECORDED / "nvidia-h200")})


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_advice_is_measured_and_judged(precision, tmp_path, capsys):
    rng = np.random.default_rng(2)
    scipy.sparse.save_npz(tmp_path / "mine.npz", scipy.sparse.random(3000, 2944, 0.004, "csr", rng=rng))
    command = ["which", f"{tmp_path}/mine.npz", "-n", "256", "--precision", precision.lower()]
    assert cli.main([*command, "--gpu", "nvidia-h200"]) == 0
    out = capsys.readouterr().out
    assert "Advice: " in out and "Measured on " in out
    assert "The advice was " in out.splitlines()[-1] or "does not take this matrix here" in out
