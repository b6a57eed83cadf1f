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
from artifact.drawing.pages.appendix import LEDGER, Appendix, each, runs, total
from artifact.drawing.prose import captioned
from artifact.drawing.words import listed
from artifact.measure import minutes, records
from artifact.verdicts import compare, load, measures, page
from kernels import jit

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
    figures, named = load.figures_of(), rooms.find()
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


def timed() -> str:
    """On what the minutes of `tasks` were taken, in a sentence."""
    return (
        f"T1, T2, T3, T6 and T7 were timed on {minutes.WITHOUT_GPU}; T2 from a new clone, T7 with the records of the H100 and "
        f"part of the kernels compiled before. T4 was timed on {minutes.KICKED}, with wheels instead of a package index and few kernels or none compiled "
        "before. T5 is the sum of what the records of each GPU say, each experiment once: the whole of it was "
        "not timed in one go."
    )


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

    def card(gpu: str) -> str:
        machines = [records.read_machine(a.folders[gpu] / r) for r in records.rooms(a.folders[gpu])]
        least = min(float(machine.get("memory_bytes", 0)) for machine in machines)
        return f"{least / 1e9:.0f} GB" if least else ""

    had = f" (what GPUs with records have: {cards})" if (cards := each(a, card)) else ""
    return (
        f"The largest point has operands and output of {df['least_bytes'].max() / 1e9:.1f} GB on the GPU{had}; a dense contender "
        f"needs more. The host holds them too, with a float64 reference: {host / 1e9:.1f} GB at the largest point, by these "
        f"sizes. The least driver is {LEAST_DRIVER}, that of CUDA 13.0, by NVIDIA's release notes."
    )


def deviations(a: Appendix) -> str:
    """What is known to differ between the sources and this artifact, as Markdown."""
    bound = sum(claim.depends_on == load.GPU for claim in a.known)

    def elsewhere(gpu: str) -> str:
        return str(a.verdicts[gpu].get(measures.NOT_CARRIED, 0))

    failed = each(a, elsewhere)
    fail = f" Those that fail on another GPU ({failed}) are said not to carry over." if failed else ""
    return (
        f"- **The GPU.** The sources measured on {listed_gpus()}. {bound} claims depend on the GPU.{fail}\n"
        f"{_long_rooms(a)}"
        "- **The kernels** are rebuilt after the sources' texts. Where a text leaves something open, the chapter says what was "
        "chosen; where authors' code is public, what it gave here lies apart, below.\n"
        "- **The commits.** Records are of the one that their `machine.json` names. `python -m artifact.measure.same_code` compiles the "
        "kernels of each and of this one, and compares the machine code.\n"
        "- **The stopwatch** is this book's: a cold L2, kernels alone, medians. Where a source's protocol differs, both are "
        "measured, and the ledger has two rows.\n"
        f"- **Not tested**: {len(load.untested())} statements, each with its reason, below.\n"
        f"- **From run to run** speedups move: two records agree if the median difference is within {compare.SPEEDUP_TOLERANCE:.0%} "
        f"for speedups and {compare.TIME_TOLERANCE:.0%} for times."
    )


def _long_rooms(a: Appendix) -> str:
    """Rooms whose measurement takes longer than was meant, as an item of a list; nothing where there is none."""

    def longer(gpu: str) -> str:
        first = runs(a.everywhere[gpu])
        took = first.groupby("room")["minutes"].sum() if len(first) else pd.Series(dtype=float)
        known = rooms.find()
        long = took[took > ROOM_MINUTES].sort_values(ascending=False)
        return listed(f"{known[r].name if r in known else r} {m:.1f}" for r, m in long.items())

    said = each(a, longer)
    meant = f"A room was meant to be measured in {ROOM_MINUTES} minutes"
    return f"- **Minutes.** {meant}; these take longer. {said}.\n" if said else ""


def listed_gpus() -> str:
    """The GPUs that the sources measured on, each once."""
    return ", ".join(dict.fromkeys(gpu for room in rooms.find().values() for gpu in room.gpus))
