"""By itself, on a GPU: every kernel of the room on small ragged problems, twice each, for compute-sanitizer to watch.

compute-sanitizer --tool synccheck python tests/kernels/async_sparse/under_sanitizer.py
compute-sanitizer --tool memcheck python tests/kernels/async_sparse/under_sanitizer.py --part 1/6

The whole takes some 40 s under synccheck, and minutes under memcheck, which parts share out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[3]))

from kernels import async_sparse as room
from kernels import gpu
from kernels.async_sparse import family, union, wcsr, windows
from kernels.contract import Problem
from kernels.formats import csr

VARIANTS = [name for name in room.VARIANTS if not name.startswith("auto")]  # which tune


def problems() -> Iterator[tuple[Problem, list[str]]]:
    """Problems and who multiplies them: a matrix with empty rows and two full ones, and blocks."""
    a = sp.random(333, 457, 0.05, format="lil", rng=np.random.default_rng(0))
    a[[7, 332], :] = 1.0
    a[50:60] = 0
    a = csr.from_scipy(sp.csr_matrix(a, dtype=np.float32))
    for dtype in ("float32", "tf32", "bfloat16", "float16"):
        for n in (8, 100, 264):
            p = room.problem_from_csr(a, n, dtype=dtype, reorder="", format="csr")
            yield p, [*VARIANTS, *wcsr.TRIALS, *windows.TRIALS, *union.TRIALS]
    for dtype in ("bfloat16", "tf32"):
        for m, n, k in ((200, 264, 300), (64, 64, 64), (1000, 520, 700)):
            yield room.problem(m, n, k, 0.3, dtype=dtype), [*VARIANTS, *family.TRIALS]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", default="1/1", help="i/n: the i-th of n equal parts of it")
    part, parts = map(int, parser.parse_args().part.split("/"))
    device = gpu.open_device(0)
    stream = device.create_stream()
    ran, refused = set(), set()
    for i, (problem, names) in enumerate(problems()):
        if i % parts != part - 1:
            continue
        for name in names:
            try:
                bound = room.bind(name, problem, device)
            except ValueError:  # not its dtype, layout or format
                refused.add(name)
                continue
            for _ in range(2):
                bound.launch(stream)
            stream.sync()
            ran.add(name)
    never = ", ".join(sorted(refused - ran)) or "none"
    print(f"{len(ran)} kernels ran; refused everywhere: {never}")


if __name__ == "__main__":
    main()
