"""The appendix for reviewers: facts of its checklist and text, minutes, contributions, coverage, the code of others."""

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from artifact import paths, registry
from artifact.book import facts as facts_, text
from artifact.drawing import provenance
from artifact.drawing.pages import front
from artifact.measure import device, durations, external, records
from artifact.recommend import landscape
from artifact.verdicts import compare, evidence, judge, load, measures
from kernels import jit

LEDGER = "ledger.html"
#: Lines of a command's output that a transcript shows, and characters of a line.
SHOWN, WIDE = 14, 80
#: What is said of a condition.
HOLDS = {True: "holds", False: "does not hold", None: "not known"}
#: What an experiment is known by in every GPU's records.
EXPERIMENT = ["room", "repeat", "experiment"]
_NO_ROWS = pd.DataFrame(columns=[*EXPERIMENT, "notebook", "points", "rows", "minutes", "told", "kernel_s"])


class Appendix:
    """What the page draws from: the records of every GPU, that of this page first, and the verdicts on `known`."""

    def __init__(self, origin: provenance.Origin, known: list[load.Claim] | None = None) -> None:
        self.origin = origin
        self.known = load.claims() if known is None else known
        #: Name of a GPU -> its records; the name, as short as tells them apart.
        self.folders = provenance.folders(origin.folder)
        self.short = records.short_gpus(self.folders)
        #: Name of a GPU -> how long each of its experiments took, with second runs and without; verdicts.
        self.spent = {gpu: pd.concat([_NO_ROWS, durations.durations(at)]) for gpu, at in self.folders.items()}
        self.first = {gpu: df[~df["repeat"].astype(bool)] for gpu, df in self.spent.items()}
        self.judged = judge.everywhere(self.known, self.folders)

    @cached_property
    def measured(self) -> pd.DataFrame:
        """Records of every system's experiments on this page's GPU."""
        first = next(iter(self.first.values()), _NO_ROWS).query("room != @evidence.CEILINGS")
        files = [Path(str(self.origin.folder), row.room, f"{row.experiment}.csv") for row in first.itertuples()]
        return pd.concat(map(records.read, files)) if files else pd.DataFrame(columns=list(records.COLUMNS))


# ---------------------------------------------------------------- what the text names


