"""Records of measurements: one CSV per experiment, one row per (variant, shape, density).

    <root>/<gpu slug>/<system>/<experiment>.csv          the measurement
    <root>/<gpu slug>/<system>/repeat/<experiment>.csv   the same measurement a second time
    <root>/<gpu slug>/<system>/machine.json              the machine that both were measured on, digests of all files
    <root>/<gpu slug>/<system>/provenance.csv            commit, driver and day of all rows: see `files`
    <root>/<gpu slug>/<system>/plan.json                 how many points and rows each record is to have
    <root>/<gpu slug>/<system>/counters.csv              hardware counters of the profiler
    <root>/<gpu slug>/<system>/counters.json             the GPU and the checksum of counters.csv

`COLUMNS` says what every column means, in which unit, and which values it may hold; `SCHEMA` what rows must
agree on, too. A file that is truncated, incomplete or foreign, that contradicts itself or lies where it does not
belong, is a ValueError of one sentence that names the file, the row (as a spreadsheet counts: the header is
row 1) and the column. Which GPU records are of is said by machine.json; a folder that is named after another
is refused. Writing is atomic: a reader sees the old file or the new one.
"""

import csv
import functools
import hashlib
import io
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
import pandera.pandas as pa

from artifact import registry
from artifact.measure import files, verification
from artifact.measure.device import slug
from artifact.measure.files import read_json, write_json, write_text as write_text
from kernels.contract import require

#: Texts that reach pages; a GPU has no others.
NAME = re.compile(r'[^<>"\x00-\x1f\x7f\ufffd]+')
#: Kind of a column -> what a cell is called, how it is read (ValueError or None: not at all), the dtype.
KINDS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "text": ("a name", lambda x: x if NAME.fullmatch(x) else None, "str"),
    "time": (
        "an ISO-8601 time in UTC with its offset",
        lambda x: x if datetime.fromisoformat(x).utcoffset() == timedelta(0) else None,
        "str",
    ),
    "int": ("a whole number", int, "int64"),
    "float": ("a number", lambda x: None if math.isnan(float(x)) else float(x), "float64"),
    "flag": ("True or False", {"True": True, "False": False}.get, "bool"),
}


@dataclass(frozen=True)
class Column:
    """One column of a record. `kind` is one of KINDS; numbers lie in [least, most]."""

    kind: str
    unit: str
    means: str
    least: float = 0
    most: float = 2.0**62
    optional: bool = False  # text may be empty, a float may be NaN
    late: bool = False  # records from before this column lack it, and have NaN when they are read

    def read(self, texts: Sequence[str], name: str, column: str) -> list:
        """Return the values of all cells, each different text parsed once.

        Raise ValueError that says where the first wrong one is, as `_refuse`, and what it should be.
        """
        called, parse, _ = KINDS[self.kind]
        known = {"": "" if self.kind == "text" else math.nan} if self.optional else {}
        for row, text in enumerate(texts, start=2):
            if text not in known:
                with suppress(ValueError):
                    known[text] = parse(text)
                if known.get(text) is None:
                    _refuse(name, row, column, f"{text!r} is not {called}")
        return [known[text] for text in texts]


COLUMNS: dict[str, Column] = {
    "room": Column("text", "", "folder under kernels/ that was measured"),
    "experiment": Column("text", "", "sweep of that system; also the name of the file"),
    "variant": Column("text", "", "kernel of the system, or a library's algorithm such as cusparse_alg2"),
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
    "when": Column("time", "UTC", "when the row was measured, ISO-8601 with its offset"),
}

POINT = ("label", "m", "n", "k", "density")  # what a measurement is of, whoever computed it
KEY = ("variant", *POINT)  # one row of a file
ONE_PER_FILE = ("room", "experiment", "gpu", "seed")  # a file that mixes these was put together from two
#: What is the same in all rows of a point, whoever computed it: they are of the problem.
PROBLEM = ("nnz", "flops_def", "useful_flops", "least_bytes", "requested_bytes")
#: Definitions of useful FLOPs that a row's own columns give.
FLOPS = {"2·nnz·N": ("nnz", "n"), "2·M·N·K": ("m", "n", "k")}
#: rate -> what it is the rate of, and that per microsecond in the rate's unit
RATES = {"tflops": ("useful_flops", 1e6), "gbps": ("least_bytes", 1e3)}
#: Error limits of 8-bit operands, which labels tell from all others. That of an element counts only where `bound` does
#: not say what it was held to.
EIGHT_BITS, EIGHT_LIMITS = "e4m3", ("fp8", "fp8_e4m3")
#: In a system's `limits`, of the experiments that it does not name; system and experiment of the microbenchmarks.
USUAL, CEILINGS = "usual", "ceilings"

