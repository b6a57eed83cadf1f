"""What SC's templates ask besides those of the ACM: contributions, tasks with their minutes, the first five minutes,
accepted ranges, known deviations; from claims, records and the commands themselves."""

from __future__ import annotations

import contextlib
import html
import importlib
import io
import shlex

import pandas as pd

from artifact import cli, rooms
from artifact.drawing.pages.appendix import LEDGER, Appendix
from artifact.drawing.prose import captioned
from artifact.measure import records
from artifact.verdicts import compare, judge, load, measures, page
from kernels import jit

#: Lines of a command's output that a transcript shows, and characters of a line.
SHOWN, WIDE = 14, 80
#: Of a driver: the least that runs what the lock files install, by NVIDIA's release notes of CUDA 13.0.
LEAST_DRIVER = "580"
#: Bytes of an element of the reference, which the host computes.
REFERENCE = 8


@captioned(
    "Claims of the sources, the experiments and figures that test them, and what a rerun should give."
)
def contributions(a: Appendix, *ids: str) -> pd.DataFrame:
    """C1 … of the sources: what is claimed, the experiment with its minutes and the source's figure; what is stated, what
    these records gave, and the thresholds by which a rerun is judged. Raises ValueError for an id that is none."""
    claims = {claim.id: claim for claim in a.known}
    if unknown := [i for i in ids if i not in claims]:
        raise ValueError(f"The appendix names a claim {unknown[0]!r} that is none.")
    chosen = [claims[i] for i in ids]
    known = judge.judge(chosen, a.origin.folder).set_index("id") if a.origin.folder else None
    figures, named = load.figures_of(), rooms.find()
    rows = []
    for number, claim in enumerate(chosen, 1):
        drawn = dict.fromkeys(figures.get(claim.room, {}).get(e, "") for e in claim.experiment)
        here = "not measured yet"
        if known is not None:
            row = known.loc[claim.id]
            here = f"{page.badge(row['verdict'], row['extension'])} {html.escape(row['measured'])}"
        tried = f"<code>{', '.join(claim.experiment)}</code><br>{claim.minutes:g} min"
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


def one_claim(a: Appendix) -> str:
    """The commands that measure and judge one claim, and nothing that it does not need, as a block of Markdown."""
    one = a.known[0]
    return (
        "```sh\n"
        f"make measure NOTEBOOKS=notebooks/{one.room}.ipynb      # the chapter of its room alone\n"
        f"python -m artifact claims --id {one.id} --records build/records\n"
        f"python -m artifact compare --room {one.room}            # against the shipped records\n"
        "```"
    )


@captioned("The workflow: commands, what each makes, minutes of a person and of the machine.")
def tasks(a: Appendix) -> pd.DataFrame:
    """T1 … of the workflow: command, what it makes, minutes of a person and of the machine. Those of measuring are from
    the records."""
    spent = f"{a.minutes:.0f}" if a.minutes else "not measured yet"
    rooms_ = {} if a.first.empty else a.first.groupby("room")["minutes"].sum().to_dict()
    longest = max(rooms_.values(), default=0.0)
    rows = [
        ("T1", "make environment", "the environment, from the lock file with hashes", "1", "1 to 2, by the package index"),
        ("T2", "make artifact", "without a GPU: every kernel compiled, this book from the shipped records", "1",
         "about 8 on two cores, with the tests of T3"),
        ("T3", "make test", "the tests; those that need a GPU or a browser skip without", "1", "see T2"),
        ("T4", "make kick", "with a GPU: one small shape of each room, checked and timed", "1", "under 5"),
        ("T5", "make measure", "all records of this GPU, in build/records; T4 is not needed before", "1",
         f"{spent} on the GPU of these records" + (f", the longest room {longest:.0f}" if longest else "")),
        ("T6", "make compare", "these against the shipped ones: agree or differ, verdicts that change", "5", "under 1"),
        ("T7", "make artifact", "the book from T5's records, the shipped ones beside them", "10 to read", "as T2, without compiling"),
    ]  # fmt: skip
    df = pd.DataFrame(rows, columns=["", "task", "what it makes", "your minutes", "its minutes"])
    return df.assign(task="<code>" + df["task"] + "</code>")


