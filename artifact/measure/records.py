"""Records of measurements: one CSV per experiment, one row per (variant, shape, density).

    <root>/<gpu slug>/<room>/<experiment>.csv          the measurement
    <root>/<gpu slug>/<room>/repeat/<experiment>.csv   the same measurement a second time
    <root>/<gpu slug>/<room>/machine.json              the machine that both were measured on
    <root>/<gpu slug>/<room>/plan.json                 how many points and rows each record is to have
    <root>/<gpu slug>/<room>/counters.csv              hardware counters of the profiler
    <root>/<gpu slug>/<room>/counters.json             the GPU and the checksum of counters.csv

`COLUMNS` says what every column means, in which unit, and which values it may hold. Reading is
strict: a file that is truncated, incomplete or foreign, that contradicts itself or lies where it
does not belong, is a ValueError of one sentence that names the file, the row (as a spreadsheet
counts: the header is row 1) and the column. Which GPU records are of is said by machine.json; a
folder that is named after another is refused. Writing is atomic: a reader sees the old file or the
new one.
"""

import csv
import functools
import hashlib
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import check
from artifact.measure.device import slug


@dataclass(frozen=True)
class Column:
    """One column of a record. `kind` is text, int, float, flag or time; numbers, and years of a time, lie
    in [least, most]."""

    kind: str
    unit: str
    means: str
    least: float = 0
    most: float = math.inf
    optional: bool = False  # text may be empty, a float may be NaN
    late: bool = False  # records from before this column lack it, and have NaN when they are read


COLUMNS: dict[str, Column] = {
    "room": Column("text", "", "folder under kernels/ that was measured"),
    "experiment": Column("text", "", "sweep of that room; also the name of the file"),
    "variant": Column("text", "", "kernel of the room, or a library's algorithm such as cusparse_alg2"),
    "label": Column("text", "", "name of a real matrix or of a pattern; empty for the usual one", optional=True),
    "m": Column("int", "rows", "rows of A and of C"),
    "n": Column("int", "columns", "columns of B and of C"),
    "k": Column("int", "columns", "columns of A, rows of B"),
    "density": Column("float", "fraction", "nominal share of nonzeros, S/100; nnz has the true one", most=1),
    "nnz": Column("int", "elements", "stored elements of the sparse operand", least=1),
    "seed": Column("int", "", "seed of the operands"),
    "median_us": Column("float", "µs", "median time of one launch or call"),
    "q25_us": Column("float", "µs", "lower quartile of the same samples"),
    "q75_us": Column("float", "µs", "upper quartile of the same samples"),
    "samples": Column("int", "launches", "launches or calls behind the median", least=1),
    "flops_def": Column("text", "", "definition of useful FLOPs, e.g. 2*nnz*n"),
    "useful_flops": Column("float", "FLOP", "useful floating-point operations of one launch"),
    "tflops": Column("float", "TFLOP/s", "useful_flops / median"),
    "least_bytes": Column("float", "B", "compulsory traffic: each operand read once, C written once"),
    "requested_bytes": Column("float", "B", "traffic if no read were served by a cache"),
    "gbps": Column("float", "GB/s", "least_bytes / median"),
    "rel_err": Column("float", "", "norm of (C - reference) over norm of reference, float64 reference"),
    "max_err": Column("float", "", "largest element-wise error against the same reference"),
    "bound": Column(
        "float",
        "",
        "largest error of an element over what rounding explains of it; empty if nobody said",
        most=1,
        optional=True,
        late=True,
    ),
    "prepare_ms": Column("float", "ms", "preprocessing before the first launch, not part of the median"),
    "prepare_bytes": Column("float", "B", "device memory that the preprocessing added"),
    "graph": Column("flag", "", "whether the launch was replayed from a captured CUDA graph"),
    "sm_mhz": Column("float", "MHz", "SM clock while timing; empty if NVML did not say", most=1e4, optional=True),
    "power_w": Column("float", "W", "board power while timing; empty if NVML did not say", most=1e4, optional=True),
    "throttle": Column("text", "", "NVML's throttle reasons while timing", optional=True),
    "gpu": Column("text", "", "GPU that the row was measured on"),
    "when": Column("time", "UTC", "when the row was measured, ISO-8601 with its offset", least=2020),
}

