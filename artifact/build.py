"""From the notebooks to the book: `python -m artifact.build notebook` and `python -m artifact.build book`.

`make` decides what is out of date; this module makes one executed notebook, or the whole book.
Both are made aside and renamed, so that an interrupted or failed build leaves the previous one.
"""

import base64
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from artifact import command, paths, registry
from artifact.book.text import listed
from artifact.drawing.pages import rebuilt, sources
from artifact.measure import device, records, run
from artifact.paths import BUILD, FIGURES, ROOT, TABLES

#: For Python in processes of its own: texts are UTF-8, whatever the locale.
UTF8 = {"PYTHONUTF8": "1"}
#: Lies in every folder that is built into, so that nothing is ever removed from one that was there before.
MARK = ".sparsity-on-trial"
#: What other commands than `make` may have put there first; a build removes none of it.
KEPT = {"choices", "cubin", "figures", "records", "trials", "verdicts"}
#: A column's head of a table, in a notebook's JSON; what an object without a text of its own says; what pandas calls a
#: styled table.
HEAD = re.compile(r'<th(?=>| id=\\"T_\w+_level0_col\d+\\")( [^>]*)?')
ADDRESS = re.compile(r" at 0x[0-9a-f]+>")
STYLED = re.compile(r"\bT_([0-9a-f]{5})(?=_|\b)")


class BuildError(RuntimeError):
    """A notebook or the book could not be made; the message is one sentence for the reader."""


def claim(folder: Path) -> None:
    """Mark `folder`, made where it is missing, as one to build into: what the build puts there, it may also remove.

    Raises ValueError, one sentence, for a folder that holds something and has no mark: it may be the user's. What lies
    in the repository's own build/ is ours without. The same for a name that is not UTF-8.
    """
    # What Python reads of a byte that is not UTF-8.
    for place in (place for place in map(ascii, map(str, (ROOT, folder))) if "\\udc" in place):
        raise ValueError(f"{place} is a name that is not UTF-8, which no notebook and no compiler takes: rename it")
    mark, found = folder / MARK, sorted({path.name for path in folder.glob("*")} - KEPT)
    if found and not folder.is_relative_to((ROOT / "build").resolve()) and not mark.is_file():
        raise ValueError(
            f"{folder}: this folder is not empty ({found[0]}) and was not made by a build, which would replace "
            "parts of it: name a new one with BUILD="
        )
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()


def validate(parameters: dict[str, object]) -> None:
    """Refuse parameters that would only fail inside a notebook.

    Raises ValueError, one sentence, for an unknown mode, preset, seed, or GPU to read, FileNotFoundError for no such
    folder of records, and `device.NoGpu` where there is nothing to measure on.
    """
    mode = parameters["mode"]
    run.validate(mode, parameters["preset"], parameters["seed"])
    if (mode == "measure" and device.require()) or (mode == "auto" and device.find()):
        return  # of the GPU that is here, into a folder that need not be there yet
    root = ROOT / str(parameters["records"] or paths.RECORDED)  # notebooks run in ROOT
    if not root.is_dir() and parameters["records"]:
        raise FileNotFoundError(f"{parameters['records']}: this folder of records is missing")
    # Where nothing was recorded at all, the notebooks that need no records still run.
    if records.list_gpus(root):
        records.resolve(str(parameters["gpu"]), root)


def execute(source: Path, target: Path, parameters: dict[str, object]) -> None:
    """Execute the notebook `source` with papermill and write it, with its outputs, to `target`.

    Raises BuildError that names the notebook, the cell and the exception; `target` is then as before.
    """
    import papermill
    from tqdm.auto import tqdm
    from traitlets.config import Config

    # `python3` means this interpreter for Jupyter, whatever kernels the machine has installed. The kernel finds the
    # repository's packages, and none of the user's IPython start-up files.
    spec = {
        "argv": [sys.executable, *"-m ipykernel_launcher -f {connection_file} --log-level=CRITICAL".split()],
        "display_name": "Python 3",
        "language": "python",
        "env": UTF8
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            "IPYTHONDIR": str(BUILD / "ipython"),
        },
    }
    # Several notebooks are executed side by side, and each writes the same.
    records.write_json(BUILD / "jupyter" / "kernels" / "python3" / "kernel.json", spec)
    os.environ["JUPYTER_PATH"] = str(BUILD / "jupyter")
    # Of threads alone: a lock of processes would be reported as leaked where Ctrl-C ends this one at once.
    tqdm.set_lock(threading.RLock())
    target.parent.mkdir(parents=True, exist_ok=True)
    # The kernel is spoken to through files of its own. Of TCP ports, two kernels that start at once can be given the
    # same; the later one then neither answers nor ends. A socket's path is 107 characters at most on Linux.
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.stem}-") as aside,
        tempfile.TemporaryDirectory(dir="/tmp" if len(tempfile.gettempdir()) > 64 else None) as sockets,
    ):
        made = Path(aside) / target.name
        try:
            papermill.execute_notebook(
                source,
                made,
                parameters,
                kernel_name="python3",
                cwd=ROOT,
                progress_bar={"desc": _shown(source)},
                start_timeout=300,
                # One write at the end: the file aside is of no use before.
                request_save_on_cell_execute=False,
                config=Config(KernelManager={"transport": "ipc", "connection_file": f"{sockets}/kernel.json"}),
            )
            os.replace(made, target)
        except papermill.exceptions.PapermillExecutionError as error:
            # Its index counts from 0 with the injected cell: from 1 in the notebook as it was written.
            raise BuildError(
                f"{_shown(source)}, cell {error.cell_index}: {error.ename}: {error.evalue}".rstrip(": ")
            ) from error
        except Exception as error:  # the kernel died, or the file is no notebook
            raise BuildError(f"{_shown(source)}: {type(error).__name__}: {error}") from error


