"""The systems on trial, found by looking: every folder here that holds a system.toml is one.

A system's folder holds what only its trial needs: system.toml (what the system is), claims.toml, profiles.toml,
references.bib (the source, as the book cites it), summary.toml (what of it is on the front page), published/ (the
source's numbers), others/ (what the code of others gave on a GPU here, `artifact.measure.external`), baselines/ (what
this system alone is compared with), matrices.csv (its list of real matrices, if it has one), sanitize.toml (problems
on which its kernels are sanitised), portable.toml (what other GPUs get of it), rebuilt.md and
rebuilt.toml (what was rebuilt of its source, and the choices where that is silent), replies.toml (answers to verdicts),
and modules that its chapter imports.
Its chapter is notebooks/<system>.ipynb. The harness reads them here and names no system.
"""

import importlib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    create_model,
    with_config,
)

from kernels.contract import PreparedKernel, Problem

#: The package of the systems, and where it lies.
PACKAGE = "artifact.systems"
FOLDER = Path(__file__).resolve().parent / "systems"
SYSTEM, CLAIMS, PROFILES, REFERENCES, PUBLISHED, OTHERS, BASELINES = (
    "system.toml",
    "claims.toml",
    "profiles.toml",
    "references.bib",
    "published",
    "others",
    "baselines",
)
MAP, RACES = "map.toml", "summary.toml"
#: Of a system's real matrices: the list, and what `artifact.recommend.statistics` makes of it.
MATRICES, STATISTICS = "matrices.csv", "statistics.csv"
#: What a claim says of itself, and no claim that is `like` it.
ALONE = {"id", "note", "reason", "contradicts", "fact", "stand_in", "mechanism"}

#: What a system.toml may say of the non-zeros and of the arithmetic: the columns of the map of the systems, from no
#: order to the most, and its rows.
Pattern = Literal["non-zeros anywhere", "blocks", "N of M vectors", "2 of 4 elements"]
Unit = Literal["CUDA cores", "tensor cores"]
PATTERNS: tuple[str, ...] = get_args(Pattern)
UNITS: tuple[str, ...] = get_args(Unit)
#: How a description in TOML is checked: no key but those that are named, and no value of another type.
STRICT = ConfigDict(extra="forbid", strict=True)


def _neighbours(patterns: list[str]) -> list[str]:
    if not patterns or patterns not in [[*PATTERNS[at : at + len(patterns)]] for at in range(len(PATTERNS))]:
        raise ValueError(f"must be one or neighbours of {', '.join(PATTERNS)}")
    return patterns


@with_config(STRICT)
@dataclass(frozen=True)
class System:
    """One system on trial, as its own text describes it; the content of its system.toml."""

    room: str  #: the folder's name, and that of the package of its kernels
    name: str
    title: str  #: of the source
    cite: str  #: its key in the bibliography
    order: int  #: of the systems, in the book and in the ledger
    format: str  #: how the sparse operand is stored
    precision: str
    unit: Unit  #: what does the arithmetic
    patterns: Annotated[list[Pattern], AfterValidator(_neighbours)]  #: of the non-zeros, neighbours in PATTERNS
    written_for: str  #: GPUs that the source measured on
    idea: str
    claims: str  #: what the abstract puts on trial
    headline: bool = False  #: it is what a page for all systems takes as its example
    names: dict[str, str] = field(default_factory=dict)  #: of contenders that only this system has, in figures
    limits: dict[str, str] = field(
        default_factory=dict
    )  #: experiment -> error limit of its results (`verification.LIMITS`); "usual" -> that of those without an entry
    sections: dict[str, str] = field(
        default_factory=dict
    )  #: of the source, as claims name them -> title, in its order; for the table that shows nothing was skipped

    @property
    def gpus(self) -> tuple[str, ...]:
        """Those that the source measured on, one by one."""
        return tuple(name.strip() for name in self.written_for.split(","))


