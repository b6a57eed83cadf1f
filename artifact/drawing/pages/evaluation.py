"""What SC's templates ask besides those of the ACM: contributions, tasks with their minutes, the first five minutes,
accepted ranges, known deviations; from claims, records and the commands themselves."""

from __future__ import annotations

import contextlib
import html
import io
import shlex
from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from artifact import registry
from artifact.book import facts as facts_
from artifact.book.facts import Fact, under
from artifact.drawing.pages.appendix import LEDGER, Appendix, each, runs, total
from artifact.drawing.prose import captioned
from artifact.measure import minutes, records
from artifact.verdicts import load, measures, page

Main = Callable[[Sequence[str]], int]
#: Lines of a command's output that a transcript shows, and characters of a line.
SHOWN, WIDE = 14, 80
#: Of a driver: the least that runs what the lock files install, by NVIDIA's release notes of CUDA 13.0.
LEAST_DRIVER = "580"
#: Minutes in which all experiments of a room were meant to be measured once.
ROOM_MINUTES = 8
#: Bytes of an element of the reference, which the host computes.
REFERENCE = 8


@captioned("Claims of the sources, the experiments and figures that test them, and what a rerun should give.")
def contributions(a: Appendix, *ids: str) -> pd.DataFrame:
    """C1 … of the sources: what is claimed, the experiment and the source's figure; what is stated, what the records of each
    GPU gave and in how many minutes, and the thresholds by which a rerun is judged. Raises ValueError for an id that is none."""
    claims = {claim.id: claim for claim in a.known}
    if unknown := [i for i in ids if i not in claims]:
        raise ValueError(f"The appendix names a claim {unknown[0]!r} that is none.")
    chosen = [claims[i] for i in ids]
    judged = {gpu: df.set_index("id") for gpu, df in a.judged.items()}
    figures, named = load.figures_of(), registry.find()
    rows = []
    for number, claim in enumerate(chosen, 1):
        drawn = dict.fromkeys(figures.get(claim.room, {}).get(e, "") for e in claim.experiment)
        here = "<br>".join(_here(a, claim, gpu, df.loc[claim.id]) for gpu, df in judged.items())
        here = here or f"not measured yet; {minutes.said(claim.minutes)} min"
        tried = f"<code>{', '.join(claim.experiment)}</code>"
        figure = html.escape(", ".join(filter(None, drawn)) or claim.where)
        within = html.escape(page.written(claim.rule.written["expect"]))
        rows.append(
            {
                "": f"C{number}",
                "claim": f'{named[claim.room].name}: <a href="{LEDGER}#claim-{claim.id}">{claim.id}</a><br>'
                f"{html.escape(claim.says)}",
                "tried by": f"{tried}<br>{figure}",
                "stated, measured here, and how a rerun is judged": f"{html.escape(claim.published)}<br>{here}<br>"
                f"<code>{within}</code>",
            }
        )
    return pd.DataFrame(rows)


def _here(a: Appendix, claim: load.Claim, gpu: str, row: pd.Series) -> str:
    """What the records of one GPU gave of a claim, and the minutes that it took there, as HTML."""
    told = f"{page.badge(row['verdict'], row['extension'])} {html.escape(row['measured'])}"
    if row["verdict"] == measures.NOT_MEASURED:
        return f"{a.short[gpu]}: {told}"
    return f"{a.short[gpu]}: {told}, {minutes.said(load.took(claim, a.folders[gpu]))} min"


