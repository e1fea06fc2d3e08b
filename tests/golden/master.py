"""The file of answers, and how two answers are compared."""

import json
from pathlib import Path

import numpy as np

#: Key of the entry that says where the others were made.
MACHINE = "machine"
MASTER = Path(__file__).with_name("master.json")


def plain(value):
    """Values as JSON holds them; what is not finite becomes a word."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.13g}") if np.isfinite(value) else str(value)
    return value


def read() -> dict:
    return json.loads(MASTER.read_text()) if MASTER.exists() else {}


def write(answers: dict) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(plain(answers[key]), sort_keys=True)}" for key in sorted(answers)]
    MASTER.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def differences(found, wanted, tolerance, place=""):
    """Where two answers differ, as (place, found, wanted); `tolerance` is relative to the largest number beside."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted({*wanted, *found}):
            if key not in wanted or key not in found:
                yield f"{place}.{key}", found.get(key, "nothing"), wanted.get(key, "nothing")
            else:
                yield from differences(found[key], wanted[key], tolerance, f"{place}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            yield place, f"{len(found)} of them", f"{len(wanted)} of them"
        elif wanted and all(isinstance(item, float) for item in (*wanted, *found)):
            if not np.allclose(found, wanted, rtol=0.0, atol=tolerance * max(1.0, np.abs(wanted).max())):
                yield place, found, wanted
        else:
            for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
                yield from differences(one, other, tolerance, f"{place}[{i}]")
    elif isinstance(wanted, float) and isinstance(found, float):
        if abs(found - wanted) > tolerance * max(1.0, abs(wanted)):
            yield place, found, wanted
    elif type(wanted) is not type(found) or wanted != found:
        yield place, found, wanted
