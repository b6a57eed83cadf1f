"""The release: sources, records, the rendered book and checksums in one archive, the same bytes from the same commit.

    <name>/…              what git has at this commit
    <name>/html/…         the rendered book; html/index.html is its first page
    <name>/SHA256SUMS     of every other file; `sha256sum --check SHA256SUMS` in that folder

What could differ from one run to the next is fixed: order, owners, modes, and times, which are the commit's. The pages
are the same because `artifact.build` takes out of the executed notebooks what is different in each execution. The
archive is compressed by Python's zlib; where a distribution has another, the archive may differ and the tar in it does
not, whose checksum is printed too.
"""

import gzip
import hashlib
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from artifact import command
from artifact.measure import device
from artifact.paths import ROOT
from kernels import __version__

NAME = f"sparsity-on-trial-{__version__}"
BOOK, SUMS = "html", "SHA256SUMS"


def git(*arguments: str, root: Path = ROOT) -> str:
    """Return what git prints. Raises ValueError, one sentence, where it refuses: there is no repository, say."""
    try:
        return device.git(*arguments, root=root)
    except RuntimeError as error:
        said = f"git {arguments[0]}: {device.first_line(error)}; a release is made in a clone of the repository."
        raise ValueError(said) from error


def tracked(root: Path = ROOT) -> dict[str, tuple[bytes, bool]]:
    """Path -> content and whether it can be executed, of everything that git has at HEAD.

    Raises ValueError, which names the first, if a tracked file was changed since.
    """
    changed = git("status", "--porcelain", "--untracked-files=no", root=root).splitlines()
    if changed:
        first, many = changed[0].split(maxsplit=1)[1], len(changed)
        raise ValueError(f"{first} was changed and not committed ({many} such in all): a release is of a commit.")
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        git("archive", "--format=tar", f"--output={archive.name}", "HEAD", root=root)
        with tarfile.open(archive.name) as tar:
            files: Any = {member: tar.extractfile(member) for member in tar if member.isfile()}
            return {member.name: (file.read(), bool(member.mode & 0o100)) for member, file in files.items()}


def release(book: Path, target: Path, root: Path = ROOT) -> dict[str, str]:
    """Write the archive into the folder `target`, and its checksum beside it.

    What is said of it: name of a line -> line. Raises ValueError or FileNotFoundError, one sentence, and writes
    nothing, where something is missing.
    """
    files = tracked(root)
    for name in (name for name in files if name == SUMS or name.startswith(f"{BOOK}/")):
        raise ValueError(f"{name}: git has a file where the release puts its own.")
    if not (book / "index.html").is_file():
        raise FileNotFoundError(f"{book}: the book is not built there; `make dist` builds it.")
    files |= {
        f"{BOOK}/{path.relative_to(book).as_posix()}": (path.read_bytes(), False)
        for path in book.rglob("*")
        if path.is_file()
    }
    sums = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, (content, _) in sorted(files.items()))
    files[SUMS] = "".join(sums).encode(), False
    when, out = int(git("log", "-1", "--format=%ct", root=root)), io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, (content, runs) in sorted(files.items()):  # and nothing of who made it where
            member = tarfile.TarInfo(f"{NAME}/{name}")
            member.size, member.mtime, member.mode = len(content), when, 0o755 if runs else 0o644
            made.addfile(member, io.BytesIO(content))
    tar = out.getvalue()
    archive = gzip.compress(tar, 9, mtime=0)  # without a name or a time in its head
    path = target / f"{NAME}.tar.gz"
    target.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive)
    digest = hashlib.sha256(archive).hexdigest()
    path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n", encoding="utf-8")
    return {
        "archive": str(path),
        "holds": f"{len(files)} files, {len(tar) / 1e6:.1f} MB, {len(archive) / 1e6:.1f} MB compressed",
        "commit": git("log", "-1", "--format=%H", root=root),
        "sha256": digest,
        "of the tar": hashlib.sha256(tar).hexdigest(),
    }


@command.program(
    "artifact.dist",
    __doc__,
    command.option("book", type=Path, help="folder of the rendered book"),
    command.option("target", type=Path, help="folder that the archive goes to"),
)
def main(options: command.Options) -> None:
    """Make the release and say what it is."""
    for what, said in release(options.book, options.target).items():
        print(f"{what:<11} {said}")


if __name__ == "__main__":
    raise SystemExit(main())
