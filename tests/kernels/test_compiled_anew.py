"""Tests that look at machine code, on machine code that came out otherwise once."""

from __future__ import annotations

from pathlib import Path

import compiled
import pytest

from kernels import jit

KEY = ("scale<4>", "sm_90a")


@pytest.fixture
def report(monkeypatch):
    """One kernel of the given numbers of loads: what the cache holds, then what each further compilation gives."""

    def of(*loads: int) -> compiled.Reports:
        made = iter(loads)

        def compile_cubin(source, entry, arch, *, anew=False):
            return jit.Cubin(Path(source), entry, arch, "scale", bytes([next(made)]))

        def reports(cubins):
            return [(None, {"LDG.E.128": cubin.code[0]}) for cubin in cubins]

        monkeypatch.setattr(jit, "compile_cubin", compile_cubin)
        monkeypatch.setattr(jit, "reports", reports)
        return compiled.reports(compiled.cubins([(Path("scale.cu"), KEY[0])], [KEY[1]]))

    return of


def of_four_loads(seen: list[int]):
    def test(reports, arch):
        _, mix = reports[KEY[0], arch]
        seen.append(compiled.count(mix, "LDG", 128))
        assert seen[-1] == 4

    return compiled.again(test)


@pytest.mark.parametrize("loads", [[4], [5, 4], [5, 3, 4]])
def test_what_holds_of_the_kernels_compiled_anew_holds(report, loads):
    seen: list[int] = []
    of_four_loads(seen)(reports=report(*loads), arch=KEY[1])
    assert seen == loads


def test_what_never_holds_fails(report):
    seen: list[int] = []
    with pytest.raises(AssertionError):
        of_four_loads(seen)(reports=report(*[5] * 9), arch=KEY[1])
    assert seen == [5] * (1 + compiled.AGAIN)
