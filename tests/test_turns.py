"""Tests that run side by side: how many at once, and who is alone on a GPU."""

import threading
import time

import pytest
from turns import turn, workers


@pytest.mark.parametrize(
    ("cores", "memory_gib", "expected"),
    [(2, None, 2), (0, None, 1), (64, None, 64), (16, 80, 13), (64, 141, 16), (4, 141, 3), (16, 24, 4), (1, 2, 1)],
)
def test_workers(cores, memory_gib, expected):
    assert workers(cores, memory_gib and memory_gib * 2**30) == expected


def test_who_is_alone_is_alone_and_gets_its_turn(tmp_path):
    """Eight others come again and again; none is there at the same time, and none starts before who waits."""
    inside, together, seen = [], [], []
    stop = threading.Event()

    def other():
        while not stop.is_set():
            with turn(False, tmp_path):
                inside.append(1)
                together.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    others = [threading.Thread(target=other) for _ in range(8)]
    for thread in others:
        thread.start()
    try:
        for _ in range(5):
            with turn(True, tmp_path):
                seen.append(len(inside))
                time.sleep(0.005)
                seen.append(len(inside))
    finally:
        stop.set()
        for thread in others:
            thread.join()
    assert seen == [0] * 10
    assert max(together) > 1, "those that need not be alone are not"
