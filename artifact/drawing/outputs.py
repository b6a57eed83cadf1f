"""What a cell of a chapter puts on its page: a sentence, a table, a figure, where the numbers come from."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata

import pandas as pd
from IPython.display import HTML, Markdown, display

from artifact import paths, registry
from artifact.book import figures, study
from artifact.book.facts import flat
from artifact.book.text import Text, kept, listed, page, part
from artifact.drawing import provenance, style, summary
from artifact.drawing.pages import elsewhere, ledger, which
from artifact.measure import records
from artifact.measure.run import BUDGETS_S, Run, measure_point
from artifact.verdicts import judge, load
from kernels.contract import Problem

#: Of a page whose GPU is another than the one that the prose of the chapters was written for.
ELSEWHERE = (
    "*The numbers on this page are of the GPU named above. The explanations between them were written for an "
    "NVIDIA H200, and have to be read against these numbers.*"
)
#: The package whose version is the compiler's.
NVRTC = "nvidia-cuda-nvrtc"
#: Columns of a reader's own measurement -> how they are written.
OWN = {"contender": "name", "µs": "{:.1f}", "over": "x", "relative error": "sci"}
NO_COUNTERS = "Hardware counters of this GPU were not recorded; `make profile` writes them."
#: A source whose abstract makes fewer claims has all of them open.
FEW = 4


def say(*texts: str) -> None:
    """Markdown, each text by itself; nothing where there is nothing to say."""
    for text in filter(None, texts):
        display(Markdown(text))


def of(
    system: str, text: Text | None = None, order: Sequence[str] = (), names: Mapping[str, str] | None = None
) -> tuple[Callable[..., None], ...]:
    """Return `say`, `table(name, df)` and `show(name, df)` of a chapter, or of the pages of no system ("book").

    name: of a table in tables.toml, or of a figure in figures.toml, whose caption and fold may name the
    facts that `text` knows by then; None, or a table without rows, shows nothing. order: the published kernel first and
    our best last, for their looks; by default the system's variants. names: what figures call them.
    """
    return (
        say,
        figures.tabler(system, text),
        figures.shower(system, text, tuple(order or registry.variants(system)), names),
    )


def banner(run: Run, part: bool = False) -> None:
    """Where a page's numbers come from, and the files of its kernels, which the built book links to.

    That its prose was written for another GPU, or that its machine code is another compiler's than what was measured,
    if so.

    part: the page is of a part of the system, and has neither its races nor its claims.
    """
    here, offered = metadata.version(NVRTC), importlib.import_module(f"kernels.{run.room}").VARIANTS
    there = (run.machine.get("packages") or {}).get(NVRTC, here)
    files = dict.fromkeys(f"`{k.source.name}`" for k in offered.values() if k.source.suffix == ".cu")
    say(
        provenance.banner(run),
        ELSEWHERE if run.gpu != paths.HOME else "",
        f"*Machine code on this page is of NVRTC {here}, which made the page; what was measured is of {there}.*"
        if run.mode != "measure" and there != here
        else "",
        f"The kernels, in `kernels/{run.room}/`: {', '.join(files)}.",
    )
    if not part:
        beside(run)


def beside(run: Run) -> None:
    """Show the system's races on every GPU that has records of it, and where verdicts differ.

    Shows nothing where there is one GPU.
    """
    found = provenance.folders(run.folder.parent, paths.RECORDED)
    found = {gpu: folder for gpu, folder in found.items() if run.room in records.systems(folder)}
    if len(found) < 2:
        return
    df, show = summary.table(found, run.room), figures.shower(run.room)
    if df["gpu"].nunique() > 1:
        said = summary.told(df)
        show("gpus", summary.drawn(df), alt=said["alt"], caption=f"On {listed(found)}. {said['caption']}")
    mine = [claim for claim in load.claims() if claim.room == run.room]
    changed = provenance.changed(judge.everywhere(mine, found))["id"].tolist()
    told = {"gpus": listed(found), "count": len(changed), "links": part("links", changed, elsewhere.LEDGER)}
    say(page("elsewhere")("differ" if changed else "same", flat(told)))


def data(system: str, name: str, df: pd.DataFrame) -> str:
    """Keep the data behind a table as those behind figures are, and return the link to them."""
    return f'<a href="{paths.FROM_PAGES}/{system}/{kept(system, name, df).name}" download="">data (CSV)</a>'


def verdicts(run: Run) -> pd.DataFrame:
    """Return what the records say of each claim of the system.

    Shows it as the ledger does, first those of the abstract.
    """
    judged = study.Study(run).verdicts
    head = judged.loc[judged["where"].str.contains("abstract", case=False), "id"].tolist()
    display(
        HTML(ledger.ledger({run.machine["gpu"]: judged}, beside="ledger.html", first=head if len(head) >= FEW else ()))
    )
    return judged


def when(run: Run) -> None:
    """When to use what a chapter is about, from its records beside those of the libraries."""
    say(which.of_system(run.folder.parent, run.room))


def run_own(run: Run, problem: Problem, names: list[str]) -> None:
    """Check and time contenders on a reader's own problem, each over the last of them.

    Without a GPU a sentence that says so. Raises `verification.WrongResult` for a wrong one, ValueError for one that
    does not take the problem.
    """
    if run.device is None:
        say("There is no GPU here, so it was compiled and not run.")
        return
    every = run.variants() | run.baselines()
    found = measure_point(problem, {name: every[name] for name in names}, run.device, BUDGETS_S[run.preset])
    last = found[names[-1]][2].median_us
    timed = [(name, t.median_us, last / t.median_us, errors.rel_err) for name, (_, errors, t) in found.items()]
    spec = {"caption": f"Over: {style.name(names[-1])}.", "columns": [{"of": of, "as": how} for of, how in OWN.items()]}
    display(HTML(figures.styled(pd.DataFrame(timed, columns=list(OWN)), spec).to_html()))
