"""Whether records are of these kernels: machine code of two trees."""

import pytest
from contenders import refused

from artifact import paths
from artifact.measure import same_code


def test_what_two_trees_make_of_the_entries():
    here = {"a.cu: a<1>": "FFMA", "a.cu: a<2>": "FFMA", "b.cu: b": "MOV"}
    there = {"a.cu: a<1>": "FFMA", "a.cu: a<2>": "FADD", "c.cu: c": "MOV"}
    found = same_code.compare(here, there)
    assert found["same"] == ["a.cu: a<1>"]
    assert same_code.said("room", "abc1234", found) == (
        "room at abc1234: 1 kernels with the same machine code; differ: a.cu: a<2>; "
        "only here: b.cu: b; only there: c.cu: c"
    )


def test_a_tree_is_compiled_with_its_own_kernels(tmp_path):
    """A changed constant is other machine code, a comment is none; a tree that does not compile says what is wrong."""
    pytest.importorskip("cuda.core")
    kernels = tmp_path / "kernels"
    (kernels / "tiny").mkdir(parents=True)
    (kernels / "__init__.py").touch()
    for path in (paths.ROOT / "kernels").glob("[!_]*.py"):
        (kernels / path.name).symlink_to(path)
    (kernels / "tiny" / "__init__.py").write_text(
        "from pathlib import Path\nfrom ..contract import Kernel\n"
        "VARIANTS = {'k': Kernel('k', Path(__file__).with_name('k.cu'), '', entries=('k',))}\n"
    )
    source = kernels / "tiny" / "k.cu"

    def made(text: str) -> dict[str, str]:
        source.write_text(text)
        return same_code.sass(tmp_path, "tiny")

    first = made("__global__ void k(float* x) { x[threadIdx.x] *= 3.0f; }")
    assert list(first) == ["k.cu: k"] and "FMUL" in first["k.cu: k"]
    assert made("// said\n__global__ void k(float* x) { x[threadIdx.x] *= 3.0f; }") == first
    assert made("__global__ void k(float* x) { x[threadIdx.x] *= 5.0f; }") != first
    package = kernels / "tiny" / "__init__.py"
    package.write_text(package.read_text().replace("('k',)", "('k<3>',)"))
    once = made("template <int N> __global__ void k(float* x) { x[threadIdx.x] *= N; }")
    more = made("template <int N, class... T> __global__ void k(float* x, T...) { x[threadIdx.x] *= N; }")
    assert once == more and "FMUL" in once["k.cu: k<3>"], "another symbol is no other code"
    refused(
        "^tiny does not compile in ", made, "__global__ void k(float* x) { x[threadIdx.x] *= y; }", kind=RuntimeError
    )


def test_every_commit_once_and_what_differs_is_a_status(monkeypatch, capsys):
    """Of the shipped records: systems with variants alone, trees that git makes and takes away again."""
    asked, called = [], []
    monkeypatch.setattr(same_code, "sass", lambda tree, system: asked.append((tree, system)) or {"k.cu: k": system})
    monkeypatch.setattr(same_code.device, "git", lambda *words: called.append(words[:2]))
    assert same_code.main([]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == len(set(out)) >= 5 and all("1 kernels with the same" in x for x in out)
    assert {system for _, system in asked} >= {"casper_sparse", "tensor_core_24"}
    assert called.count(("worktree", "add")) == called.count(("worktree", "remove")) == len(out)
    monkeypatch.setattr(same_code, "sass", lambda tree, system: {"k.cu: k": str(tree == paths.ROOT)})
    assert same_code.main([]) == 1 and "differ: k.cu: k" in capsys.readouterr().out