COUNTER_CELLS: dict[str, Column] = {
    **{name: COLUMNS[name] for name in ("variant", "m", "n", "k", "density")},
    "metric": Column("text", "", "what ncu calls the counter"),
    "value": Column("float", "", "its value, in `unit`"),
    "unit": Column("text", "", "unit of the value, as ncu says it", optional=True),
}
COUNTER_COLUMNS = tuple(COUNTER_CELLS)
#: Files beside records: the machine; how many rows there are to be; rows that a record does not have, and the reason.
MACHINE, PLAN, ABSENT = files.MACHINE, "plan.json", "absent.json"
#: Folders in that of a system: the second measurement; those with other versions of a library, each in a folder of its
#: version's name.
REPEAT, LIBRARIES = "repeat", "libraries"
#: CSV beside records that are none: the profiler's counters, what is said of a system's records by name, who measured
#: their rows.
COUNTERS, FACTS, PROVENANCE = "counters", "facts", "provenance"
#: What a machine.json holds at least.
MACHINE_KEYS = ("gpu", "slug", "date", "commit", "driver", "cuda", "python", "packages")


# ---------------------------------------------------------------- validation


def _refuse(name: str | Path, row: int, column: str, what: str) -> NoReturn:
    raise ValueError(f"{name}: row {row}, column {column!r}: {what}.")


def _schema(columns: Mapping[str, Column], rules: Iterable[tuple[str, Callable, str]] = ()) -> pa.DataFrameSchema:
    """Return what must hold of a table: the ranges of numbers, and rules.

    The column that is wrong, which rows are right, and what is said of one that is not, a format of its cells.
    """

    def within(name: str, of: Column, df: pd.DataFrame) -> pd.Series:
        return df[name].between(of.least, of.most) | df[name].isna()

    def rows(right: Callable, df: pd.DataFrame) -> pd.Series:
        return pd.Series(right(df), df.index)

    ranges: list[tuple[str, Callable, str]] = [
        (name, partial(within, name, of), f"{{{name}}} is not in {of.least:g} … {of.most:g}")
        for name, of in columns.items()
        if of.kind in ("int", "float")
    ]
    # Of the table, and not of columns one by one: twice as fast; and so is not to look for empty cells in all of it.
    made = partial(pa.Check, ignore_na=False)
    return pa.DataFrameSchema(
        checks=[made(partial(rows, right), name=x, error=said) for x, right, said in (*ranges, *rules)]
    )


def _table(
    text: str, name: str, columns: Mapping[str, Column], what: str, *schemas: pa.DataFrameSchema
) -> pd.DataFrame:
    """Parse every cell of a CSV text and validate it; `name` is what errors call the file, `what` what it should be."""
    header, *lines = list(csv.reader(io.StringIO(text))) or [[]]
    known = Counter(c for c, column in columns.items() if c in header or not column.late)
    for column in (known - Counter(header)) or (Counter(header) - known):
        _refuse(name, 1, column, f"a {what} has {'this column once' if column in known else 'no such column'}")
    for number, cells in enumerate(lines, start=2):
        if len(cells) != len(header):
            cut = f"the row has {len(cells)} cells instead of {len(header)}, truncated or foreign"
            _refuse(name, number, header[min(len(cells), len(header) - 1)], cut)
    if not lines or not text.endswith("\n"):
        _refuse(name, max(len(lines) + 1, 2), header[-1], "the file ends here, it is truncated")
    parsed = {c: columns[c].read(cells, name, c) for c, cells in zip(header, zip(*lines, strict=True), strict=True)}
    df = pd.DataFrame(parsed).reindex(columns=list(columns))
    for schema in schemas:
        try:
            schema.validate(df)
        except pa.errors.SchemaError as error:
            row = int(error.failure_cases["index"].min())
            _refuse(name, row + 2, error.check.name, error.check.error.format(**df.iloc[row]))
    return df.astype({c: KINDS[column.kind][2] for c, column in columns.items()})


