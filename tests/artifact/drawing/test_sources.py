"""Links from pages to the kernels' files."""

from artifact.drawing.pages.sources import linked


def test_a_file_that_is_named_is_linked_and_comes_along(tmp_path):
    for name in ("one/a.cu", "two/a.cu", "two/b.cuh", "common/c.cuh"):
        path = tmp_path / "kernels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    page = (
        '<code class="x"><span class="pre">a.cu</span></code> <code>b.cuh</code> <code>common/c.cuh</code> '
        '<code>kernels/two/a.cu</code> <code>none.cu</code> <a href="y"><code>b.cuh</code></a> a.cu'
    )
    text, files = linked(page, "one", tmp_path)
    assert files == {
        f"sources/kernels/{name}.txt": name for name in ("one/a.cu", "two/b.cuh", "common/c.cuh", "two/a.cu")
    }
    assert text.count("<a ") == 5 and 'href="sources/kernels/one/a.cu.txt"><code' in text
    assert '<a href="y"><code>b.cuh</code></a> a.cu' in text
    # On a page of no room a name that two folders have says nothing.
    assert linked("<code>a.cu</code>", "index", tmp_path) == ("<code>a.cu</code>", {})