def facts(a: Appendix, root: Path = paths.ROOT) -> Iterator[facts_.Fact]:
    """Yield what the text names.

    Systems, claims and commands, the repository's, and what each GPU's records hold. root: of the repository.
    """
    systems, example, offered = registry.find(), a.known[0], {}
    for s in front.systems(a.origin.folder).itertuples():
        own = [k for k in importlib.import_module(f"kernels.{s.room}").VARIANTS.values() if k.entries]
        offered[s.room] = {key: getattr(s, key) for key in ("name", "format", "precision", "state")} | {
            "kernels": len(own),
            "everywhere": sum(kernel.targets == jit.TARGETS for kernel in own),
        }
    kernels = importlib.import_module(f"kernels.{example.room}")
    shape = next(iter(kernels.sweeps("kick").values()))[0]
    pools = landscape.pools(a.origin.folder) if a.origin.folder else []
    named = {name: systems[name].name if name in systems else name for df in a.first.values() for name in df["room"]}
    df = a.measured
    host = df["least_bytes"] + 8 * df["m"].astype(float) * df["n"]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (least, past), *_ = re.findall(r">=3\.(\d+),<3\.(\d+)", project["requires-python"])
    locks = {name: (root / "requirements" / f"{name}.lock").read_text(encoding="utf-8") for name in ("base", "gpu")}
    #: To one digit: two builds of one environment differ by less, and make the same page.
    size_bytes = sum(f.lstat().st_size for f in Path(sys.prefix).rglob("*") if not f.is_dir())
    size = f"about {float(f'{size_bytes / 1e9:.1g}'):g} GB"
    found = re.search(r"^doi:\s*(\S+)", (root / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    yield from facts_.flat(
        {
            "systems": offered,
            "claims": {
                "of_sources": sum(not claim.aside for claim in a.known),
                "untested": len(load.untested()),
                "of_gpu": sum(claim.depends_on == load.GPU for claim in a.known),
                "by_others": sum(any(e.startswith(evidence.OTHERS) for e in claim.experiment) for claim in a.known),
            },
            "tally": judge.reconciled(judge.deciding(a.judged)).set_index("what")[:"the tally"] if a.judged else {},
            "sources": {
                "gpus": ", ".join(dict.fromkeys(gpu for system in systems.values() for gpu in system.gpus)),
                "sections": sum(len(system.sections) for system in systems.values()),
            },
            "example": {
                "claim": example.id,
                "room": example.room,
                "variant": next(iter(kernels.VARIANTS)),
                "target": jit.TARGETS[0],
                "point": " ".join(f"{'-' if len(key) == 1 else '--'}{key} {value}" for key, value in shape.items()),
            },
            "matrices": len({name for real in pools for name in real.df["label"]}),
            "targets": ", ".join(jit.TARGETS),
            "tolerance": {"speedups": compare.SPEEDUP_TOLERANCE, "times": compare.TIME_TOLERANCE},
            "exit": {"agree": compare.AGREE, "differ": compare.DIFFER, "bad_input": compare.BAD_INPUT},
            "took": {
                name: durations.said(s / 60)
                for name, s in (durations.COMMANDS_S | {"again": durations.AGAIN_S}).items()
            },
            "environment_s": durations.COMMANDS_S["environment"],
            "kicks": {gpu: durations.said(s / 60) for gpu, s in durations.KICK_S.items()},
            "timed": {"without_gpu": durations.WITHOUT_GPU, "kicked": durations.KICKED},
            "pause_minutes": durations.PAUSE_S / 60,
            #: The least that runs what the lock files install, by NVIDIA's release notes of CUDA 13.0.
            "least_driver": "580",
            #: In which all experiments of a system were meant to be measured once.
            "room_minutes": 8,
            "gpus": {gpu: _of_gpu(a, gpu) for gpu in a.folders},
            "measured": named,
            #: The memory that the largest point takes, on the GPU and, with a float64 reference, on the host.
            "largest": {"gpu_gb": df["least_bytes"].max() / 1e9, "host_gb": host.max() / 1e9} if len(df) else {},
            "pythons": f"3.{least} to 3.{int(past) - 1}",
            "packages": {name: len(re.findall(r"^[a-z0-9].*==", lock, re.MULTILINE)) for name, lock in locks.items()},
            "environment": size if sys.prefix != sys.base_prefix else "of unknown size (not a virtual one)",
            "licence": project["license"],
            "archived": f"yes, {found[1]}" if found else "not yet: there is no archived copy with a DOI",
        }
    )


def _of_gpu(a: Appendix, gpu: str) -> dict[str, Any]:
    """Return the memory of a GPU, its verdicts, and how much was measured on it in how many minutes."""
    first, folder, given = a.first[gpu], a.folders[gpu], judge.counts(a.judged[gpu])
    machines = [records.read_machine(folder / system) for system in records.systems(folder)]
    took = first.groupby("room")["minutes"].sum().sort_values(ascending=False).astype(float)
    return {
        "short": a.short[gpu],
        "memory_gb": min(machine.get("memory_bytes", 0) for machine in machines) / 1e9,
        "verdicts": given,
        "facts": sum(given.values()),
        "holds": sum(given.get(verdict, 0) for verdict in measures.HOLDS),
        "partly": given.get(measures.PARTLY, 0),
        "not_carried": given.get(measures.NOT_CARRIED, 0),
        "experiments": len(first),
        "rows": first["rows"].sum(),
        "missing": len(pd.concat(list(a.first.values()))[EXPERIMENT].drop_duplicates()) - len(first),
        "once": first["minutes"].sum(),
        "twice": a.spent[gpu]["minutes"].sum() - first["minutes"].sum(),
        "longest": took.max(),
        "took": took,
    }


# ---------------------------------------------------------------- contributions and minutes


def contributions(a: Appendix, *ids: str) -> pd.DataFrame:
    """Return C1 … of the sources: what is claimed, the experiment and the source's figure.

    What is stated, what the records of each GPU gave and in how many minutes, and the thresholds by which a rerun is
    judged.
    """
    claims, figures = {claim.id: claim for claim in a.known}, load.figures_of()
    on, rows = {gpu: df.set_index("id").to_dict("index") for gpu, df in a.judged.items()}, []
    for number, claim in enumerate((claims[i] for i in ids), 1):
        drawn = dict.fromkeys(figures[claim.room][e] for e in claim.experiment if e in figures[claim.room])
        took = {gpu: durations.said(load.took(claim, folder)) for gpu, folder in a.folders.items()}
        here = [own[claim.id] | {"gpu": a.short[gpu], "took": took[gpu]} for gpu, own in on.items()]
        rows.append(
            {
                "number": f"C{number}",
                "claim": text.part("worded", claim.id, claim.says, LEDGER, claim.source),
                "tried": text.part("tried", claim.experiment, ", ".join(drawn) or claim.where),
                "here": text.part("given", claim.published, here, judge.written(claim.rule.written["expect"])),
            }
        )
    return pd.DataFrame(rows)


def times(a: Appendix) -> pd.DataFrame | None:
    """Return which figure comes from where, and what it costs on each GPU; None without records."""
    if not a.spent:
        return None
    spent, figures = pd.concat([df.assign(gpu=gpu) for gpu, df in a.spent.items()]), load.figures_of()
    told = spent["minutes"].map(durations.said).where(spent["told"].astype(bool), "–")
    spent = spent.assign(cell=told + spent["kernel_s"].map(" ({:.1f})".format)).sort_values(EXPERIMENT, kind="stable")
    cells = spent.pivot(index=EXPERIMENT, columns="gpu", values="cell").fillna("")
    known = spent.drop_duplicates(EXPERIMENT).set_index(EXPERIMENT)
    points = spent.groupby(EXPERIMENT)["points"].agg(lambda of: "/".join(map(str, dict.fromkeys(of))))
    shown = {
        "figure": [figures.get(system, {}).get(experiment, "–") for system, _, experiment in known.index],
        "experiment": [f"{experiment} (2nd run)" if again else experiment for _, again, experiment in known.index],
        "notebook": [text.part("link", f"{name}.html", name) for name in known["notebook"]],
        "points": points.loc[known.index].tolist(),
    }
    return pd.DataFrame(shown | {f"{a.short[gpu]}: min (s)": cells.loc[known.index, gpu].tolist() for gpu in a.spent})


def typed(*commands: str) -> str:
    """Return commands of `python -m artifact` and what they print, as a block of Markdown.

    Run when the page is made, so none may need a GPU. Long output is shown by its first lines and its last.
    """
    shown: list[str] = []
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "artifact", *shlex.split(command)],
            cwd=paths.ROOT,
            capture_output=True,
            encoding="utf-8",
        )
        lines = [line[:WIDE].rstrip() for line in done.stdout.splitlines() if line.strip()]
        if len(lines) > SHOWN:
            lines = [*lines[: SHOWN - 2], f"… {len(lines) - SHOWN + 1} more lines", lines[-1]]
        shown += [f"$ python -m artifact {command}", *lines, f"[exit code {done.returncode}]", ""]
    return "\n".join(["```console", *shown, "```"])