def _most(df: pd.DataFrame, error: str) -> np.ndarray | float:
    """Return the largest error, "rel_err" or "max_err", of a row's result that counts as right.

    Of the limit that the system names for the experiment, of those of 8-bit operands, else of the widest of all
    others, since a row does not say to which one it was held.
    """
    system, experiment = df[["room", "experiment"]].iloc[0]
    if system == CEILINGS:  # what is no product, and has tolerances of its own
        return math.inf
    known = registry.find()
    limits = known[system].limits if system in known else {}
    said = limits.get(experiment, limits.get(USUAL))
    others = [said] if said else set(verification.LIMITS) - {*EIGHT_LIMITS}
    eight, most = (max(getattr(verification.LIMITS[x], error) for x in kinds) for kinds in (EIGHT_LIMITS, others))
    # Where a bound is, each element was held to its own products, and the norm to those of long sums.
    more = math.inf if error == "max_err" else verification.IN_LONG_SUMS * np.sqrt(df[["k", "nnz"]].min(axis=1))
    is_eight = df["label"].str.split(" ").str[0] == EIGHT_BITS
    return np.where(is_eight, eight, most) + np.where(df["bound"].isna(), 0, more)


def _is_as_defined(df: pd.DataFrame) -> np.ndarray:
    """Which rows' useful FLOPs are those of their definition, where it is one of FLOPS."""
    said = {name: 2.0 * df[list(factors)].prod(axis=1) for name, factors in FLOPS.items()}
    return np.logical_and.reduce([(df["flops_def"] != x) | (df["useful_flops"] == said[x]) for x in said])


#: What a record of a measurement is: the ranges of COLUMNS, and what the cells of a row, and rows, must agree on.
SCHEMA = _schema(
    COLUMNS,
    [
        ("when", lambda df: df["when"] >= "2020", "{when!r} is before 2020"),
        ("median_us", lambda df: df["median_us"] > 0, "a launch takes more than 0 µs"),
        (
            "median_us",
            lambda df: df["median_us"].between(df["q25_us"], df["q75_us"]),
            "the median {median_us:g} is outside its quartiles",
        ),
        (
            "samples",
            lambda df: (df["samples"] > 1) | (df["q25_us"] == df["q75_us"]),
            "one sample has no quartiles of its own",
        ),
        ("useful_flops", _is_as_defined, "{useful_flops:g} is not {flops_def}"),
        *(
            (
                rate,
                lambda df, rate=rate, work=work, unit=unit: np.isclose(
                    df[rate], df[work] / df["median_us"] / unit, rtol=1e-6, atol=0
                ),
                f"{{{rate}:g}} is not {work} over median_us",
            )
            for rate, (work, unit) in RATES.items()
        ),
        *(
            (
                error,
                lambda df, error=error: df[error] <= _most(df, error),
                f"{{{error}:g}} is over its limit, so it is wrong",
            )
            for error in ("rel_err", "max_err")
        ),
        *(
            (
                x,
                lambda df, x=x: (df["room"] == CEILINGS) | (df[x] == df.groupby(list(POINT))[x].transform("first")),
                f"{{{x}}} differs from another row of the same problem",
            )
            for x in PROBLEM
        ),
        *((x, lambda df, x=x: df[x] == df[x].iloc[0], f"{{{x}}} differs from that in row 2") for x in ONE_PER_FILE),
        ("variant", lambda df: ~df.duplicated(list(KEY)), "{variant!r} at this shape is in a row above already"),
    ],
)
COUNTER_SCHEMA = _schema(
    COUNTER_CELLS,
    [
        (
            "metric",
            lambda df: ~df.duplicated([x for x in COUNTER_COLUMNS if x not in ("value", "unit")]),
            "{metric!r} at this shape is in a row above already",
        )
    ],
)


@functools.lru_cache(maxsize=256)  # a page asks for the records of two GPUs over and over
def _valid(text: str, name: str, place: tuple[tuple[str, str, str], ...]) -> pd.DataFrame:
    """Parse and validate the text of a record; `name` is what errors call the file, `place` as `_place` has it."""
    of_place = [
        (column, lambda df, column=column, value=value: df[column] == value, f"{{{column}!r}} is not {value!r}, {why}")
        for column, value, why in place
    ]
    return _table(text, name, COLUMNS, "record of a measurement", _schema({}, of_place), SCHEMA)


