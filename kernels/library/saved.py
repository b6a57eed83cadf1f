"""Plans on disk: A as the kernels read it and the kernel that was chosen, in an .npz file without pickled objects."""

import hashlib
import json
import os
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from .. import autotune, formats, jit
from ..contract import require, require_whole
from ..formats.csr import INT32_MAX
from . import current, operands, plans, routes
from .plans import ORDERS, Plan

VERSION = 2  #: of the file


def save(made: Plan, path) -> None:
    """Write a plan; `Plan.save`."""
    host = formats.to_host(made.a)
    arrays = {f.name: getattr(host, f.name) for f in fields(host) if f.compare}
    plain = {
        name: x if isinstance(x, str) else int(x)
        for name, x in arrays.items()
        if not hasattr(x, "ndim") or isinstance(x, np.integer)
    }
    arrays = {name: x for name, x in arrays.items() if name not in plain}
    about = {
        "version": VERSION,
        "format": type(host).__name__,
        "fields": plain,
        "n": made.n,
        "dtype": made.dtype,
        "accuracy": made.accuracy,
        "b_order": made.b_order,
        "out_order": made.out_order,
        "in_place": made.in_place,
        "deterministic": made.deterministic,
        "choice": made.choice,
        **_origin(made.room, made.device),
    }
    about["sha256"] = _digest(about, arrays)
    with jit.aside(Path(path).resolve()) as file:  # a link stays one
        np.savez(file, about=np.array(json.dumps(about)), **arrays)
        file.flush()
        os.fsync(file.fileno())


def _origin(room: str, device) -> dict[str, str]:
    """Return what a choice is of: a system, its kernels by 12 hexadecimal digits, a GPU and a compiler."""
    kernels = autotune.choices.digest((jit.ROOT / room).glob("*.cu"))
    return {"room": room, "gpu": autotune.choices.slug(device), "nvrtc": jit.nvrtc_version(), "kernels": kernels}


def load_plan(path, *, device: int | None = None, tune: bool = True, stream=None) -> Plan:
    """Return the plan that `Plan.save` wrote, on a GPU of CUDA's number, or the current one.

    A is checked. The kernel is the one that was chosen; where the GPU, the compiler or the system's kernels are others,
    it is chosen anew. Raises ValueError, one sentence, for a file that is none of these, or is damaged;
    FileNotFoundError, PermissionError; NoGpu.
    """
    about, a = read(path)
    with current.opened(current.ordinal_for(None) if device is None else device) as device_now:
        way = routes.route(
            formats.to_device(a),
            about["dtype"],
            about["accuracy"],
            device_now,
            order=about["b_order"],
            out_order=about["out_order"],
            explicit=True,
            in_place=about["in_place"],
        )
        holds = _origin(way.room, device_now).items() <= about.items()
        return plans.built(
            way,
            about["n"],
            about["dtype"],
            about["accuracy"],
            device_now,
            tune,
            about["choice"] if holds else "",
            stream,
            about["deterministic"],
        )


#: What the JSON text of a saved plan holds.
_ABOUT = {
    "version": int,
    "format": str,
    "fields": dict,
    "n": int,
    "dtype": str,
    "accuracy": str,
    "b_order": str,
    "out_order": str,
    "in_place": bool,
    "deterministic": bool,
    "room": str,
    "choice": str,
    "gpu": str,
    "nvrtc": str,
    "kernels": str,
    "sha256": str,
}


def read(path) -> tuple[dict, Any]:
    """Return (what a saved plan says of itself, A with NumPy arrays), checked.

    ValueError, one sentence, where it is wrong.
    """
    name = Path(path).name
    try:
        with zipfile.ZipFile(path) as file:  # of what is packed, a small file may become more than memory holds
            packed = [x.filename for x in file.infolist() if x.compress_type != zipfile.ZIP_STORED]
        require(not packed, f"{', '.join(packed)} is compressed")
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        about = {"deterministic": False} | json.loads(str(arrays.pop("about")))  # which older files lack
        wrong = [key for key, kind in _ABOUT.items() if type(about[key]) is not kind]
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # readers of archives, arrays and JSON raise many kinds
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".") or type(error).__name__
        raise ValueError(f"{name} is no saved plan ({reason}): save it again") from error
    require(not wrong, f"{name} is no saved plan, since its {', '.join(wrong)} cannot be: save it again")
    require(
        about["version"] == VERSION,
        f"{name} is of version {about['version']}, but {VERSION} is read here: save it again",
    )
    kinds = {kind.__name__: kind for kind in operands.FORMATS}
    known = kinds.get(about["format"])
    names = {f.name for f in fields(known) if f.compare} if known else set()
    if known is None or names != arrays.keys() | about["fields"].keys():
        raise ValueError(
            f"{name} holds {about['format']!r} with {', '.join(sorted(arrays))}, which is no format here: save it again"
        )
    require(
        _digest(about, arrays) == about["sha256"],
        f"{name} is damaged, since it has another digest than was written: save it again",
    )
    require_whole(f"n of {name}", about["n"], 0, INT32_MAX, "2^31 - 1")
    operands.resolved(about["accuracy"], about["dtype"])
    for key in ("b_order", "out_order"):
        require(about[key] in ORDERS, f"{key} of {name} is {about[key]!r}, but must be 'C' or 'F'")
    return about, formats.validate(known(**arrays, **about["fields"]))


def _digest(about: dict, arrays: dict) -> str:
    """Of all that a file says and holds, but the digest itself."""
    said = {name: x for name, x in about.items() if name != "sha256"}
    made = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for name, x in sorted(arrays.items()):
        made.update(f"{name} {x.dtype.str} {x.shape}\0".encode())
        made.update(np.ascontiguousarray(x).data if x.size else b"")
    return made.hexdigest()