# ---------------------------------------------------------------- nothing skipped


def covered(a: Appendix) -> Iterator[tuple[list[facts_.Fact], pd.DataFrame]]:
    """Yield a source's name and title, and its sections.

    The claims of each with links to the ledger, the experiments that decide, the figures; and what no experiment
    tests, with the reason. Only sources whose system lists sections.
    """
    untested, figures = load.untested(), load.figures_of()
    for system in registry.find().values():
        if system.sections:
            df = judge.coverage(system, a.known, untested, figures.get(system.room, {}))
            rows = df.to_dict("records")
            cells = {name: [text.part(f"covered_{name}", row) for row in rows] for name in ("section", "claims", "by")}
            yield [("source.name", system.name), ("source.title", system.title)], df.assign(**cells)


def conditions(a: Appendix) -> pd.DataFrame:
    """Return a row for each condition under which an explanation stands.

    Chapter, block, condition, and on each GPU whether it holds.
    """
    systems, rows = dict(text.chapters()), []
    known = {(gpu, system): _facts(folder, system) for gpu, folder in a.folders.items() for system in systems}
    for system, name in text.chapters():
        texts = {gpu: text.Text(text.chapter(system, name).template, dict(known[gpu, system])) for gpu in a.folders}
        for block, condition in text.conditions(system, name):
            said = {a.short[gpu]: HOLDS[text.holds(made, condition)] for gpu, made in texts.items()}
            rows.append({"chapter": registry.find()[system].name, "block": block, "condition": f"`{condition}`"} | said)
    return pd.DataFrame(rows)