def _place(path: Path) -> tuple[tuple[str, str, str], ...]:
    """Return what the rows of the record at `path` must hold because it lies there: columns, their values, why."""
    experiment = "experiment", path.name.partition(".")[0], "after which the file is named"
    system = next(
        x for x in path.absolute().parents if x.name not in (REPEAT, LIBRARIES) and x.parent.name != LIBRARIES
    )
    # A repetition may have a machine.json of its own.
    described = next((x for x in (path.parent, system) if (x / MACHINE).exists()), None)
    if described is None:
        return (experiment,)
    gpu = read_machine(described)["gpu"], f"the GPU of {MACHINE} beside it"
    return experiment, ("room", system.name, "in whose folder the file lies"), ("gpu", *gpu)


def _text(df: pd.DataFrame, path: Path) -> str:
    """CSV of `df` for `path`, validated by reading it back, so what is written can always be read."""
    late = [name for name, column in COLUMNS.items() if column.late and name in df and df[name].isna().all()]
    text = df[sorted(df.columns.drop(late), key=[*COLUMNS].index)].to_csv(index=False, lineterminator="\n")
    _valid(text, str(path), _place(path))
    return text


# ---------------------------------------------------------------- files


def write(path: Path, df: pd.DataFrame) -> Path:
    """Replace the record at `path` by `df` (every column of COLUMNS).

    Raises ValueError and writes nothing if invalid.
    """
    return write_text(path, _text(df, path))


def append(path: Path, rows: pd.DataFrame | Iterable[Mapping]) -> Path:
    """Add rows to the record at `path`; a row of the same variant and point replaces the old one.

    Raises ValueError, and leaves the file as it was, if the rows are not valid, or not of this file. What was there is
    validated again only where a row is replaced, or a column is new.
    """
    new = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    text = _text(new, path)  # before merging: a bad row is reported as itself
    if not path.exists():
        return write_text(path, text)
    there, header = path.read_text(encoding="utf-8"), text.partition("\n")[0]
    if there.startswith(header + "\n") and there.endswith("\n"):
        known = pd.read_csv(io.StringIO(there), usecols=[*KEY, *ONE_PER_FILE], keep_default_na=False)
        both = pd.concat([known, new[known.columns]])
        if not both.duplicated(list(KEY)).any() and (both[list(ONE_PER_FILE)].nunique() == 1).all():
            return write_text(path, there + text[len(header) + 1 :])
    read(path)  # or it is refused
    # As texts: rows that stay are the same, letter by letter.
    tables = [pd.read_csv(io.StringIO(x), dtype=str, keep_default_na=False) for x in (there, text)]
    merged = pd.concat(tables).fillna("").drop_duplicates(list(KEY), keep="last")
    text = merged[sorted(merged, key=[*COLUMNS].index)].to_csv(index=False, lineterminator="\n")
    _valid(text, str(path), _place(path))
    return write_text(path, text)


def read(path: Path) -> pd.DataFrame:
    """Return the record at `path`, columns and dtypes of COLUMNS.

    Raises FileNotFoundError if there is none, ValueError (file, row, column) if it is truncated,
    incomplete or foreign.
    """
    return _valid(_read(path, "there is no such record"), str(path), _place(path)).copy()


def _read(path: Path, missing: str) -> str:
    """Return the text of a file; bytes that are none become a character that no name has.

    Raises FileNotFoundError, one sentence that says what is missing.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: {missing}.") from None


def complete(df: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return `df`, the record at `path`, if it is complete.

    That is, if every point has every variant of the file and all planned points are there (see `whole`).

    What was left out on purpose (`leave_out`) is not missed. Raises ValueError (file, first row of the
    point, missing variant) otherwise: the file was cut between two rows, or a measurement that adds a
    variant was interrupted. `read` accepts such a file, because measuring goes on from there; a verdict
    on it would compare different points.
    """
    known = {
        *map(_rounded, df[list(KEY)].itertuples(index=False, name=None)),
        *read_absent(path.parent).get(path.stem, ()),
    }
    points = df.drop_duplicates(list(POINT))[list(POINT)].itertuples(name=None)
    for (row, *point), variant in itertools.product(points, df["variant"].unique()):
        if _rounded((variant, *point)) not in known:
            lacks = f"this point lacks {variant!r}, which others have: truncated, or its measurement was interrupted"
            _refuse(path, row + 2, "variant", lacks)
    return whole(df, path)


