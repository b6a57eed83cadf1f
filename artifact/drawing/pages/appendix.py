"""The appendix for reviewers: checklist, minutes, verdicts and badges, from the records and the repository."""

from __future__ import annotations

import html
import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from artifact import paths, registry
from artifact.book import facts as facts_
from artifact.book.facts import Fact, under
from artifact.drawing import gpus, prose
from artifact.drawing import systems as systems_
from artifact.drawing.prose import captioned
from artifact.drawing.words import listed
from artifact.measure import minutes, others, records
from artifact.measure.device import slug
from artifact.verdicts import compare, coverage, evidence, judge, load, measures, page
from artifact.which import pool
from kernels import jit

LEDGER = "ledger.html"


@dataclass(frozen=True)
class Appendix:
    """What the page draws from."""

    origin: prose.Origin
    known: list[load.Claim]
    systems: pd.DataFrame
    spent: pd.DataFrame  #: `minutes.durations`; no rows and no columns without records

    @property
    def built(self) -> pd.DataFrame:
        return self.systems[self.systems["state"] != systems_.NOT_BUILT]

    @property
    def not_built(self) -> pd.DataFrame:
        return self.systems[self.systems["state"] == systems_.NOT_BUILT]

    @property
    def first(self) -> pd.DataFrame:
        """`spent` without second runs."""
        return runs(self.spent)

    @property
    def minutes(self) -> float:
        """Of all experiments, once."""
        return total(self.first)

    @cached_property
    def folders(self) -> dict[str, Path]:
        """Name of a GPU -> its records, of every GPU that has some, that of this page first."""
        return gpus.folders(self.origin.folder)

    @cached_property
    def everywhere(self) -> dict[str, pd.DataFrame]:
        """Name of a GPU -> what `spent` is of this page's."""
        own, *others = self.folders or [""]
        found = {gpu: minutes.durations(self.folders[gpu]) for gpu in others}
        return {own: self.spent} | found if own else {}

    @cached_property
    def short(self) -> dict[str, str]:
        """Name of a GPU -> as short as tells them apart."""
        return records.short_gpus(self.folders)

    @cached_property
    def judged(self) -> dict[str, pd.DataFrame]:
        """Name of a GPU -> the verdicts on `known`."""
        return {gpu: judge.judge(self.known, folder) for gpu, folder in self.folders.items()}

    @cached_property
    def verdicts(self) -> dict[str, dict[str, int]]:
        """Name of a GPU -> verdict -> number of claims."""
        return {gpu: judge.counted(df)["verdict"].value_counts().to_dict() for gpu, df in self.judged.items()}

    @cached_property
    def measured(self) -> list[pd.DataFrame]:
        """Records of every room's experiments."""
        folder = self.origin.folder
        return [
            records.read(folder / row.room / f"{row.experiment}.csv")
            for row in self.first.itertuples()
            if row.room != evidence.CEILINGS
        ]


def start(mode: str, gpu: str, folder: str) -> Appendix:
    """folder: the parameter `records`."""
    origin = prose.origin(mode, gpu, folder)
    spent = minutes.durations(origin.folder) if origin.folder else pd.DataFrame()
    return Appendix(origin, load.claims(), systems_.systems(origin.folder), spent)


def runs(spent: pd.DataFrame, repeat: bool = False) -> pd.DataFrame:
    """Those rows of `minutes.durations` that are of first runs, or of second ones."""
    return spent[spent["repeat"] == repeat] if len(spent) else spent


def total(spent: pd.DataFrame) -> float:
    """Minutes."""
    return float(spent["minutes"].sum()) if len(spent) else 0.0


def each(a: Appendix, say: Callable[[str], str], joint: str = "; ", short: bool = False) -> str:
    """What `say` has to say of each GPU that has records, by its name, behind that name or what is left of it."""
    names = a.short if short else {gpu: gpu for gpu in a.folders}
    return joint.join(f"{name}: {said}" for gpu, name in names.items() if (said := say(gpu)))


