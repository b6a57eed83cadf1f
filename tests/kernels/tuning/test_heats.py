"""Launches timed in turns, on a GPU."""

from __future__ import annotations

import pytest

from kernels.tuning import trials


class Work:
    """A bound whose launch overwrites so many bytes; it notes that it was launched."""

    def __init__(self, megabytes: int):
        import cupy

        self.buffer, self.launches = cupy.empty(megabytes << 20, cupy.uint8), 0

    def launch(self, stream):
        import cupy

        self.launches += 1
        with cupy.cuda.Stream.from_external(stream):
            self.buffer.fill(self.launches % 2)


@pytest.mark.gpu
def test_a_race_is_of_one_uncounted_and_so_many_counted_launches(device):
    bounds = {"much": Work(1024), "little": Work(64)}
    times = trials.race(bounds, device, 5)
    assert [bound.launches for bound in bounds.values()] == [6, 6]
    assert times.keys() == bounds.keys() and times["much"] > 4 * times["little"] > 0


@pytest.mark.gpu
def test_a_hot_race_launches_for_so_long_before_it_counts(device):
    import cupy

    works = {"much": Work(256), "little": Work(64)}
    one = trials.race(works, device, 1)  # with the flushes between
    begun, done = cupy.cuda.Event(), cupy.cuda.Event()
    begun.record()
    trials.race(works, device, 3, hot_s=0.1)
    done.record()
    done.synchronize()
    assert cupy.cuda.get_elapsed_time(begun, done) >= 100 and one["much"] > one["little"]
    much, little = (work.launches - 2 for work in works.values())
    assert much == little > 4
