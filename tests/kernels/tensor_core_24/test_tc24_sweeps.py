"""The shapes of the experiments: what each is for."""

from __future__ import annotations

from kernels import tensor_core_24 as room


def sizes(name: str) -> list[tuple[int, int, int]]:
    return [(shape["m"], shape["n"], shape["k"]) for shape in room.sweeps("full")[name]]


def test_an_experiment_has_the_shapes_that_it_is_for():
    # Few tiles of 64 x 64 on 132 multiprocessors, decoding among them.
    assert {n for _, n, _ in sizes("small")} >= {16, 32, 64, 128}
    assert all(-(-m // 64) * -(-n // 64) <= 132 for m, n, _ in sizes("small"))
    # The sizes at which a GPU is warm after a while, all of them in the square sweep, as are those of studies.
    assert {*sizes("alone"), *sizes("studies"), *sizes("ladder")} <= set(sizes("square"))
    # Rows of B that begin at every multiple of bytes that counts, and what masking costs: against 4096 cubed.
    assert {min(2 * n & -2 * n, 128) for _, n, _ in sizes("rows")} == {16, 32, 64, 128}
    assert sizes("ragged")[0] == sizes("rows")[0] == (4096,) * 3
    assert all(any(shape[i] % 64 for shape in sizes("ragged")) for i in range(3))
    assert {min(n & -n, 8) for _, n, _ in sizes("ragged")} == {1, 2, 8}