def _facts(folder: Path, system: str) -> list[facts_.Fact]:
    """Return a system's facts: those that lie beside shipped records, else made of the records, if there are some."""
    if folder.parent == paths.RECORDED and (shipped := folder / system / facts_.FILE).is_file():
        return facts_.read(shipped)
    return facts_.of(system, folder.name, folder.parent) if system in records.systems(folder) else []


# ---------------------------------------------------------------- the code of others


def theirs(a: Appendix) -> Iterator[Markup]:
    """Yield what the code of others gave here, source by source and GPU by GPU.

    How it was made and what of that is not known, as HTML.
    """
    for system in registry.find().values():
        every = external.find(system.room)
        short = records.short_gpus({measured.gpu for measured in every})
        for measured in every:
            name = f"{evidence.OTHERS}{measured.name}"
            claims = [claim.id for claim in a.known if name in claim.experiment and claim.room == system.room]
            said = {
                "what": measured.what,
                "whose code": measured.code,
                "commit": measured.commit,
                "options": measured.options,
                "GPU, driver, CUDA": f"{measured.gpu}; {measured.driver}; {measured.cuda}",
                "date": measured.date,
                "how it was timed": measured.protocol,
                "numbers": f"`{measured.path().relative_to(paths.ROOT)}`, {len(measured.table())} rows",
                "beside ours": _beside(a, measured),
            }
            rows = {key: text.code(told) for key, told in said.items() if told} | {
                "claims that it decides": text.part("links", claims, LEDGER) if claims else escape("none")
            }
            yield text.part("facts", rows, f"{system.name}: {measured.name}, {short[measured.gpu]}.")


def _beside(a: Appendix, measured: external.Others) -> str:
    """Say the rates of these records over those of others' code on the same GPU.

    Only of contenders that have one name in both; nothing where there are none.
    """
    df, at = measured.table(), ["m", "n", "k"]
    own = a.measured.query("room == @measured.room and label == ''").drop_duplicates(["variant", *at])
    if "tflops" not in df.columns or own.empty or device.slug(measured.gpu) != a.origin.gpu:
        return ""
    own = own.assign(dense=2 * own["m"] * own["n"] * own["k"] / own["median_us"] / 1e6)
    both = own.merge(df, left_on=["variant", *at], right_on=["library", *at], suffixes=("", "_theirs"))
    ratios = (both["dense"] / both["tflops_theirs"]).groupby(both["variant"])
    return "rate here over theirs, of two machines of one kind, geometric means: " + text.listed(
        [f"{name} {records.geomean(of):.2f}× at {len(of)} shape{'s' * (len(of) > 1)}" for name, of in ratios]
    )
