"""Where each row of the shipped records is from, found in git's history or taken from the folder that was measured.

    python tools/provenance.py                     rows that provenance.csv does not tell of: what history proves
    python tools/provenance.py --ship FRESH        copy FRESH (<build>/records/<gpu>/<system>) over the shipped folder
    python tools/provenance.py --ship FRESH spmm   these experiments alone, also those of FRESH/repeat

Both write the digests of the folders that they change anew. A row belongs to the commit that first brought its numbers.
What the machine.json beside it then said is its provenance,

- if it was written for that commit: its own entry, or one of its list of what was added later that names the file;
- or if the row was measured within half an hour of the start that machine.json tells of;
- or if a later machine.json names the file and a time before that commit.

A commit that is younger than a row did not measure it. All else is "not recorded", but for the day, which rows have.
What a profiler wrote is written whole and has no times: it is of the commit that brought the newest of its rows.
"""

import argparse
import json
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from artifact import paths
from artifact.measure import files
from artifact.measure.files import MACHINE, NOT_RECORDED, PROVENANCE, UNKNOWN, Origin

PLACES = [place.relative_to(paths.ROOT).as_posix() for place in (paths.RECORDED, paths.SCALED)]
#: A session of a folder begins when its machine.json is written, and its first rows come soon.
SESSION = timedelta(minutes=30)
#: What is not the number of a row: names change without a measurement.
NAMES = {"room", "experiment", "variant", "contender", "bound"}
#: Of rows with a time these tell them apart.
TIMED = ("when", "median_us", "q25_us", "m", "n", "k")
#: Files of a profiler.
WHOLE = {"counters.csv", "launches.csv"}


def git(*arguments: str) -> str:
    """Return what git prints."""
    done = subprocess.run(("git", "-C", paths.ROOT, *arguments), capture_output=True, check=True)
    return done.stdout.decode("utf-8", errors="replace")


@cache
def blob(name: str) -> str:
    """Return what git has by this name."""
    return git("cat-file", "blob", name)


def signatures(text: str) -> list[tuple[str, ...]]:
    """Return what of each row of a CSV file tells its numbers apart from all others."""
    rows = files.rows(text)
    columns = [c for c in (rows[0] if rows else {}) if c not in NAMES]
    chosen = TIMED if {*TIMED} <= {*columns} else columns
    return [tuple(row[c] for c in chosen) for row in rows]


def gpu_of(path: str) -> str:
    """Return the GPU in whose folder a file lies."""
    return path.rpartition("/recorded/")[2].partition("/")[0]


@cache
def first() -> dict[tuple, tuple[datetime, str]]:
    """(GPU, signature) -> when a commit first brought it, and which."""
    found: dict[tuple, tuple[datetime, str]] = {}
    log = git(
        "log", "--reverse", "--date-order", "--format=@%H %cI", "--raw", "--no-renames", "--no-abbrev", "--", *PLACES
    )
    for line in log.splitlines():
        if line.startswith("@"):
            commit, when = line[1:].split()
        elif line.startswith(":") and line.endswith(".csv") and not line.endswith((files.FACTS, PROVENANCE)):
            (*_, new, _), path = line.split("\t")[0].split(), line.split("\t")[1]
            for key in {*signatures(blob(new))} if new.strip("0") else ():
                found.setdefault((gpu_of(path), key), (datetime.fromisoformat(when), commit))
    return found


@cache
def entries(commit: str, folder: str) -> tuple[tuple[datetime, str, str, tuple[str, ...]], ...]:
    """Of the machine.json of a folder at a commit: date, commit, driver, and the experiments named, none for all."""
    try:
        machine = json.loads(git("show", f"{commit}:{folder}/{MACHINE}"))
    except subprocess.CalledProcessError:
        return ()
    parts = [(machine, ()), *((x, tuple(x["experiments"])) for x in machine.get("later", ()))]
    return tuple(
        (datetime.fromisoformat(x["date"]), x["commit"], x.get("driver", machine["driver"]), names)
        for x, names in parts
    )


@cache
def ever(folder: str) -> set[tuple[datetime, str, str, tuple[str, ...]]]:
    """All entries that the machine.json of a folder ever had."""
    commits = git("log", "--format=%H", "--", f"{folder}/{MACHINE}").split()
    return {entry for commit in commits for entry in entries(commit, folder)}


@cache
def made(commit: str) -> datetime | None:
    """When a commit was made; None where git does not know it."""
    try:
        return datetime.fromisoformat(git("show", "-s", "--format=%aI", commit.rstrip("+")).strip())
    except subprocess.CalledProcessError:
        return None


