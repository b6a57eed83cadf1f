"""Who waits for whom: products are right in whatever order a GPU's streams come to their work."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from kernels import distributed

RNG = np.random.default_rng(0)
A = sp.random_array((97, 60), density=0.2, rng=RNG, dtype=np.float32).tocsr()


class Lazy(distributed.Host):
    """A host that puts all work off until `sync`. Then one stream goes ahead of the others as far as marks let it."""

    def __init__(self, ahead: str):
        self.order = sorted((None, "products", "travels"), key=lambda stream: stream != ahead)
        self.queues: dict = {stream: [] for stream in self.order}
        self.marks, self.passed = 0, set()

    def streams(self):
        return "products", "travels"

    def mark(self, stream=None):
        self.marks += 1
        mark = self.marks
        self.queues[stream].append((None, lambda: self.passed.add(mark)))
        return mark

    def wait(self, stream, mark):
        self.queues[stream].append((mark, lambda: None))

    def copy(self, source, to, stream=None):
        self.queues[stream].append((None, lambda: super(Lazy, self).copy(source, to)))

    def product(self, *given, **options):
        multiply = super().product(*given, **options)

        def later(b, out, adds=False, stream=None):
            self.queues[stream].append((None, lambda: multiply(b, out, adds)))

        return later

    def sync(self):
        while any(self.queues.values()):
            ready = (
                queue
                for queue in map(self.queues.get, self.order)
                if queue and (queue[0][0] is None or queue[0][0] in self.passed)
            )
            _, work = next(ready).pop(0)
            work()


@pytest.mark.parametrize("ahead", ["products", "travels"])
@pytest.mark.parametrize("panel", [50, 200, 10_000])
def test_panels_are_there_when_they_are_multiplied_and_stay_until_then(ahead, panel):
    made = distributed.streamed(A, 5, panel=panel, machine=Lazy(ahead))
    assert (len(made.panels) > 2) == (panel < 1000)
    given = [RNG.standard_normal((60, 5)).astype(np.float32) for _ in range(2)]
    found = [made(b) for b in given]
    made.machine.sync()
    for b, out in zip(given, found, strict=True):
        np.testing.assert_allclose(out, A @ b, rtol=1e-5, atol=1e-5)


class Logging(distributed.Host):
    """A host that notes products, and for which marks of the other stream theirs waits."""

    def __init__(self):
        self.log, self.marks = [], 0

    def streams(self):
        return "products", "travels"

    def mark(self, stream=None):
        self.marks += 1
        return stream, self.marks

    def wait(self, stream, mark):
        if stream == "products" and mark[0] == "travels":
            self.log.append("arrived")

    def product(self, *given, **options):
        multiply = super().product(*given, **options)

        def noted(*asked, **more):
            self.log.append("product")
            multiply(*asked, **more)

        return noted


@pytest.mark.parametrize("chunks", [1, 3])
def test_rows_of_others_have_arrived_when_they_are_multiplied(chunks):
    def work(comm):
        made = distributed.plan(A, 6, comm, chunks=chunks, machine=Logging())
        made(np.ones((made.b_rows[1] - made.b_rows[0], 6), np.float32))
        return made.machine.log

    for log in distributed.run_threads(2, work):
        assert log.count("arrived") == chunks
        assert all(after == "product" for before, after in zip(log, log[1:], strict=False) if before == "arrived")
        assert log[-1] == "product"