POINT = ("label", "m", "n", "k", "density")  # what a measurement is of, whoever computed it
KEY = ("variant", *POINT)  # one row of a file
ONE_PER_FILE = (
    "room",
    "experiment",
    "gpu",
    "seed",
)  # a file that mixes these was put together from two
#: What is the same in all rows of a point, whoever computed it: they are of the problem.
PROBLEM = ("nnz", "flops_def", "useful_flops", "least_bytes", "requested_bytes")
#: Definitions of useful FLOPs that a row's own columns give.
FLOPS = {
    "2·nnz·N": lambda row: 2 * row["nnz"] * row["n"],
    "2·M·N·K": lambda row: 2 * row["m"] * row["n"] * row["k"],
}
#: rate -> what it is the rate of, and that per microsecond in the rate's unit
RATES = {"tflops": ("useful_flops", 1e6), "gbps": ("least_bytes", 1e3)}
#: Error limits of 8-bit operands, which labels tell from all others. That of an element counts only where `bound` does
#: not say what it was held to.
EIGHT_BITS, EIGHT_LIMITS = "e4m3", ("fp8", "fp8_e4m3")
USUAL = "usual"  # in a room's `limits`: of the experiments that it does not name
CEILINGS = "ceilings"  # room and experiment of the microbenchmarks
RATE_TOLERANCE = 1e-6  # relative; a record keeps every digit, one that was rounded by hand some

COUNTER_CELLS: dict[str, Column] = {
    **{name: COLUMNS[name] for name in ("variant", "m", "n", "k", "density")},
    "metric": Column("text", "", "what ncu calls the counter"),
    "value": Column("float", "", "its value, in `unit`"),
    "unit": Column("text", "", "unit of the value, as ncu says it", optional=True),
}
COUNTER_COLUMNS = tuple(COUNTER_CELLS)
COUNTER_KEY = ("variant", "m", "n", "k", "density", "metric")  # one row of the counters
MACHINE = "machine.json"
PLAN = "plan.json"
ABSENT = "absent.json"  # rows that a record does not have, each with the reason
ABSENT_CELLS = {name: COLUMNS[name] for name in ("experiment", *KEY)} | {"why": Column("text", "", "the reason")}
REPEAT = "repeat"  # folder of the second measurement, in that of the first
#: ... and the folder of those with other versions of a library, each in a folder of its version's name.
LIBRARIES = "libraries"
COUNTERS = "counters"  # <room>/counters.csv: hardware counters from the profiler, tidy
FACTS = "facts"  #: what is said of a room's records by name, made from them

#: Beside it: the GPU, the number of rows and the checksum of the text; neither a part nor another GPU's is read.
ABOUT = Column("text", "", "GPU, or SHA-256 of the text with \\n at the end of lines")
COUNTERS_ABOUT = {"gpu": ABOUT, "rows": Column("int", "rows", "of counters.csv"), "sha256": ABOUT}

#: What a machine.json holds at least, and of which kind.
MACHINE_KEYS = dict.fromkeys(("gpu", "slug", "date", "commit", "driver", "cuda", "python"), str) | {"packages": Mapping}
#: In a machine.json, a list: which experiments were added on the same machine by another commit, and when.
LATER = "later"
LATER_KEYS = {"experiments": list, "date": str, "commit": str, "sources": str}
DAYS = 366  # from the last date in a machine.json to rows of its records, at most
#: Names and texts that reach pages; a GPU has no others.
NAME = re.compile(r'[^<>"\x00-\x1f\x7f]*')


# ---------------------------------------------------------------- validation


def _parse(text: str, column: Column):
    """The value of one cell, or ValueError with what is wrong with it (without file, row and
    column)."""
    if column.kind in ("text", "time"):
        if not text and not column.optional:
            raise ValueError("the cell is empty")
        if column.kind == "time":
            try:
                offset = datetime.fromisoformat(text).utcoffset()
            except ValueError:
                raise ValueError(f"{text!r} is not an ISO-8601 time") from None
            if offset is None or offset.total_seconds() != 0:
                raise ValueError(f"{text!r} is not a time in UTC with its offset")
            if datetime.fromisoformat(text).year < column.least:
                raise ValueError(f"{text!r} is before {column.least}")
        if not NAME.fullmatch(text):
            raise ValueError(f"{text!r} has a character that no name has")
        return text
    if column.kind == "flag":
        if text not in ("True", "False"):
            raise ValueError(f"{text!r} is neither True nor False")
        return text == "True"
    if text.strip().lower() in ("", "nan") and column.optional:
        return math.nan
    try:
        value = int(text) if column.kind == "int" else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {'a whole number' if column.kind == 'int' else 'a number'}") from None
    most = min(column.most, np.iinfo(np.int64).max) if column.kind == "int" else column.most
    if column.kind == "float" and not math.isfinite(value):
        raise ValueError(f"{text!r} is not finite")
    if not column.least <= value <= most:
        limit = f"under {column.least:g}" if value < column.least else f"over {most:g}"
        raise ValueError(f"{text} is {limit}")
    return value


def _refuse(name: str | Path, row: int, column: str, what: str):
    raise ValueError(f"{name}: row {row}, column {column!r}: {what}.")