def origin(folder: str, name: str, when: datetime | None, brought: tuple[datetime, str]) -> Origin:
    """Return what history proves of a row of a file that a commit brought; when: it was measured, if it says so."""
    landed, commit = brought
    named = {Path(name).stem, *Path(name).parts[:-1]} | ({"counters"} if "profiles" in name else set())
    here, before = entries(commit, folder), entries(f"{commit}^", folder)
    new = [e for e in here if e not in before and (not e[3] or named & {*e[3]})]
    soon = [e for e in here if when and not e[3] and timedelta() <= when - e[0] <= SESSION]
    told = [e for e in ever(folder) if named & {*e[3]} and e[0] <= landed]
    # One that names the file says more than the machine.json as a whole.
    for chosen in ([e for e in new if e[3]], new, soon, told):
        proven = [e for e in chosen if not when or made(e[1]) is None or made(e[1]) <= when]
        if proven:
            date, code, driver, _ = max(proven)
            return code, driver, (when or date).date().isoformat()
    return *UNKNOWN[:2], when.date().isoformat() if when else NOT_RECORDED


def from_history(folder: Path, path: Path) -> list[Origin]:
    """Return the origin of each row of a shipped file."""
    text, gpu = path.read_text(encoding="utf-8"), gpu_of(path.as_posix())
    rows = files.rows(text)
    now = datetime.now().astimezone(), "HEAD"
    brought = [first().get((gpu, key), now) for key in signatures(text)]
    if path.name in WHOLE:
        brought = [max(brought)] * len(brought)
    place, name = folder.relative_to(paths.ROOT).as_posix(), path.relative_to(folder).as_posix()
    times = [datetime.fromisoformat(row["when"]) if row.get("when") else None for row in rows]
    return [origin(place, name, when, of) for when, of in zip(times, brought, strict=True)]


def told(folder: Path, path: Path) -> list[Origin]:
    """Return the origins that a folder's provenance.csv has of a file's rows; if it has none, the machine's."""
    machine = json.loads((folder / MACHINE).read_text(encoding="utf-8"))
    new = files.origins("", path.read_text(encoding="utf-8"), (), machine["commit"], machine["driver"])
    return files.provenance(folder).get(path.relative_to(folder).as_posix()) or list(new)


def history() -> None:
    """Fill in what is not told of shipped rows."""
    for folder in sorted(path.parent for place in PLACES for path in (paths.ROOT / place).rglob(MACHINE)):
        here, known = files.kept(folder), files.provenance(folder)
        new = {
            name: from_history(folder, path)
            for name, path in here.items()
            if name.endswith(".csv") and name != PROVENANCE and name not in known
        }
        files.seal(folder, known | new, [*here])
        for name, of in new.items():
            print((folder / name).relative_to(paths.ROOT), *(f"{len([*r])}: {' '.join(o)};" for o, r in groupby(of)))


def ship(fresh: Path, experiments: list[str]) -> None:
    """Copy records with what is told of them over the shipped folder of the same GPU and system."""
    for source in sorted(path.parent for path in fresh.rglob(MACHINE)):
        target = paths.RECORDED / fresh.parent.name / fresh.name / source.relative_to(fresh)
        chosen = {n: p for n, p in files.kept(source).items() if n != PROVENANCE}
        if experiments:
            chosen = {n: p for n, p in chosen.items() if {Path(n).stem, *Path(n).parts[:-1]} & {*experiments}}
        if not chosen:
            continue
        target.mkdir(parents=True, exist_ok=True)
        if not experiments or not (target / MACHINE).exists():
            shutil.copyfile(source / MACHINE, target / MACHINE)
        for name, path in chosen.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
        for plan in ("plan.json", "absent.json"):  # of chosen experiments, theirs alone
            if experiments and (source / plan).exists():
                merge(source / plan, target / plan, experiments)
        new = {n: told(source, p) for n, p in chosen.items() if n.endswith(".csv")}
        files.seal(target, files.provenance(target) | new, [*files.kept(target)])
        print(target.relative_to(paths.ROOT), *chosen)


def merge(source: Path, target: Path, experiments: list[str]) -> None:
    """Take what a plan, or a list of what is absent, says of experiments into another."""
    new = json.loads(source.read_text(encoding="utf-8"))
    old = json.loads(target.read_text(encoding="utf-8")) if target.exists() else type(new)()
    if isinstance(new, dict):
        both = dict(sorted((old | {x: new[x] for x in experiments if x in new}).items()))
    else:
        both = [x for x in old if x["experiment"] not in experiments]
        both = sorted(both + [x for x in new if x["experiment"] in experiments], key=lambda x: x["experiment"])
    files.write_json(target, both)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ship", type=Path, metavar="FRESH", help="folder of a system's fresh records")
    parser.add_argument("experiments", nargs="*", help="with --ship: these alone")
    given = parser.parse_args()
    ship(given.ship, given.experiments) if given.ship else history()