def whole(df: pd.DataFrame, path: Path) -> pd.DataFrame:
    """`df`, the record at `path` as `read` gives it, if it has the points and rows that were planned.

    Raises ValueError, one sentence, otherwise. A record from before there were plans has none, and
    passes.
    """
    points = len(df.drop_duplicates(list(POINT)))
    planned = read_plan(path.parent).get(path.stem, {"points": points, "rows": len(df)})
    require(
        points >= planned["points"],
        f"{path}: {path.stem} was interrupted after {points} of {planned['points']} points: make measure goes on.",
    )
    require(
        len(df) == planned["rows"],
        f"{path}: {path.stem} has {len(df)} rows, but {planned['rows']} were planned: rows were lost "
        "or added, so delete it and measure it again.",
    )
    return df


def plan(path: Path, keys: Iterable[tuple]) -> None:
    """Write down which rows the record at `path` is to have, before the first is measured.

    They are `keys`, each as in KEY, and those that it has already, so that an interruption shows.
    """
    there = read(path)[list(KEY)].itertuples(index=False, name=None) if path.exists() else ()
    rows = {_rounded(key) for key in (*keys, *there)}
    plans = read_plan(path.parent) | {path.stem: {"points": len({row[1:] for row in rows}), "rows": len(rows)}}
    write_json(path.parent / PLAN, dict(sorted(plans.items())))


def read_plan(folder: Path) -> dict[str, dict[str, int]]:
    """experiment -> {"points": …, "rows": …} that its record in `folder` is to have.

    Empty where nothing was written down. Raises ValueError, one sentence, for a file that was cut.
    """
    return read_json(folder / PLAN, {})


def leave_out(path: Path, key: tuple, why: str) -> None:
    """Write down that the record at `path` has no row `key`, as in KEY, and why: a library refuses the point, say."""
    found = read_absent(path.parent)
    found.setdefault(path.stem, {})[_rounded(key)] = why
    entries = [
        {"experiment": experiment, **dict(zip(KEY, key, strict=True)), "why": why}
        for experiment, keys in sorted(found.items())
        for key, why in sorted(keys.items())
    ]
    write_json(path.parent / ABSENT, entries)


def read_absent(folder: Path) -> dict[str, dict[tuple, str]]:
    """experiment -> {row as in KEY -> why its record in `folder` does not have it}.

    Empty where nothing was left out. Raises ValueError, one sentence, for a file that was cut.
    """
    found: dict[str, dict[tuple, str]] = {}
    for entry in read_json(folder / ABSENT, []):
        found.setdefault(entry["experiment"], {})[_rounded([entry[name] for name in KEY])] = entry["why"]
    return found


def _rounded(key: Sequence) -> tuple:
    """Densities went through text on one side: nine digits tell any two of them apart. Sizes may be NumPy's."""
    variant, label, *sizes, density = key
    return (variant, label, *map(int, sizes), round(float(density), 9))


def read_counters(path: Path) -> pd.DataFrame:
    """Hardware counters, tidy: one row per (variant, m, n, k, density, metric).

    Errors as `read`; ValueError too where they are not those that the file beside them tells of, or another GPU's.
    """
    text, about = _read(path, "there are no hardware counters; `make profile` records them"), path.with_suffix(".json")
    df = _table(text, str(path), COUNTER_CELLS, "table of counters", COUNTER_SCHEMA)
    said = read_json(about, {})
    gpu = said.get("gpu", "")
    require(
        said == _about(text, len(df), gpu),
        f"{path}: these {len(df)} rows are not those that {about.name} tells of: the file was cut or changed, so "
        "profile again.",
    )
    # The folder above is of the system, or of a part of it.
    above = [folder.name for folder in path.absolute().parents[1:3]]
    require(slug(gpu) in above, f"{about}: counters of an {gpu} do not belong in this folder.")
    return df


def write_counters(path: Path, df: pd.DataFrame, gpu: str) -> Path:
    """Write a table of counters of a GPU, and beside it what tells that it is whole.

    df: COUNTER_COLUMNS.
    """
    text = df[list(COUNTER_COLUMNS)].to_csv(index=False, lineterminator="\n")
    write_json(path.with_suffix(".json"), _about(text, len(df), gpu))
    return write_text(path, text)