def roughly(count: float) -> str:
    """Bytes in words, to one digit: two builds of one environment differ by less, and make the same page."""
    return f"about {float(f'{count / 1e9:.1g}'):g} GB"


# ---------------------------------------------------------------- what the text names


def facts(a: Appendix) -> Iterator[Fact]:
    """Yield the systems, how many claims there are, one of them with a point of its room, when records agree, and what
    the records of each GPU say: minutes, verdicts."""
    yield from facts_.each("built", a.built.set_index("room")["name"])
    untested, found = load.untested(), registry.find().values()
    bound = sum(claim.depends_on == load.GPU for claim in a.known)
    yield from under("claims", of_sources=len(load.of_sources(a.known)), untested=len(untested), of_gpu=bound)
    theirs = ", ".join(dict.fromkeys(gpu for room in found for gpu in room.gpus))
    yield from under("sources", gpus=theirs, sections=sum(len(room.sections) for room in found))
    yield from _example(a.known[0])
    yield from under("tolerance", speedups=compare.SPEEDUP_TOLERANCE, times=compare.TIME_TOLERANCE)
    yield from under("exit", agree=compare.AGREE, differ=compare.DIFFER, bad_input=compare.BAD_INPUT)
    yield "pause_minutes", minutes.PAUSE_S / 60
    for gpu, spent in a.everywhere.items():
        yield f"once.{gpu}", total(runs(spent))
        yield f"twice.{gpu}", total(runs(spent, repeat=True))
        yield f"not_carried.{gpu}", a.verdicts[gpu].get(measures.NOT_CARRIED, 0)
        given = {verdict: a.verdicts[gpu].get(verdict, 0) for verdict in measures.VERDICTS}
        yield from facts_.each(f"verdicts.{gpu}", {verdict: count for verdict, count in given.items() if count})


def _example(claim: load.Claim) -> Iterator[Fact]:
    """Yield a claim, the first kernel of its room, a target of the compiler, and a small point as `run` takes it."""
    kernels = importlib.import_module(f"kernels.{claim.room}")
    shape = next(iter(kernels.sweeps("kick").values()))[0]
    point = " ".join(f"{'-' if len(k) == 1 else '--'}{k} {v}" for k, v in shape.items())
    variant = next(iter(kernels.VARIANTS))
    yield from under("example", claim=claim.id, room=claim.room, variant=variant, target=jit.TARGETS[0], point=point)


# ---------------------------------------------------------------- checklist


def checklist(a: Appendix, root: Path = paths.ROOT) -> dict[str, str]:
    """What the template of artifact appendices asks; root: of the repository."""
    return _program(a, root) | _experiments(a) | _availability(root)


def _program(a: Appendix, root: Path) -> dict[str, str]:
    project = _project(root)
    systems = "; ".join(f"{s.name} ({s.format}, {s.precision}, {s.state})" for s in a.systems.itertuples())
    found = pool.pools(a.origin.folder) if a.origin.folder else []
    names = {name for real in found for name in real.df["label"]}
    real = f"; {len(names)} real matrices" if names else ""
    having = listed(gpus.folders(a.origin.folder))
    gpu = f". Records: {having}" if having else ""
    return {
        "Algorithm": f"sparse matrix times dense matrix: {systems}",
        "Program": "CUDA C++ kernels in <code>kernels/</code>, Python harness in <code>artifact/</code>",
        "Compilation": f"NVRTC at run time, for {', '.join(jit.TARGETS)}; compiling needs no CUDA toolkit, no driver and no GPU",
        "Binary": "none is shipped; compiled kernels are cached in <code>build/cubin</code>",
        "Data set": f"matrices made by the source's own generators, from a recorded seed{real}",
        "Run-time environment": f"Linux on x86-64, Python {pythons(project['requires-python'])}, git, make; {_packages(root, 'base.lock')} locked "
        f"packages, {_packages(root, 'gpu.lock')} where there is a GPU, each checked by its hash",
        "Hardware": f"any CPU; to measure, an NVIDIA GPU of the Ampere generation or later. {_portable(a)}{gpu}",
        "Run-time state": "nobody else on the GPU; clocks need not be locked, they are sampled and recorded",
        "Execution": "<code>make artifact</code>; one GPU, one notebook at a time",
        "Metrics": "execution time, useful TFLOP/s, GB/s of least bytes, speedup over the library, relative error",
        "Output": "<code>build/html/</code> (this book), <code>build/records/</code> (CSV), <code>build/figures/</code> (SVG and CSV)",
    }


