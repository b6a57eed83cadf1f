"""Counters of tiles without a GPU: who shares one, and who has one alone."""

from __future__ import annotations

import threading

import pytest

from kernels.library import counters


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    """Where what is allocated begins: 1 MiB after the last; nothing is left of other tests."""
    made = []

    def zeros(size: int) -> int:
        assert size == counters.MANY * counters.SPACE
        made.append(2**20 * (len(made) + 1))
        return made[-1]

    monkeypatch.setattr(counters.buffers, "allocated", zeros)
    monkeypatch.setattr(counters, "_spare", {})
    monkeypatch.setattr(counters, "_of_stream", {})
    return made


def test_launches_of_a_stream_share_one_and_no_two_streams_do():
    streams = [(gpu, stream) for gpu in (0, 1) for stream in (0, 0x7000, 0x8000)]
    of = {key: counters.counter(*key, captured=False) for key in streams}
    assert len(set(of.values())) == len(streams)
    assert of == {key: counters.counter(*key, captured=False) for key in reversed(streams)}


def test_a_captured_launch_has_one_for_itself_for_ever(memory):
    eager = counters.counter(0, 0x7000, captured=False)
    many = 3 * counters.MANY
    alone = [counters.counter(0, 0x7000, captured=True) for _ in range(many)]
    assert len({eager, *alone}) == many + 1
    assert counters.counter(0, 0x7000, captured=False) == eager
    ends = sorted({eager, *alone})
    assert all(b - a >= 8 for a, b in zip(ends, ends[1:], strict=False)) and ends[0] >= memory[0]
    assert len(memory) == 4


def test_the_stream_of_each_thread_is_another_in_another_thread():
    found = [counters.counter(0, 2, captured=False)]
    thread = threading.Thread(target=lambda: found.append(counters.counter(0, 2, captured=False)))
    thread.start()
    thread.join()
    assert found[0] != found[1] and counters.counter(0, 2, captured=False) == found[0]


def test_threads_that_meet_on_a_new_stream_get_the_same():
    found, barrier = [], threading.Barrier(8)

    def ask(stream: int) -> None:
        barrier.wait()
        found.append((stream, counters.counter(0, stream, captured=False)))

    for stream in range(0x1000, 0x1040):
        threads = [threading.Thread(target=ask, args=(stream,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(found)) == 0x40 == len({address for _, address in found})