def _about(text: str, rows: int, gpu: str) -> dict[str, Any]:
    return {"gpu": gpu, "rows": rows, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def published(path: Path) -> pd.DataFrame:
    """Return a paper's numbers.

    A CSV whose first lines, after '#', say where they come from (in `.attrs["source"]`).
    """
    known = ", ".join(sorted(p.name for p in path.parent.glob("*.csv"))) or "none"
    return _published(_read(path, f"there are no such published numbers; known: {known}"), str(path)).copy()


@functools.lru_cache(maxsize=64)  # 168 claims quote some thirty files
def _published(text: str, name: str) -> pd.DataFrame:
    source = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    require(bool(source), f"{name}: row 1, column 'quantity': the comment that names the source is missing.")
    df = pd.read_csv(io.StringIO(text), comment="#", keep_default_na=False, na_values=[""])
    df.attrs["source"] = " ".join(source)
    return df


# ---------------------------------------------------------------- machines and folders


def write_machine(folder: Path, machine: Mapping) -> Path:
    """Write `machine` (at least MACHINE_KEYS) as folder/machine.json.

    What an earlier one tells of files that are still there is kept. Raises ValueError naming the missing key.
    """
    told: dict[str, Any] = {}
    with suppress(ValueError):
        told = {key: x for key, x in read_json(folder / MACHINE, {}).items() if key == files.DIGESTS}
    write_json(folder / MACHINE, _checked_machine(told | {**machine}, folder / MACHINE))
    files.seal(folder, files.provenance(folder))
    return folder / MACHINE


def read_machine(folder: Path) -> dict[str, Any]:
    """Return the machine that the records in `folder` were measured on.

    Errors are one sentence, as in `read`.
    """
    machine = read_json(folder / MACHINE, None)
    require(machine is not None, f"{folder / MACHINE}: the record of the machine is missing.", FileNotFoundError)
    return _checked_machine(machine, folder / MACHINE)


def _checked_machine(machine: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a machine, if it has its keys and all its texts are names; else raise ValueError."""
    require(isinstance(machine, Mapping), f"{path}: a machine is a table of names and values.")
    for key in MACHINE_KEYS:
        require(bool(machine.get(key)), f"{path}: the key {key!r} is missing or empty.")
    wrong = re.findall(r"[<>\\\x7f\ufffd]", json.dumps(machine, ensure_ascii=False))
    require(not wrong, f"{path}: a text here has {''.join(wrong[:1])!r}, which no name has.")
    return machine


def check_system(folder: Path) -> None:
    """Raise ValueError or FileNotFoundError, one sentence, where a system's folder is not consistent.

    That is: records without their machine.json, a record that was planned and is not there, a plan or a list of what
    is absent that was cut, and what `check_machines` finds.
    """
    plans, absent = read_plan(folder), read_absent(folder)
    if experiments(folder) or plans:
        read_machine(folder)
    check_machines(folder)
    for experiment, planned in plans.items():
        path = folder / f"{experiment}.csv"
        require(
            path.is_file() or len(absent.get(experiment, ())) >= planned["rows"],
            f"{path}: there is no such record, but {PLAN} has {planned['rows']} rows for it: it was lost, or its "
            "measurement was interrupted and make measure goes on.",
        )


def check_machines(folder: Path) -> None:
    """Raise ValueError, one sentence, where a system's machine is of another GPU than its folder.

    Looks at its records and at a second measurement; the folder above is named after the GPU.
    """
    named = folder.absolute().parent.name
    for path in (path for pattern in ("", "*/", "*/*/") for path in folder.glob(f"{pattern}{MACHINE}")):
        machine = read_machine(path.parent)
        require(
            {slug(machine["gpu"]), machine["slug"]} == {named},
            f"{path}: these records are of an {machine['gpu']} (slug {machine['slug']!r}), but lie in "
            f"{named!r}: their folder must be named after their GPU.",
        )


class Made(NamedTuple):
    """On which day and by which commit records were made."""

    date: str
    commit: str
    files: tuple[str, ...]  #: which, without their ending; some of their rows at least


def made(folder: Path) -> list[Made]:
    """How the records of a folder came about, by day and commit; with none yet, when and by which they would."""
    machine, found = read_machine(folder), dict[tuple[str, str], dict[str, None]]()
    for file, origins in files.provenance(folder).items():
        for commit, _, date in origins:
            found.setdefault((date, commit), {})[file.removesuffix(".csv")] = None
    return [Made(*key, tuple(found[key])) for key in sorted(found)] or [Made(machine["date"], machine["commit"], ())]


def experiments(folder: Path) -> list[str]:
    """Experiments with a record in a system's folder; hardware counters and facts are not experiments."""
    return sorted(path.stem for path in folder.glob("*.csv") if path.stem not in (COUNTERS, FACTS, PROVENANCE))


def systems(gpu_folder: Path) -> list[str]:
    """Systems with records under one GPU's folder."""
    return sorted({path.parent.name for path in gpu_folder.glob(f"*/{MACHINE}")} - {REPEAT})


def list_gpus(root: Path) -> list[str]:
    """Slugs of the GPUs with records under `root`.

    Raises ValueError, one sentence, where that is the folder of one GPU.
    """
    found = systems(root)
    require(
        not found,
        f"{root}: this is the folder of one GPU, with records of {', '.join(found)}: name the folder above it.",
    )
    return sorted({path.parent.parent.name for path in root.glob(f"*/*/{MACHINE}")} - {LIBRARIES})


def short_gpus(gpus: Iterable[str]) -> dict[str, str]:
    """Name of each GPU -> the same without its maker, and by its first word where that leaves them apart."""
    whole = {gpu: gpu.removeprefix("NVIDIA ") for gpu in gpus}
    first = {gpu: name.split()[0].removesuffix(",") for gpu, name in whole.items()}
    return first if len(set(first.values())) == len(whole) else whole


def resolve(gpu: str, root: Path) -> Path:
    """Folder of a GPU's records, by slug or by name ("nvidia-h200", "NVIDIA H200").

    Raises ValueError that names the known GPUs if there are no records of this one, and as `check_machines`.
    """
    known, wanted = list_gpus(root), slug(gpu)
    require(wanted in known, f"There are no records of a GPU {gpu!r}; known: {', '.join(known) or 'none'}.")
    for system in systems(root / wanted):
        check_machines(root / wanted / system)
    return root / wanted


def ceilings(gpu_folder: Path) -> dict[str, dict[str, float]]:
    """Measured ceilings of a GPU: microbenchmark -> {"gbps": …, "tflops": …}, the best of its rows; nothing without."""
    path = gpu_folder / CEILINGS / f"{CEILINGS}.csv"
    df = whole(read(path), path) if path.is_file() else pd.DataFrame(columns=["variant", "gbps", "tflops"])
    return df.groupby("variant")[["gbps", "tflops"]].max().to_dict("index")


# ---------------------------------------------------------------- arithmetic on records


def best_of(df: pd.DataFrame, prefix: str | tuple[str, ...] = "cusparse", name: str = "cusparse_best") -> pd.DataFrame:
    """Return `df` with each point's fastest row again, under `name`.

    Only variants that start with `prefix`, or one of them, count.

    A column `best_of` says which variant that was, and is empty in the other rows. Raises
    ValueError if no variant starts with `prefix`.
    """
    df = df[df["variant"] != name]
    pool, have = df[df["variant"].str.startswith(prefix)], ", ".join(df["variant"].unique()) or "none"
    require(not pool.empty, f"No variant starts with {prefix!r}; the records have {have}.")
    point = [column for column in ("room", "experiment", *POINT) if column in df.columns]
    best = pool.loc[pool.groupby(point, sort=False)["median_us"].idxmin()]
    return pd.concat([df.assign(best_of=""), best.assign(best_of=best["variant"], variant=name)], ignore_index=True)


def speedup(df: pd.DataFrame, variant: str, baseline: str) -> pd.Series:
    """Time of `baseline` over time of `variant`, per point that both have.

    Over 1 means that `variant` is faster.

    The index holds experiment and POINT, in the order of the records. Raises ValueError if one has
    no rows, or if they share no point.
    """
    at, known = df.set_index(["experiment", *POINT]), list(df["variant"].unique())
    for name in (variant, baseline):
        require(name in known, f"There is no variant {name!r} in the records; they have {', '.join(known) or 'none'}.")
    ours, theirs = (at.loc[at["variant"] == name, "median_us"] for name in (variant, baseline))
    found = (theirs.reindex(ours.index) / ours).dropna().rename("speedup")
    require(not found.empty, f"{variant!r} and {baseline!r} were not measured at any common point.")
    return found


def geomean(values: Sequence[float] | pd.Series) -> float:
    """Geometric mean.

    Raises ValueError for no values, or for one that is not positive and finite.
    """
    values = np.asarray(values, dtype=float)
    require(
        bool(values.size and np.all(np.isfinite(values) & (values > 0))),
        "A geometric mean needs at least one value, all of them positive and finite.",
    )
    return float(np.exp(np.log(values).mean()))