def find(folder: Path = FOLDER) -> dict[str, System]:
    """Every system below `folder` by its name, in their order.

    Raises ValueError that names file and key where a system.toml is not whole.
    """
    systems = [checked(System, {"room": path.parent.name} | toml(path), path) for path in folder.glob(f"*/{SYSTEM}")]
    return {system.room: system for system in sorted(systems, key=lambda system: (system.order, system.room))}


def home(name: str) -> Path:
    """Where what a chapter says lies: the folder of a system, or of a part of the harness that has a chapter."""
    return FOLDER / name if (FOLDER / name).is_dir() else FOLDER.parent / name


def variants(name: str) -> tuple[str, ...]:
    """Return the kernels of a system in their order; none of what has no kernels of its own."""
    package = FOLDER.parent.parent / "kernels" / name
    return tuple(getattr(importlib.import_module(f"kernels.{name}"), "VARIANTS", ())) if package.is_dir() else ()


def toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; a table that is `like` another has what that one says and it does not.

    Raises OSError or ValueError, one sentence that names the file.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not valid TOML ({error}).") from None
    _take_over(content.items(), path)
    _take_over(((claim.get("id"), claim) for claim in content.get("claim", ())), path)
    return content


def _take_over(tables: Iterable[tuple[str, Any]], path: Path) -> None:
    """Give each named table that is `like` one above it what it does not say itself, but for what is ALONE."""
    above: dict[str, Any] = {}
    for name, table in tables:
        if isinstance(table, dict) and "like" in table:
            other = table.pop("like")
            if other not in above:
                raise ValueError(f"{path}: {name!r} is like {other!r}, which is no table above it.")
            table.update({key: above[other][key] for key in sorted(above[other].keys() - ALONE - table.keys())})
        above[name] = table


def published(system: str, figure: str, folder: Path = FOLDER) -> Path:
    """Where the source's numbers for one of its figures or tables lie."""
    return folder / system / PUBLISHED / f"{figure}.csv"


def others(system: str, name: str, gpu: str, folder: Path = FOLDER) -> Path:
    """Where the numbers lie that the code of others gave on a GPU here; gpu: its slug."""
    return folder / system / OTHERS / gpu / f"{name}.csv"


def races(system: str, folder: Path = FOLDER) -> list[dict[str, Any]] | None:
    """Return what the system says of its races against the vendor's libraries, for `artifact.drawing.summary`.

    None if nothing.
    """
    path = folder / system / RACES
    return toml(path).get("race", []) if path.is_file() else None