def _portable(a: Appendix) -> str:
    """How many kernels run on GPUs other than Hopper's, of which rooms."""
    kernels = {
        room: [k for k in importlib.import_module(f"kernels.{room}").VARIANTS.values() if k.entries]
        for room in a.built["room"]
    }
    every = {room: sum(k.targets == jit.TARGETS for k in of) for room, of in kernels.items()}
    each = "; ".join(
        f"{name} {every[room]} of {len(kernels[room])}"
        for name, room in zip(a.built["name"], a.built["room"], strict=True)
    )
    return f"Kernels that run on all of these, the others on Hopper alone: {each}"


def _experiments(a: Appendix) -> dict[str, str]:
    def count(gpu: str) -> str:
        first = runs(a.everywhere[gpu])
        return f"{len(first)} experiments with {first['rows'].sum()} rows" if len(first) else ""

    def took(gpu: str) -> str:
        first = runs(a.everywhere[gpu])
        lacks = len(_missing(a, gpu))
        without = f", without {lacks} experiments that others have" if lacks else ""
        return f"{max(total(first), 1):.0f} min{without}" if len(first) else ""

    in_venv = sys.prefix != sys.base_prefix
    environment = roughly(minutes.size_bytes(sys.prefix)) if in_venv else "of unknown size (not a virtual one)"
    return {
        "Experiments": f"{len(load.of_sources(a.known))} claims, judged from "
        + (f"the records of each GPU. {each(a, count)}" if a.minutes else "no records yet"),
        "Disk space": f"environment of this build {environment}, the build folder and the compiled kernels under a gigabyte; the "
        "GPU's libraries add several",
        "Time to prepare": f"the environment: {minutes.COMMANDS_S['environment']} s on {minutes.WITHOUT_GPU}, with a package index nearby",
        "Time to measure": f"each experiment once. {each(a, took)}" if a.minutes else "not measured yet",
    }


def _availability(root: Path) -> dict[str, str]:
    licence, found = _project(root)["license"], doi(root)
    return {
        "Publicly available": "a Git repository; its licence permits copies. <code>make dist</code> makes the archive that a "
        "public one would hold, the same bytes from the same commit",
        "Code licence": licence,
        "Data licence": f"{licence}, for the records",
        "Workflow framework": "GNU make and papermill",
        "Archived": f"yes, {found}" if found else "not yet: there is no archived copy with a DOI",
    }


def _project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pythons(within: str) -> str:
    """A range of versions of Python in words: ">=3.11,<3.15" is "3.11 to 3.14"."""
    least, past = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", within).groups()
    return f"3.{least} to 3.{int(past) - 1}"


def _packages(root: Path, lock: str) -> int:
    text = (root / "requirements" / lock).read_text(encoding="utf-8")
    return len(re.findall(r"^[a-z0-9].*==", text, re.MULTILINE))