def _table(text: str, name: str, columns: Mapping[str, Column], what: str) -> list[dict]:
    """The rows of a CSV text, every cell parsed; `name` is what errors call the file, `what` what it
    should be."""
    try:
        lines = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        _refuse(name, 1, next(iter(columns)), f"this is no CSV file ({error})")
    header = lines[0] if lines else []
    for column, about in columns.items():
        if column not in header and not about.late:
            _refuse(name, 1, column, f"the column is missing, so this is not a complete {what}")
    for column in header:
        if column not in columns or header.count(column) > 1:
            _refuse(name, 1, column, f"a {what} has no such column, or has it once only")
    if len(lines) == 1:
        _refuse(name, 2, header[0], f"the {what} has a header and no rows")
    parsed = []
    for number, cells in enumerate(lines[1:], start=2):
        if len(cells) < len(header):
            column = header[len(cells)]
            _refuse(name, number, column, "the row ends before this column, the file is truncated")
        if len(cells) > len(header):
            extra = f"the row goes on after the last column ({len(cells)} cells)"
            _refuse(name, number, header[-1], extra)
        row = {}
        for column, cell in zip(header, cells, strict=True):
            try:
                row[column] = _parse(cell, columns[column])
            except ValueError as error:
                _refuse(name, number, column, str(error))
        parsed.append(row)
    if not text.endswith("\n"):
        ends = "the file ends in the middle of this line, it is truncated"
        _refuse(name, len(lines), header[-1], ends)
    return parsed


def _once(name: str, number: int, row: dict, key: Sequence[str], seen: dict, column: str) -> None:
    """Refuse a row whose key an earlier one has; `seen`: key -> number of its row."""
    key = tuple(row[column] for column in key)
    if key in seen:
        what = f"{row[column]!r} at this shape is already in row {seen[key]}"
        _refuse(name, number, column, what)
    seen[key] = number