def profiles(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Return system -> what `make profile` puts under Nsight Compute.

    That is contenders, densities and shapes, and `metrics` that it needs besides the usual ones.

    A table in the file is of a part with problems of its own, a module of that name in the kernels: it is
    listed as "system.part", and has the system's plan but for what it says itself. Raises ValueError that names file
    and key where one is not whole.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in (folder / system / PROFILES for system in find(folder) if (folder / system / PROFILES).is_file()):
        file, system = toml(path), path.parent.name
        parts = {name: value for name, value in file.items() if isinstance(value, dict)}
        plan = {key: value for key, value in file.items() if key not in parts}
        plans = {system: plan} | {f"{system}.{name}": plan | part for name, part in parts.items()}
        found |= {name: checked(PLAN, own, f"{path}: {name}") for name, own in plans.items()}
    return found


def _once(values: list) -> list:
    if not values or any(values.count(value) > 1 for value in values):
        raise ValueError("must be a list that has something, and nothing twice")
    return values


def references(folder: Path = FOLDER) -> str:
    """Return the entries of the systems' sources in the bibliography, BibTeX.

    Raises OSError or ValueError that names the file where a system's references.bib is missing or lacks what its
    system.toml cites.
    """
    texts = {name: (folder / name / REFERENCES).read_text(encoding="utf-8").strip() for name in find(folder)}
    for system in (system for system in find(folder).values() if f"{{{system.cite}," not in texts[system.room]):
        raise ValueError(
            f"{folder / system.room / REFERENCES}: there is no entry {system.cite!r}, which {SYSTEM} cites."
        )
    return "\n\n".join(texts.values()) + "\n"


def module(system: str, name: str) -> ModuleType:
    """Import a system's module by its name. Raises ModuleNotFoundError where the system has none."""
    return importlib.import_module(f"{PACKAGE}.{system}.{name}")


def checked(schema: Any, table: Mapping[str, Any], where: object) -> Any:
    """Return what a schema makes of a TOML table: a dataclass, or of what `keys` made the table itself.

    Raises ValueError, one sentence with `where`, the key, its value and what it must be.
    """
    try:
        # As JSON: strict about types, and a table may still become a dataclass.
        made = _adapter(schema).validate_json(json.dumps(table, default=str))
        return made.model_dump(exclude_unset=True) if isinstance(made, BaseModel) else made
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in wrong["loc"])
        must = wrong["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        none = f"is none of {', '.join(name for name in schema.__annotations__ if name != 'room')}"
        known = {"missing": "is missing"} | dict.fromkeys(("extra_forbidden", "unexpected_keyword_argument"), none)
        said = known.get(wrong["type"], f"is {wrong['input']!r}, but {must}")
    raise ValueError(f"{where}: the key {key!r} {said}.")


def keys(must: Mapping[str, Any], may: Mapping[str, Any], config: ConfigDict = STRICT) -> Any:
    """Return the schema of a table that must have some keys and may have others, key -> type."""
    fields: Any = {key: (kind, ...) for key, kind in must.items()} | {key: (kind, None) for key, kind in may.items()}
    return create_model("Table", __config__=config, **fields)


_adapter = cache(TypeAdapter)
#: Of a list that has something, and nothing twice; and what a profiles.toml says of a system or of a part.
ONCE = AfterValidator(_once)
PLAN = keys(
    {
        "contenders": Annotated[list[str], ONCE],
        "densities": Annotated[list[Annotated[float, Field(gt=0, le=1)]], ONCE],
        "shapes": Annotated[list[keys(dict.fromkeys("mnk", PositiveInt), {})], ONCE],  # type: ignore[misc]
    },
    {"metrics": Annotated[list[str], ONCE]},
)


# ---------------------------------------------------------------- baselines


def modules() -> dict[str, str]:
    """Name of a baseline -> its module: those of this package, and the systems' own."""
    return {p.stem: f"artifact.baselines.{p.stem}" for p in sorted((FOLDER.parent / "baselines").glob("[!_]*.py"))} | {
        p.stem: f"{PACKAGE}.{system}.{BASELINES}.{p.stem}"
        for system in find()
        for p in sorted((FOLDER / system / BASELINES).glob("[!_]*.py"))
    }


#: What a contender is called where it stands for its library, which may choose its algorithm or not.
LIBRARIES = {
    "cusparse_best": "cuSPARSE",
    "cusparse_default": "cuSPARSE's default algorithm",
    "cusparselt": "cuSPARSELt",
    "cusparselt_default": "cuSPARSELt's default algorithm",
    "cusparse_bell": "cuSPARSE's Blocked-ELL",
    "cusparse_bsr": "cuSPARSE's BSR",
    "cublas_dense": "dense cuBLAS",
    "cublaslt_eight": "dense cuBLASLt in FP8",
    "triton_bsr": "PyTorch's Triton kernel",
    "triton_bsr_tuned": "PyTorch's Triton kernel, tuned",
}


def library(contender: str) -> str:
    """Return the name of the library that a contender stands for, else its own."""
    return LIBRARIES.get(contender, contender)


#: Prefixes of the contenders that are no variant of a system.
PREFIXES = tuple(modules())


def contenders(names: Iterable[str], device) -> dict[str, Callable[[Problem], PreparedKernel]]:
    """Return the contenders of the named modules, in that order; of "module.part", those that it calls so.

    device: `cuda.core.Device`; None where only the contenders' names are wanted. Raises ValueError
    for a name that is no baseline.
    """
    known = modules()
    makers: dict[str, Callable[[Problem], PreparedKernel]] = {}
    for name, _, part in (name.partition(".") for name in names):
        if name not in known:
            raise ValueError(f"There is no baseline {name!r}; known: {', '.join(known)}.")
        makers |= getattr(importlib.import_module(known[name]), part or "contenders")(device)
    return makers