def doi(root: Path = paths.ROOT) -> str:
    """Of the archived copy; nothing where there is none."""
    found = re.search(r"^doi:\s*(\S+)", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


# ---------------------------------------------------------------- minutes


#: What an experiment is known by in every GPU's records.
EXPERIMENT = ["room", "repeat", "experiment"]


@captioned(
    "Which figure comes from which experiment; and for each GPU that has records the minutes that it takes there, with "
    "the seconds of its kernels behind them."
)
def times(a: Appendix) -> pd.DataFrame | None:
    """Which figure comes from where, and what it costs; None without records."""
    if a.spent.empty:
        return None
    spent = pd.concat(a.everywhere.values()).sort_values(EXPERIMENT, kind="stable")
    known = spent.drop_duplicates(EXPERIMENT)
    figures = load.figures_of()
    points = spent.groupby(EXPERIMENT)["points"].agg(lambda of: "/".join(map(str, dict.fromkeys(of))))
    shown = {
        "figure": [figures.get(e.room, {}).get(e.experiment, "–") for e in known.itertuples()],
        "experiment": known["experiment"] + known["repeat"].map({True: " (2nd run)", False: ""}),
        "notebook": [f'<a href="{n}.html">{n}</a>' for n in known["notebook"]],
        "points": list(points.loc[list(known[EXPERIMENT].itertuples(index=False, name=None))]),
    }
    for gpu, df in a.everywhere.items():
        cells = {key: _took(row) for key, row in zip(_keys(df), df.itertuples(), strict=True)}
        shown[f"{a.short[gpu]}: min (s)"] = [cells.get(key, "") for key in _keys(known)]
    return pd.DataFrame(shown)


def _keys(spent: pd.DataFrame) -> list[tuple]:
    return list(spent[EXPERIMENT].itertuples(index=False, name=None)) if len(spent) else []


def _took(row) -> str:
    """Of a row of `minutes.durations`; a dash where its record does not tell the minutes. Short: a page may be narrow."""
    told = minutes.said(row.minutes).replace("under ", "&lt;&nbsp;") if row.told else "–"
    return f"{told} ({row.kernel_s:.1f})"


def _missing(a: Appendix, gpu: str) -> list[tuple]:
    """First runs that some other GPU has records of and this one has none of."""
    every = dict.fromkeys(key for df in a.everywhere.values() for key in _keys(runs(df)))
    return [key for key in every if key not in _keys(a.everywhere[gpu])]


# ---------------------------------------------------------------- nothing skipped


def covered(a: Appendix) -> dict[str, pd.DataFrame]:
    """Source -> its sections, the claims of each with links to the ledger, the experiments that decide, the figures; and
    what no experiment tests, with the reason. Only sources whose room lists their sections."""
    untested, figures = load.untested(), load.figures_of()
    return {
        room.name: _covered(coverage.table(room, a.known, untested, figures.get(room.room, {})), room)
        for room in registry.find().values()
        if room.sections
    }


@captioned(lambda df, room: f"{room.name}, “{room.title}”: sections, claims, experiments, figures.")
def _covered(df: pd.DataFrame, room: registry.Room) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "section": [f"{row.section}<br><small>{html.escape(row.title)}</small>" for row in df.itertuples()],
            "claims": [
                page.links(row.claims, LEDGER) if row.claims else html.escape(row.says) for row in df.itertuples()
            ],
            "experiment": [
                f"<code>{html.escape(row.experiment)}</code>"
                if row.claims
                else f"<em>not tested:</em> {html.escape(row.reason)}"
                for row in df.itertuples()
            ],
            "figure": df["figure"].map(html.escape),
        }
    )


# ---------------------------------------------------------------- the code of others


def theirs(a: Appendix) -> dict[str, str]:
    """What the code of others gave here: source, what and GPU -> how it was made and what of that is not known, as HTML."""
    found = {}
    for room in registry.find().values():
        every = others.find(room.room)
        short = records.short_gpus({measured.gpu for measured in every})
        for measured in every:
            claims = [c for c in a.known if f"{evidence.OTHERS}{measured.name}" in c.experiment]
            mine = [c for c in claims if c.room == room.room]
            where = measured.path().relative_to(paths.ROOT)
            rows = {
                "what": measured.what,
                "whose code": measured.code,
                "commit": measured.commit,
                "build": measured.build,
                "GPU, driver, CUDA": f"{measured.gpu}; {measured.driver}; {measured.cuda}",
                "date": measured.date,
                "how it was timed": measured.protocol,
                "to run it again": measured.again,
            }
            rows = {key: prose.inline_code(text) for key, text in rows.items()}
            rows["numbers"] = f"<code>{where}</code>, {len(measured.table())} rows"
            rows |= {"beside ours": beside} if (beside := _beside(a, measured)) else {}
            rows["claims that it decides"] = page.links([c.id for c in mine], LEDGER) or "none"
            name = f"{room.name}: {measured.name}, {short[measured.gpu]}"
            found[name] = prose.facts(rows, f"{name}.")
    return found


