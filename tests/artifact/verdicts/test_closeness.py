"""How near a value lies to a threshold of its verdict."""

import numpy as np
import pandas as pd
import pytest

from artifact.verdicts import closeness


def test_a_value_moves_by_the_same_factor_both_ways():
    """A tenth more, or what a tenth more of it would be."""
    moved = closeness._along(pd.Series([1.0, 1.0, 1.0]), np.array([-5.0, 5.0, 0.01]), 0.1)
    assert moved.tolist() == pytest.approx([1 / 1.1, 1.1, np.exp(0.01)])