@captioned("The workflow: commands, what each makes, minutes of a person and of the machine.")
def tasks(a: Appendix) -> pd.DataFrame:
    """T1 … of the workflow: command, what it makes, minutes of a person and of the machine. Those of measuring are from
    the records, those of what needs no GPU from `minutes.COMMANDS_S`."""
    took = {name: minutes.said(s / 60) for name, s in minutes.COMMANDS_S.items()}
    rows = [
        ("T1", "make environment", "the environment, from the lock file with hashes", "1", took["environment"]),
        (
            "T2",
            "make artifact",
            "without a GPU: every kernel compiled, this book from the shipped records",
            "1",
            f"{took['artifact']}, with T1",
        ),
        (
            "T3",
            "make test",
            "the tests; those that need a GPU or a browser skip without",
            "1",
            f"{took['test']}, after T2",
        ),
        ("T4", "make kick", "with a GPU: one small shape of each room, checked and timed", "1", kicks()),
        (
            "T5",
            "make measure",
            "all records of this GPU, in build/records; T4 is not needed before",
            "1",
            each(a, lambda gpu: _measuring(a.everywhere[gpu]), "<br>", short=True) or "not measured yet",
        ),
        (
            "T6",
            "make compare",
            "these against the shipped ones: agree or differ, verdicts that change",
            "5",
            f"{took['compare']}, of all shipped records",
        ),
        (
            "T7",
            "make artifact",
            "the book from T5's records, the shipped ones beside them",
            "10 to read",
            f"{minutes.said(minutes.AGAIN_S / 60)}, after T2",
        ),
    ]
    df = pd.DataFrame(rows, columns=["", "task", "what it makes", "your minutes", "its minutes"])
    return df.assign(task="<code>" + df["task"] + "</code>")


def kicks() -> str:
    """Minutes of `make kick` on each GPU where it was timed."""
    return "<br>".join(f"{gpu}: {minutes.said(s / 60)}" for gpu, s in minutes.KICK_S.items())


def _measuring(spent: pd.DataFrame) -> str:
    """Minutes of a GPU's first runs, and of the longest room's among them."""
    first = runs(spent)
    if first.empty:
        return ""
    return f"{total(first):.0f}, the longest room {first.groupby('room')['minutes'].sum().max():.0f}"


def typed(main: Main, *commands: str) -> str:
    """Commands of `python -m artifact` and what they print, as a block of Markdown; run when the page is made, so none
    may need a GPU. Long output is shown by its first lines and its last. main: `artifact.cli.main`."""
    return "\n".join(["```console", *(line for c in commands for line in _typed(main, c)), "```"])


def _typed(main: Main, command: str) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(shlex.split(command))
    lines = [line[:WIDE].rstrip() for line in out.getvalue().splitlines() if line.strip()]
    if len(lines) > SHOWN:
        lines = [*lines[: SHOWN - 2], f"… {len(lines) - SHOWN + 1} more lines", lines[-1]]
    return [f"$ python -m artifact {command}", *lines, f"[exit code {code}]", ""]


# ---------------------------------------------------------------- what the text names


def facts(a: Appendix) -> Iterator[Fact]:
    """Yield on what tasks were timed, the largest point and the memory that GPUs with records have, and how long each
    room took to measure on each of them, the longest first."""
    yield from under("timed", without_gpu=minutes.WITHOUT_GPU, kicked=minutes.KICKED)
    yield "least_driver", LEAST_DRIVER
    yield "room_minutes", ROOM_MINUTES
    if a.measured:
        df = pd.concat([df[["m", "n", "least_bytes"]] for df in a.measured])
        host = df["least_bytes"] + REFERENCE * df["m"].astype(float) * df["n"]
        yield from under("largest", gpu_gb=df["least_bytes"].max() / 1e9, host_gb=host.max() / 1e9)
    named = registry.find()
    for gpu, folder in a.folders.items():
        machines = [records.read_machine(folder / room) for room in records.rooms(folder)]
        if least := min(float(machine.get("memory_bytes", 0)) for machine in machines):
            yield f"memory_gb.{gpu}", least / 1e9
        first = runs(a.everywhere[gpu])
        if len(first):
            took = first.groupby("room")["minutes"].sum().sort_values(ascending=False)
            yield from facts_.each(f"room_took.{gpu}", took)
            yield from ((f"measured.{room}", named[room].name if room in named else room) for room in took.index)