def _rows(text: str, name: str, place: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Parse and validate the text of a record; `name` is what errors call the file, `place` as
    `_place` has it."""
    return _valid(text, name, tuple(place.items())).copy()


@functools.lru_cache(maxsize=64)  # a page asks for some records over and over
def _valid(text: str, name: str, place: tuple[tuple[str, tuple[str, str]], ...]) -> pd.DataFrame:
    seen: dict[tuple, int] = {}
    first: dict[tuple, tuple[int, dict]] = {}
    parsed = _table(text, name, COLUMNS, "record of a measurement")
    for number, row in enumerate(parsed, start=2):
        median = row["median_us"]
        if median <= 0:
            _refuse(name, number, "median_us", "a launch takes more than 0 µs")
        if not row["q25_us"] <= median <= row["q75_us"]:
            outside = f"the median {median:g} is outside its quartiles"
            _refuse(name, number, "median_us", outside)
        if row["samples"] == 1 and row["q25_us"] != row["q75_us"]:
            _refuse(name, number, "samples", "one sample has no quartiles of its own")
        if row["flops_def"] in FLOPS and row["useful_flops"] != FLOPS[row["flops_def"]](row):
            what = f"{row['useful_flops']:g} is not {row['flops_def']}"
            _refuse(name, number, "useful_flops", what)
        for rate, (work, unit) in RATES.items():
            exact = row[work] / median / unit
            if not math.isclose(row[rate], exact, rel_tol=RATE_TOLERANCE):
                what = f"{row[rate]:g} is not {work} over median_us, which is {exact:g}"
                _refuse(name, number, rate, what)
        if row["room"] != CEILINGS:  # what is no product, and has tolerances of its own
            eight = row["label"].split(" ")[0] == EIGHT_BITS
            bounded = not math.isnan(row.get("bound", math.nan))
            for error, most in _worst(row["room"], row["experiment"], eight).items():
                # Each element was held to its own products, and the norm to those of long sums.
                if bounded:
                    longest = math.sqrt(min(row["k"], row["nnz"]))
                    most = math.inf if error == "max_err" else most + check.IN_LONG_SUMS * longest
                if row[error] > most:
                    _refuse(name, number, error, f"{row[error]:g} is over {most:g}, so it is wrong")
            at, other = first.setdefault(tuple(row[c] for c in POINT), (number, row))
            for column in PROBLEM:
                if row[column] != other[column]:
                    what = f"{row[column]} differs from {other[column]} in row {at}, the same problem"
                    _refuse(name, number, column, what)
        for column in ONE_PER_FILE:
            if row[column] != parsed[0][column]:
                what = f"{row[column]!r} differs from {parsed[0][column]!r} in row 2"
                _refuse(name, number, column, what)
        for column, (expected, why) in place:
            if column == "when" and row["when"] > expected:
                _refuse(name, number, column, f"{row[column]!r} is later than {expected!r}, {why}")
            if column != "when" and row[column] != expected:
                _refuse(name, number, column, f"{row[column]!r} is not {expected!r}, {why}")
        _once(name, number, row, KEY, seen, "variant")
    return _typed(pd.DataFrame(parsed, columns=list(COLUMNS)))


@functools.cache
def _worst(room: str, experiment: str, eight: bool) -> dict[str, float]:
    """Largest errors of a result in a record: of the limit that the room names for the experiment, of those of 8-bit
    operands, else of the widest of all others, since a row does not say to which one it was held."""
    known = registry.find()
    limits = known[room].limits if room in known else {}
    said = limits.get(experiment, limits.get(USUAL))
    kinds = EIGHT_LIMITS if eight else [said] if said else set(check.LIMITS) - {*EIGHT_LIMITS}
    return {error: max(getattr(check.LIMITS[kind], error) for kind in kinds) for error in ("rel_err", "max_err")}


def _place(path: Path) -> dict[str, tuple[str, str]]:
    """What the rows of the record at `path` must hold because it lies there: column -> value, why."""
    place = {"experiment": (path.name.partition(".")[0], "after which the file is named")}
    room = path.parent
    if room.name == REPEAT:
        room = room.parent
    elif room.parent.name == LIBRARIES:
        room = room.parent.parent
    # A repetition may have a machine.json of its own.
    described = next((x for x in (path.parent, room) if (x / MACHINE).exists()), None)
    if described is not None:
        machine = read_machine(described)
        last = max(datetime.fromisoformat(x.date).replace(tzinfo=None) for x in made(machine))
        place["room"] = room.name, "in whose folder the file lies"
        place["gpu"] = machine["gpu"], f"the GPU of {MACHINE} beside it"
        place["when"] = (
            (last + timedelta(DAYS)).isoformat(),
            f"{DAYS} days after {MACHINE} beside it",
        )
    return place


def _typed(df: pd.DataFrame, columns: Mapping[str, Column] = COLUMNS) -> pd.DataFrame:
    kinds = {"text": "str", "time": "str", "int": "int64", "float": "float64", "flag": "bool"}
    return df.astype({name: kinds[column.kind] for name, column in columns.items()})


def _cell(value, column: Column) -> str:
    if isinstance(value, float | np.floating) and math.isnan(value):
        return ""
    if column.kind == "int" and isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))  # pandas makes whole columns float when one cell was missing
    if column.kind == "flag" and isinstance(value, bool | np.bool_):
        return str(bool(value))
    return repr(float(value)) if isinstance(value, float | np.floating) else str(value)


def _text(df: pd.DataFrame, path: Path) -> str:
    """CSV of `df` for `path`, validated by reading it back, so what is written can always be read."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    foreign = [column for column in df.columns if column not in COLUMNS]
    columns = [
        name for name, column in COLUMNS.items() if name in df.columns and not (column.late and df[name].isna().all())
    ] + foreign
    writer.writerow(columns)
    for row in df[columns].to_dict("records"):
        writer.writerow([_cell(row[c], COLUMNS[c]) if c in COLUMNS else row[c] for c in columns])
    _rows(out.getvalue(), str(path), _place(path))
    return out.getvalue()


# ---------------------------------------------------------------- files


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` to `path` whole or not at all: to a temporary file in the same folder, then
    renamed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(temporary, 0o644)  # mkstemp makes files that only their owner may read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def write(path: str | Path, df: pd.DataFrame) -> Path:
    """Replace the record at `path` by `df` (every column of COLUMNS). Raises ValueError and writes
    nothing if invalid."""
    return write_text(path, _text(df, Path(path)))


def append(path: str | Path, rows: pd.DataFrame | Iterable[Mapping]) -> Path:
    """Add rows to the record at `path`; a row of the same variant and point replaces the old one.

    Raises ValueError, and leaves the file as it was, if the rows or the file are not valid.
    """
    path = Path(path)
    new = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    _text(new, path)  # before merging: a bad row is reported as itself
    if path.exists():
        new = pd.concat([read(path), new.reindex(columns=list(COLUMNS))], ignore_index=True)
    return write(path, new.drop_duplicates(list(KEY), keep="last"))


def read(path: str | Path) -> pd.DataFrame:
    """The record at `path`, columns and dtypes of COLUMNS.

    Raises FileNotFoundError if there is none, ValueError (file, row, column) if it is truncated,
    incomplete or foreign.
    """
    path = Path(path)
    try:
        text = _read_text(path, "record", "room")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such record.") from None
    return _rows(text, str(path), _place(path))


def _read_text(path: Path, what: str, column: str = "") -> str:
    """The text of a file. Raises FileNotFoundError and PermissionError as they come, else ValueError of one
    sentence with `what` the file should be and its first column."""
    try:
        return path.read_text(encoding="utf-8")
    except IsADirectoryError:
        raise ValueError(f"{path}: this is a folder, not a {what}.") from None
    except UnicodeDecodeError as error:
        if column:
            _refuse(path, 1, column, f"byte {error.start} is not UTF-8 text, so this is no {what}")
        raise ValueError(f"{path}: byte {error.start} is not UTF-8 text, so this is no {what}.") from None
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:  # a link to itself, say
        raise ValueError(f"{path}: this cannot be read: {error.strerror}.") from None


def complete(df: pd.DataFrame, name: str | Path) -> pd.DataFrame:
    """`df`, a record as `read` gives it, if every point has every variant of the file, and if all
    points are there that were planned (see `whole`).

    What was left out on purpose (`leave_out`) is not missed. Raises ValueError (file, first row of the
    point, missing variant) otherwise: the file was cut between two rows, or a measurement that adds a
    variant was interrupted. `read` accepts such a file, because measuring goes on from there; a verdict
    on it would compare different points.
    """
    variants = list(dict.fromkeys(df["variant"]))
    points = df.groupby(list(POINT), sort=False)["variant"]
    short = np.flatnonzero(points.transform("size") < len(variants))
    absent = read_absent(Path(name).parent).get(Path(name).stem, {})
    for point, rows in df.iloc[short].groupby(list(POINT), sort=False):
        known = {variant for variant in variants if _rounded((variant, *point)) in absent}
        missing = next((v for v in variants if v not in known | set(rows["variant"])), None)
        if missing is None:
            continue
        lacks = (
            f"this point lacks {missing!r}, which others have, so the record is truncated or its "
            "measurement was interrupted"
        )
        _refuse(name, df.index.get_loc(rows.index[0]) + 2, "variant", lacks)
    return whole(df, name)


def whole(df: pd.DataFrame, path: str | Path) -> pd.DataFrame:
    """`df`, the record at `path` as `read` gives it, if it has the points and rows that were planned.

    Raises ValueError, one sentence, otherwise. A record from before there were plans has none, and
    passes.
    """
    path = Path(path)
    plan = read_plan(path.parent).get(path.stem)
    if plan is None:
        return df
    points = len(df.drop_duplicates(list(POINT)))
    if points < plan["points"]:
        raise ValueError(
            f"{path}: {path.stem} was interrupted after {points} of {plan['points']} points: make measure goes on."
        )
    if len(df) != plan["rows"]:
        raise ValueError(
            f"{path}: {path.stem} has {len(df)} rows, but {plan['rows']} were planned: rows were lost "
            "or added, so delete it and measure it again."
        )
    return df


def plan(path: str | Path, keys: Iterable[tuple]) -> None:
    """Write down that the record at `path` is to have the rows `keys`, each as in KEY, and those that
    it has already: before the first of them is measured, so that an interruption shows."""
    path = Path(path)
    keys = list(keys)
    if path.exists():
        keys += read(path)[list(KEY)].itertuples(index=False, name=None)
    rows = {_rounded(key) for key in keys}
    plans = read_plan(path.parent)
    plans[path.stem] = {"points": len({row[1:] for row in rows}), "rows": len(rows)}
    write_text(path.parent / PLAN, json.dumps(dict(sorted(plans.items())), indent=1) + "\n")


def read_plan(folder: str | Path) -> dict[str, dict[str, int]]:
    """experiment -> {"points": …, "rows": …} that its record in `folder` is to have; empty where
    nothing was written down. Raises ValueError, one sentence, for anything else."""
    path = Path(folder) / PLAN
    try:
        plans = _read_json(path)
    except FileNotFoundError:
        return {}
    fine = isinstance(plans, dict) and all(
        isinstance(plan, dict)
        and set(plan) == {"points", "rows"}
        and all(isinstance(count, int) and count > 0 for count in plan.values())
        for plan in plans.values()
    )
    if not fine:
        raise ValueError(
            f"{path}: a plan has the numbers of points and of rows of each experiment, but this has "
            "something else: delete it and measure again."
        )
    return plans


def leave_out(path: str | Path, key: tuple, why: str) -> None:
    """Write down that the record at `path` has no row `key`, as in KEY, and why: a library refuses the point, say."""
    path = Path(path)
    found = read_absent(path.parent)
    found.setdefault(path.stem, {})[_rounded(key)] = why
    entries = [
        {"experiment": experiment, **dict(zip(KEY, key, strict=True)), "why": why}
        for experiment, keys in sorted(found.items())
        for key, why in sorted(keys.items())
    ]
    write_text(path.parent / ABSENT, json.dumps(entries, indent=1) + "\n")


def read_absent(folder: str | Path) -> dict[str, dict[tuple, str]]:
    """experiment -> {row as in KEY -> why its record in `folder` does not have it}; empty where nothing was left out.

    Raises ValueError, one sentence, for a file that says something else.
    """
    path = Path(folder) / ABSENT
    try:
        entries = _read_json(path)
    except FileNotFoundError:
        return {}
    found: dict[str, dict[tuple, str]] = {}
    try:
        for entry in entries:
            _check_cells(entry, ABSENT_CELLS)
            key = _rounded(tuple(entry[name] for name in KEY))
            found.setdefault(entry["experiment"], {})[key] = entry["why"]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: an entry has an experiment, a row's {', '.join(KEY)} and why it was left out, but "
            "one here has not: delete the file and measure again."
        ) from error
    return found


def _check_cells(entry, columns: Mapping[str, Column]) -> None:
    """Raise ValueError for what is not a table of a text or a number for each of `columns`, as they allow it."""
    if not isinstance(entry, dict) or set(entry) != set(columns):
        raise ValueError(f"an entry needs {', '.join(columns)}")
    for name, column in columns.items():
        kinds = {"text": str, "int": int, "float": int | float}[column.kind]
        if not isinstance(entry[name], kinds):
            raise ValueError(f"{name} is {entry[name]!r}")
        _parse(str(entry[name]), column)


def _rounded(key: tuple) -> tuple:
    """Densities went through text on one side: nine digits tell any two of them apart. Sizes may be NumPy's."""
    variant, label, *sizes, density = key
    return (variant, label, *map(int, sizes), round(float(density), 9))


def read_counters(path: str | Path) -> pd.DataFrame:
    """Hardware counters, tidy: one row per (variant, m, n, k, density, metric). Errors as
    `read`; ValueError too where they are not those that the file beside them tells of, or another GPU's."""
    path = Path(path)
    about = path.with_suffix(".json")
    try:
        text = _read_text(path, "table of counters", COUNTER_COLUMNS[0])
    except FileNotFoundError:
        if about.exists():
            raise ValueError(f"{path}: there are no counters, but {about.name} tells of them.") from None
        raise FileNotFoundError(f"{path}: there are no hardware counters; `make profile` records them.") from None
    rows = _table(text, str(path), COUNTER_CELLS, "table of counters")
    seen: dict[tuple, int] = {}
    for number, row in enumerate(rows, start=2):
        _once(str(path), number, row, COUNTER_KEY, seen, "metric")
    _check_counters(text, len(rows), about)
    return _typed(pd.DataFrame(rows, columns=list(COUNTER_COLUMNS)), COUNTER_CELLS)


def write_counters(path: str | Path, df: pd.DataFrame, gpu: str) -> Path:
    """Write a table of counters, COUNTER_COLUMNS, of the GPU with this name, and beside it what tells that it is
    whole."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COUNTER_COLUMNS)
    writer.writerows(df[list(COUNTER_COLUMNS)].itertuples(index=False))
    path = write_text(path, out.getvalue())
    write_text(path.with_suffix(".json"), json.dumps(_about(out.getvalue(), len(df), gpu), indent=1) + "\n")
    return path


def _about(text: str, rows: int, gpu: str) -> dict:
    return {"gpu": gpu, "rows": rows, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def _check_counters(text: str, rows: int, path: Path) -> None:
    """Raise ValueError, one sentence, unless `path` tells of these counters, of the GPU after which a folder above is
    named: that of the room, or that of the part of a room."""
    try:
        said = _read_json(path)
        _check_cells(said, COUNTERS_ABOUT)
    except (FileNotFoundError, ValueError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else f"is not whole ({error})"
        raise ValueError(f"{path}: what tells of the counters beside it {why}: make profile.") from None
    if said != _about(text, rows, said["gpu"]):
        raise ValueError(
            f"{path.with_suffix('.csv')}: these {rows} rows are not the {said['rows']} that {path.name} tells of: the "
            "file was cut or changed, so profile again."
        )
    if slug(said["gpu"]) not in [folder.name for folder in path.absolute().parents[1:3]]:
        raise ValueError(f"{path}: counters of an {said['gpu']} do not belong in this folder.")


def published(path: str | Path) -> pd.DataFrame:
    """A paper's numbers: a CSV whose first lines, after '#', say where they come from (in
    `.attrs["source"]`)."""
    path = Path(path)
    if not path.exists():
        known = ", ".join(sorted(p.name for p in path.parent.glob("*.csv"))) or "none"
        raise FileNotFoundError(f"{path}: there are no such published numbers; known: {known}.")
    lines = path.read_text(encoding="utf-8").splitlines()
    source = [line.lstrip("# ") for line in lines if line.startswith("#")]
    if not source:
        raise ValueError(f"{path}: row 1, column 'quantity': the comment that names the source is missing.")
    df = pd.read_csv(path, comment="#", keep_default_na=False, na_values=[""])
    df.attrs["source"] = " ".join(source)
    return df


# ---------------------------------------------------------------- machines and folders


def write_machine(folder: str | Path, machine: Mapping) -> Path:
    """Write `machine` (at least MACHINE_KEYS) as folder/machine.json. Raises ValueError naming the
    missing key."""
    path = Path(folder) / MACHINE
    _check_machine(machine, path)
    return write_text(path, json.dumps(dict(machine), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_machine(folder: str | Path) -> dict:
    """The machine that the records in `folder` were measured on. Errors are one sentence, as in
    `read`."""
    path = Path(folder) / MACHINE
    try:
        machine = _read_json(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: the record of the machine is missing.") from None
    _check_machine(machine, path)
    return machine


def _read_json(path: Path):
    """What a JSON file holds. Raises FileNotFoundError and PermissionError as they come, else ValueError of one
    sentence."""
    try:
        return json.loads(_read_text(path, "file of JSON"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: line {error.lineno}: this is not complete JSON ({error.msg}).") from None
    except RecursionError:
        raise ValueError(f"{path}: this is nested too deep for a file of JSON.") from None


def _check_machine(machine, path: Path) -> None:
    if not isinstance(machine, Mapping):
        raise ValueError(f"{path}: a machine is a table of names and values.")
    later = machine.get(LATER, [])
    if not isinstance(later, list):
        raise ValueError(f"{path}: {LATER!r} is no list of what was added.")
    said = "the key {!r} is missing or empty"
    for table, keys in [(machine, MACHINE_KEYS), *((part, LATER_KEYS) for part in later)]:
        for key, kind in keys.items():
            if not isinstance(table, Mapping) or table.get(key) in (None, "", []):
                raise ValueError(f"{path}: {said.format(key)}.")
            if not isinstance(table[key], kind):
                raise ValueError(f"{path}: the value of {key!r} is of another kind than it should be.")
        said = f"an entry of {LATER!r} has no {{!r}}"
    for text in _texts(machine):
        if not NAME.fullmatch(text):
            raise ValueError(f"{path}: {text!r} has a character that no name has.")
    for part in made(machine):
        try:
            datetime.fromisoformat(part.date)
        except ValueError:
            raise ValueError(f"{path}: {part.date!r} is not an ISO-8601 time.") from None


def _texts(value) -> Iterator[str]:
    """Every text in what a file of JSON holds."""
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            todo += [*part, *part.values()]
        elif isinstance(part, list):
            todo += part


def check_room(folder: str | Path) -> None:
    """Raise ValueError or FileNotFoundError, one sentence, where what lies in the folder of a room does not belong
    together: records without their machine.json, a record that was planned and is not there, a plan or a list of what
    is absent that says something else, and as `check_machines`."""
    folder = Path(folder)
    plans, absent = read_plan(folder), read_absent(folder)
    if experiments(folder) or plans:
        read_machine(folder)
    check_machines(folder)
    for experiment, plan in plans.items():
        path = folder / f"{experiment}.csv"
        if not path.is_file() and len(absent.get(experiment, ())) < plan["rows"]:
            raise ValueError(
                f"{path}: there is no such record, but {PLAN} has {plan['rows']} rows for it: it was lost, or its "
                "measurement was interrupted and make measure goes on."
            )


def check_machines(folder: Path) -> None:
    """Raise ValueError, one sentence, where the machine of a room's records, or that of a second measurement, is of
    another GPU than the one after which the folder above is named."""
    named = folder.absolute().parent.name
    for pattern in (MACHINE, f"*/{MACHINE}", f"*/*/{MACHINE}"):
        for path in folder.glob(pattern):
            machine = read_machine(path.parent)
            if {slug(machine["gpu"]), machine["slug"]} != {named}:
                raise ValueError(
                    f"{path}: these records are of an {machine['gpu']} (slug {machine['slug']!r}), but lie in "
                    f"{named!r}: their folder must be named after their GPU."
                )


@dataclass(frozen=True)
class Made:
    """When and by which commit records were made."""

    date: str
    commit: str
    experiments: tuple[str, ...]  #: that were added then; empty: all that no other entry names


def made(machine: Mapping) -> list[Made]:
    """How a machine's records came about: at first, and what was added since."""
    first = Made(str(machine["date"]), str(machine["commit"]), ())
    since = machine.get(LATER, ())
    return [first, *(Made(x["date"], x["commit"], tuple(x["experiments"])) for x in since)]


def experiments(folder: str | Path) -> list[str]:
    """Experiments with a record in a room's folder; hardware counters and facts are not experiments."""
    return sorted(path.stem for path in Path(folder).glob("*.csv") if path.stem not in (COUNTERS, FACTS))


def rooms(gpu_folder: str | Path) -> list[str]:
    """Rooms with records under one GPU's folder."""
    found = {path.parent.name for path in Path(gpu_folder).glob(f"*/{MACHINE}")}
    return sorted(found - {REPEAT})


def list_gpus(root: str | Path) -> list[str]:
    """Slugs of the GPUs with records under `root`. Raises ValueError, one sentence, where that is the folder of one
    GPU."""
    if found := rooms(root):
        raise ValueError(
            f"{root}: this is the folder of one GPU, with records of {', '.join(found)}: name the folder above it."
        )
    found = Path(root).glob(f"*/*/{MACHINE}")
    return sorted({path.parent.parent.name for path in found} - {LIBRARIES})


def short_gpus(gpus: Iterable[str]) -> dict[str, str]:
    """Name of each GPU -> the same without its maker, and by its first word where that leaves them apart."""
    whole = {gpu: gpu.removeprefix("NVIDIA ") for gpu in gpus}
    first = {gpu: name.split()[0].removesuffix(",") for gpu, name in whole.items()}
    return first if len(set(first.values())) == len(whole) else whole


def resolve(gpu: str, root: str | Path) -> Path:
    """Folder of a GPU's records, by slug or by name ("nvidia-h200", "NVIDIA H200").

    Raises ValueError that names the known GPUs if there are no records of this one, and as `check_machines`.
    """
    wanted = slug(gpu)
    known = list_gpus(root)
    if wanted not in known:
        raise ValueError(f"There are no records of a GPU {gpu!r}; known: {', '.join(known) or 'none'}.")
    folder = Path(root) / wanted
    for room in rooms(folder):
        check_machines(folder / room)
    return folder


def ceilings(gpu_folder: str | Path) -> dict[str, dict[str, float]]:
    """Measured ceilings of a GPU: microbenchmark -> {"gbps": …, "tflops": …}, the best of its rows.

    Raises FileNotFoundError if they were not measured.
    """
    path = Path(gpu_folder) / CEILINGS / f"{CEILINGS}.csv"
    df = whole(read(path), path)
    return df.groupby("variant")[["gbps", "tflops"]].max().to_dict("index")


# ---------------------------------------------------------------- arithmetic on records


def best_of(df: pd.DataFrame, prefix: str = "cusparse", name: str = "cusparse_best") -> pd.DataFrame:
    """`df` and, for each point, its fastest row among the variants that start with `prefix`, again
    under `name`.

    A column `best_of` says which variant that was, and is empty in the other rows. Raises
    ValueError if no variant starts with `prefix`.
    """
    df = df[df["variant"] != name]
    pool = df[df["variant"].str.startswith(prefix)]
    if pool.empty:
        raise ValueError(f"No variant starts with {prefix!r}; the records have {_names(df['variant'])}.")
    point = [column for column in ("room", "experiment", *POINT) if column in df.columns]
    best = pool.loc[pool.groupby(point, sort=False)["median_us"].idxmin()]
    return pd.concat(
        [df.assign(best_of=""), best.assign(best_of=best["variant"], variant=name)],
        ignore_index=True,
    )


def speedup(df: pd.DataFrame, variant: str, baseline: str) -> pd.Series:
    """Time of `baseline` over time of `variant`, per point that both have; over 1 means that
    `variant` is faster.

    The index holds experiment and POINT, in the order of the records. Raises ValueError if one has
    no rows, or if they share no point.
    """
    times = []
    for name in (variant, baseline):
        rows = df[df["variant"] == name]
        if rows.empty:
            raise ValueError(f"There is no variant {name!r} in the records; they have {_names(df['variant'])}.")
        index = ["experiment", *POINT]
        times.append(rows[[*index, "median_us"]].set_index(index)["median_us"])
    ours, theirs = times
    shared = ours.index[ours.index.isin(theirs.index)]
    if shared.empty:
        raise ValueError(f"{variant!r} and {baseline!r} were not measured at any common point.")
    return (theirs.loc[shared] / ours.loc[shared]).rename("speedup")


def geomean(values: Sequence[float] | pd.Series) -> float:
    """Geometric mean. Raises ValueError for no values, or for one that is not positive and
    finite."""
    values = np.asarray(values, dtype=float)
    if not values.size or not np.all(np.isfinite(values)) or np.any(values <= 0):
        raise ValueError("A geometric mean needs at least one value, all of them positive and finite.")
    return float(np.exp(np.log(values).mean()))


def _names(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values)) or "none"