def book(notebooks: Path, target: Path) -> None:
    """Build the pages from the executed `notebooks` with Jupyter Book, and put them at `target`.

    book/ and what the systems add to it are assembled first.

    The figures and the CSV files behind them go to `target`/figures, where the pages link to them.
    Raises BuildError on any warning of Jupyter Book; `target` is then as before.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix=".book-") as name:
        aside, source = Path(name), Path(name, "book")
        shutil.copytree(ROOT / "book", source)
        # What the systems say: their chapters, sources, and what `{{ sources }}` and `{{ examples }}` mean on a page.
        (source / "_toc.yml").write_text(yaml.safe_dump(contents(), sort_keys=False), encoding="utf-8")
        with (source / "references.bib").open("a", encoding="utf-8") as bibliography:
            bibliography.write(f"\n{registry.references()}")
        config = source / "_config.yml"
        said = yaml.safe_load(config.read_text(encoding="utf-8"))
        said["parse"]["myst_substitutions"] = {
            "sources": listed(f"{{cite:t}}`{system.cite}`" for system in registry.find().values()),
            "examples": sources.tables(),
        }
        config.write_text(yaml.safe_dump(said, sort_keys=False, allow_unicode=True), encoding="utf-8")
        if FIGURES.is_dir():
            shutil.copytree(FIGURES, source / "figures")
        for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
            _as_page(notebooks / notebook.name, source / notebook.name)
        shutil.copy(paths.ROOT / ".github" / "ISSUE_TEMPLATE" / "dispute.yml", source)
        for system, named in rebuilt.pages().items():
            records.write_text(source / f"{named}.md", rebuilt.page(system))
        result = subprocess.run(  # not by its script, which need not be on the PATH
            [
                *(sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(source)),
                *("--path-output", str(aside), "-W", "-n", "--keep-going", "-q"),
            ],
            env=os.environ | UTF8,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        html = aside / "_build" / "html"
        if result.returncode or not (html / "index.html").is_file():
            print(result.stdout.replace(str(source), "book"), file=sys.stderr)
            raise BuildError("the book does not build without warnings: see the lines above")
        for page in html.glob("*.html"):
            text, files = sources.linked(page.read_text(encoding="utf-8"), page.stem)
            # The front page is called as the book is.
            once = re.sub(r"<title>(.+) &#8212; \1</title>", r"<title>\1</title>", text)
            for path, content in ({page.name: once} | files).items():
                records.write_text(html / path, content)
        # DataTables, of the package itables, as base64: a page that is opened as a file may import a module from a blob
        # and not from beside it.
        tables = base64.b64encode(resources.files("itables").joinpath("html", "dt_bundle.js").read_bytes()).decode()
        records.write_text(html / TABLES, f'window.itablesBundle = "{tables}";\n')
        if FIGURES.is_dir():
            shutil.copytree(FIGURES, html / "figures")
        _replace_folder(html, target)


def contents() -> dict[str, Any]:
    """Return the book's table of contents.

    Book/_toc.yml, with the systems' chapters, and the pages on what was rebuilt, in their order where it says so.
    """
    table = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    known = registry.find()
    of_systems = {
        "rooms": [{"file": system} for system in known if (ROOT / "notebooks" / f"{system}.ipynb").is_file()],
        "rebuilt": [{"file": page, "title": known[system].name} for system, page in rebuilt.pages().items()],
    }
    parts = [{**p, "chapters": of_systems.get(str(p["chapters"]), p["chapters"])} for p in table.get("parts", [])]
    return table | ({"parts": [part for part in parts if part["chapters"]]} if parts else {})


def _as_page(executed: Path, page: Path) -> None:
    """Copy an executed notebook, with the parameters that it ran with in place of the defaults.

    Cells with the tag "found" come before the first section: what they say needs all that was measured. Nothing of when
    and how long is kept: the same records make the same page, byte for byte.
    """
    import nbformat

    if not executed.is_file():
        raise BuildError(f"{executed.name} has not been executed: run `make artifact`")
    notebook = nbformat.read(executed, as_version=4)
    notebook.metadata.pop("papermill", None)
    more = {
        "parameters": "remove-cell",
        # The front page has no room for what was found; whoever sees it shall see it.
        "injected-parameters": "remove-cell" if page.stem == "index" else "hide-input",
    }
    found, others = ([x for x in notebook.cells if ("found" in x.metadata.get("tags", [])) == y] for y in (True, False))
    begin = next((i for i, cell in enumerate(others) if cell.source.startswith("## ")), len(others))
    notebook.cells = [*others[:begin], *found, *others[begin:]]
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = type(cell.metadata)(tags=[*tags, *(more[tag] for tag in tags if tag in more)])
        if "injected-parameters" in tags:
            cell.id = "injected-parameters"  # papermill's is random
    # The figures lie beside the folder of notebooks, but in the folder of the pages.
    page.write_text(_same(nbformat.writes(notebook)).replace("../figures/", "figures/"), encoding="utf-8")


def _same(text: str) -> str:
    """Return the text of an executed notebook as pages have it.

    Heads of columns say that they are, which pandas leaves out; and without what is different in each execution:
    pandas names a styled table at random, and an object without a text of its own says where in memory it lies.
    """
    numbers: dict[str, int] = {}
    text = STYLED.sub(lambda m: f"T_{numbers.setdefault(m[1], len(numbers)):05d}", ADDRESS.sub(">", text))
    return HEAD.sub(r"<th scope=\"col\"\g<1>", text)


def _replace_folder(new: Path, target: Path) -> None:
    """Put folder `new` at `target`: two renames, since one cannot replace a folder that is not empty.

    Again and again where another process puts its own there in between.
    """
    while True:
        with contextlib.suppress(FileNotFoundError):
            os.replace(target, tempfile.mkdtemp(dir=new.parent))
        try:
            return os.replace(new, target)
        except OSError:
            if not target.is_dir():
                raise


def _shown(path: Path) -> str:
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


#: What every notebook's cell tagged "parameters" must define.
PARAMETERS = ("mode", "gpu", "preset", "seed", "records")
DEFAULTS = (
    command.option("--mode", default="auto", help="auto, measure or recorded"),
    command.option("--gpu", default=paths.HOME),
    command.option("--preset", default="full", help="kick or full"),
    command.option("--seed", default="0", help="a whole number"),
    command.option("--records", default=""),
)
SOURCE, TARGET = command.option("source", type=Path), command.option("target", type=Path)
#: Step -> what it does, its arguments, and what a user who stopped it wants to know.
STEPS = {
    "notebook": (
        "execute one notebook",
        (SOURCE, TARGET, *DEFAULTS),
        "{} is not finished; the same command goes on with what was not yet done",
    ),
    "check": ("whether notebooks can run with these", DEFAULTS, "nothing was begun"),
    "book": (
        "build the pages from book/ and the executed notebooks",
        (command.option("notebooks", type=Path), TARGET),
        "the pages are as before; the same command builds them again",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one step; errors are one sentence on stderr and exit code 2."""
    parser = command.Parser(prog="python -m artifact.build", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    for name, (says, taken, _) in STEPS.items():
        steps.add_parser(name, help=says).add(taken)
    options = parser.parse_args(arguments)
    # Ctrl-C reaches the notebook's kernel as well; what nbclient logs of its end is no news.
    command.as_interrupt(logging.disable)
    try:
        claim(BUILD if options.step != "book" else options.target.resolve().parent)
        if options.step == "book":
            book(options.notebooks, options.target.resolve())
            return 0
        seed = int(options.seed) if options.seed.isdecimal() else options.seed  # which is refused as it was written
        parameters = {name: getattr(options, name) for name in PARAMETERS} | {"seed": seed}
        validate(parameters)
        if options.step == "notebook":
            execute(options.source, options.target, parameters)
    except KeyboardInterrupt as stop:
        goes_on = STEPS[options.step][2].format(_shown(getattr(options, "source", ROOT)))
        print(f"\ninterrupted: {goes_on}", file=sys.stderr, flush=True)
        # At once, since what asyncio left unfinished in nbclient would be reported with tracebacks on the way out.
        os._exit(128 + int(*stop.args or (signal.SIGINT,)))
    except Exception as error:
        if os.environ.get("DEBUG"):
            raise
        return command.failed(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