def first_minutes(a: Appendix) -> str:
    """Of the first room: its claims that fail, one of them in full, and what its first kernel is compiled to."""
    room = a.known[0].room
    variant = next(iter(importlib.import_module(f"kernels.{room}").VARIANTS))
    return typed(
        f"claims --room {room} --verdict not-reproduced",
        f"claims --id {a.known[0].id}",
        f"compile {room} --variant {variant} --target {jit.TARGETS[0]}",
    )


def typed(*commands: str) -> str:
    """Commands of `python -m artifact` and what they print, as a block of Markdown; run when the page is made, so none
    may need a GPU. Long output is shown by its first lines and its last."""
    return "\n".join(["```console", *(line for c in commands for line in _typed(c)), "```"])


def _typed(command: str) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = cli.main(shlex.split(command))
    lines = [line[:WIDE].rstrip() for line in out.getvalue().splitlines() if line.strip()]
    if len(lines) > SHOWN:
        lines = [*lines[: SHOWN - 2], f"… {len(lines) - SHOWN + 1} more lines", lines[-1]]
    return [f"$ python -m artifact {command}", *lines, f"[exit code {code}]", ""]


def memory(a: Appendix) -> str:
    """What the largest point takes on the GPU and on the host; nothing without records."""
    points = [df[["m", "n", "least_bytes"]] for df in a.measured]
    if not points:
        return ""
    df = pd.concat(points)
    host = (df["least_bytes"] + REFERENCE * df["m"].astype(float) * df["n"]).max()
    card = min(
        float(records.read_machine(a.origin.folder / room).get("memory_bytes", 0))
        for room in records.rooms(a.origin.folder)
    )
    had = f", of which the GPU of these records had {card / 1e9:.0f} GB" if card else ""
    return (
        f"The largest point has operands and output of {df['least_bytes'].max() / 1e9:.1f} GB on the GPU{had}; a dense contender "
        f"needs more. The host holds them too, with a float64 reference: {host / 1e9:.1f} GB at the largest point, by these "
        f"sizes. The least driver is {LEAST_DRIVER}, that of CUDA 13.0, by NVIDIA's release notes."
    )


def deviations(a: Appendix) -> str:
    """What is known to differ between the sources and this artifact, as Markdown."""
    bound = sum(claim.depends_on == load.GPU for claim in a.known)
    known = judge.judge(a.known, a.origin.folder) if a.origin.folder else None
    elsewhere = (
        0 if known is None else int((judge.counted(known)["verdict"] == measures.NOT_CARRIED).sum())
    )
    sources = listed_gpus()
    return (
        f"- **The GPU.** The sources measured on {sources}. {bound} claims depend on the GPU; {elsewhere} of them fail on that of "
        "these records, and are said not to carry over instead of to fail.\n"
        "- **The kernels** are rebuilt after the sources' texts. Where a text leaves something open, the chapter says what was "
        "chosen; where authors' code is public, what it gave here lies apart, below.\n"
        "- **The stopwatch** is this book's: a cold L2, kernels alone, medians. Where a source's protocol differs, both are "
        "measured, and the ledger has two rows.\n"
        f"- **Not tested**: {len(load.untested())} statements, each with its reason, below.\n"
        f"- **From run to run** speedups move: two records agree if the median difference is within {compare.SPEEDUP_TOLERANCE:.0%} "
        f"for speedups and {compare.TIME_TOLERANCE:.0%} for times."
    )


def listed_gpus() -> str:
    """The GPUs that the sources measured on, each once."""
    return ", ".join(dict.fromkeys(gpu for room in rooms.find().values() for gpu in room.gpus))