def _beside(a: Appendix, measured: others.Others) -> str:
    """Rates of these records over those of others' code on the same GPU, of contenders that have one name in both."""
    df = measured.table()
    mine = [own for own in a.measured if (own["room"] == measured.room).all()]
    if "tflops" not in df.columns or not mine or slug(measured.gpu) != a.origin.gpu:
        return ""
    at = ["m", "n", "k"]
    own = pd.concat(mine).query("label == ''").drop_duplicates(["variant", *at])
    own = own.assign(dense=2 * own["m"] * own["n"] * own["k"] / own["median_us"] / 1e6)
    both = own.merge(df, left_on=["variant", *at], right_on=["library", *at], suffixes=("", "_theirs"))
    ratio = both["dense"] / both["tflops_theirs"]
    return "rate here over theirs, of two machines of one kind, geometric means: " + listed(
        f"{name} {records.geomean(values):.2f}× at {len(values)} shape{'s' * (len(values) > 1)}"
        for name, values in ratio.groupby(both["variant"])
    )


# ---------------------------------------------------------------- badges


@captioned("What each badge of the ACM asks, and how far this artifact is.")
def badges(a: Appendix, root: Path = paths.ROOT) -> pd.DataFrame:
    """What each badge of the ACM asks, and how far this artifact is."""
    ran = sum(any(e.startswith(evidence.OTHERS) for e in claim.experiment) for claim in a.known)
    archived, missing = doi(root), ", ".join(a.not_built["name"])

    def hold(gpu: str) -> str:
        whole, part = (a.verdicts[gpu].get(v, 0) for v in (measures.REPRODUCED, measures.PARTLY))
        return f"{whole} of {len(load.of_sources(a.known))} claims hold, {part} in part"

    held = f" ({each(a, hold)})" if a.folders else ""
    rows = [
        (
            "Artifacts Available",
            "A copy in a public archive that outlives its authors' web pages, under a DOI or another permanent identifier.",
            f"Met: {archived}."
            if archived
            else "Not yet: licence and citation are there, an archived copy with a DOI is not.",
        ),
        (
            "Artifacts Evaluated – Functional",
            "Documented, consistent with what it claims to be, complete, exercisable, with evidence that it was verified.",
            f"Met for {len(a.built)} of {len(a.systems)} rooms: documented here and beside each kernel, exercised by "
            "<code>make artifact</code> and <code>make test</code>, every number checked against a float64 reference before it "
            f"is recorded. {f'Not complete: {missing} are missing.' if missing else 'Complete.'}",
        ),
        (
            "Artifacts Evaluated – Reusable",
            "Functional, and so carefully documented and structured that others can build on it.",
            "For reviewers to judge. The kernels never import the harness and can be used without it; a room is added without "
            "changing the harness; figures come with their data; one permissive licence.",
        ),
        (
            "Results Reproduced",
            "Others than the authors obtained the main results, with the help of the authors' artifacts.",
            f"Of the sources: in {ran} claims, where the authors' own code was run here and its numbers lie apart from ours; the "
            "kernels of this book are written without code of theirs. Of this artifact: by nobody else yet; "
            "<code>make measure</code> and <code>make compare</code> are the way.",
        ),
        (
            "Results Replicated",
            "Others than the authors obtained the main results independently, without the authors' artifacts.",
            f"Of the sources: this is what the ledger does, with kernels written after the papers{held}. Of this artifact: not yet.",
        ),
    ]
    return pd.DataFrame(rows, columns=["badge", "asks", "here"])
