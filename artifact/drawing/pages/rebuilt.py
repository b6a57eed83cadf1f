"""The page of a system on what was rebuilt and how to dispute it, and by which protocols the sources measured.

A system's rebuilt.md says in prose what was rebuilt of its source and what not. Its rebuilt.toml has the source's
[protocol], in the parts that book/pages/protocol.md has, [here] where the system's own differs from the book's, and a
[[choice]] for each place where the source is silent: `name`, `where` in the source, what it leaves `open`, what was
chosen `here`, `why`, and what changes `otherwise`. Both are templates over the facts that are shipped for the home GPU,
over `speedup(of, over, *experiments)` and `counter(metric, of, *experiments)` of its records, with columns=values of
the rows that count. Its replies.toml has a
[[reply]] for each answer to a verdict: the `claim`, `by` whom, `date` and `text`. A system without a rebuilt.md has no
such page, one without a protocol no row among the others'.
"""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from artifact import paths, registry
from artifact.book import facts, text
from artifact.drawing import provenance
from artifact.drawing.pages import method
from artifact.measure import records
from artifact.verdicts import anchors, evidence, judge, load

CHOICE = registry.keys(dict.fromkeys(("name", "where", "open", "here", "why", "otherwise"), str), {})
REPLY = registry.keys(dict.fromkeys(("claim", "by", "text"), str) | {"date": date}, {})
SCHEMA = registry.keys(
    {},
    {
        **dict.fromkeys(("protocol", "here"), dict[str, str]),
        "choice": list[CHOICE],  # type: ignore[valid-type]
        "reply": list[REPLY],  # type: ignore[valid-type]
    },
)


def pages() -> dict[str, str]:
    """Return system -> name of its page, of those that have one."""
    return {room: f"rebuilt_{room}" for room in registry.find() if (registry.FOLDER / room / "rebuilt.md").is_file()}


def of(system: str) -> dict[str, Any]:
    """Return what a system's rebuilt.toml and replies.toml say.

    Raises ValueError, one sentence, for a key that is missing or unknown, and for a reply to what is no claim.
    """
    files = [path for name in ("rebuilt", "replies") if (path := registry.FOLDER / system / f"{name}.toml").is_file()]
    made = registry.checked(SCHEMA, {k: v for path in files for k, v in registry.toml(path).items()}, files)
    known = [claim.id for claim in load.claims() if claim.room == system]
    for reply in (reply for reply in made.get("reply", ()) if reply["claim"] not in known):
        raise ValueError(
            f"{files[-1]}: {reply['claim']!r}, to which {reply['by']} replies, is no claim of this system."
        )
    return made


def page(system: str, root: Path = paths.RECORDED) -> str:
    """Return the Markdown of a system's page, with numbers of the home GPU's records in `root`."""
    made, gpu, name = of(system), root / paths.HOME, registry.find()[system].name
    e, shipped = evidence.Evidence(gpu, system), gpu / system / facts.FILE
    known: dict[str, Any] = {
        **dict(facts.read(shipped) if shipped.is_file() else ()),
        "gpu": provenance.name(gpu),
        "speedup": lambda of, over, *named, **at: records.geomean(e.only(at).ratio(named, of, over)),
        "counter": lambda metric, of, *named, **at: e.only(at).counter(of, metric, named).median(),
    }
    rows = protocols(root).set_index("who").T.reindex(columns=[name, "this book"]).fillna("not said")
    rows.update(pd.Series(made.get("here", {}), name="this book", dtype=str))
    rows = rows.set_axis(["the source", "here"], axis=1).set_axis(rows.index.str.replace("_", " ")).rename_axis("")
    known |= {
        "prose": text.rendered((registry.FOLDER / system / "rebuilt.md").read_text(encoding="utf-8"), known),
        "choices": [{key: text.rendered(said, known) for key, said in c.items()} for c in made.get("choice", ())],
        "protocol": judge.table(rows.reset_index()),
        "fidelity": fidelity(system, root),
        "stated": evidence.stated,
        "near": anchors.FACTOR - 1,
        "replies": made.get("reply", ()),
        "system": vars(registry.find()[system]),
    }
    return text.page("rebuilt")("page", known.items())


def fidelity(system: str, root: Path = paths.RECORDED) -> Iterator[tuple[anchors.Anchor, anchors.Held | None, str]]:
    """Yield each anchor of a system, what came of it, and the GPU that decides the system's claims, by whose records."""
    named = load.anchors(system)
    folders = provenance.folders(root / paths.HOME, root) if named else {}
    judged = judge.everywhere([claim for claim in load.claims() if claim.room == system], folders)
    for anchor in named:
        gpu = judge.decider(judged, system)
        yield anchor, anchors.held(anchor, evidence.Evidence(folders[gpu], system), judge.of_kind(system, gpu)), gpu


def protocols(root: Path = paths.RECORDED) -> pd.DataFrame:
    """Return the protocol of this book and of each source that states one, a row each."""
    said, gpu = text.page("protocol"), root / paths.HOME
    machines = [records.read_machine(gpu / system) for system in records.systems(gpu)]
    said.add([*method.facts(root), *facts.flat({"machine": {k: v for m in machines for k, v in m.items()}})])
    stated = {system.name: of(room).get("protocol") for room, system in registry.find().items()}
    rows = {"this book": {block: said(block) for block in said.blocks}} | {k: v for k, v in stated.items() if v}
    return pd.DataFrame.from_dict(rows, "index").fillna("not said").rename_axis("who").reset_index()
