"""Format numbers and names for sentences and tables."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from unspur._text import is_number
from unspur.metrics import GroupAccuracy
from unspur.report.results import Findings

#: Names that read well in a sentence without quotation marks: one to three words that start in lower case.
_WORDLIKE = re.compile(r"[^\W\d_A-Z]\w*([ -][^\W_]+){0,2}")
_MAX_NAME_IN_SENTENCE = 40
#: Characters that are not allowed on a page: surrogates (of file names that are not UTF-8), controls, and marks that
#: would change the direction of the text after a name.
_UNFIT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]|([\u202a-\u202e\u2066-\u2069])")
_DIGITS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
#: Longest name of a class or a label in the name of a group, and longest name of an axis.
MAX_CLASS_NAME, MAX_AXIS_NAME = 48, 80
#: What a removal does not guarantee.
CAVEAT = (
    "Linear removal hides a concept from linear classifiers on rows like these. A nonlinear network may still find it, "
    "and other rows may differ. A model whose inputs carry no information about an attribute is not necessarily fair."
)
#: Most decimals of a bound in points.
MAX_DIGITS = 4


def percent(share: float, digits: int = 1) -> str:
    """A share as "69.5 %"; NaN is "not known"."""
    return "not known" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def chance(share: float) -> str:
    """A share without needless decimals: "50 %", "12.5 %", "33.3 %"."""
    return percent(share, 0 if math.isclose(100 * share, round(100 * share)) else 1)


def bounds(low: float, high: float, digits: int = 1) -> str:
    """Bounds of a share in percent, "64.9 – 73.7"."""
    return f"{100 * low:.{digits}f} – {100 * high:.{digits}f}"


def signed(share: float, digits: int = 1) -> str:
    """A difference of shares in points with its sign, "+1.2", "−0.4"; zero has no sign."""
    text = f"{100 * abs(share):.{digits}f}"
    if not float(text):
        return text
    return ("−" if share < 0 else "+") + text


def clear_digits(low: float, high: float, digits: int = 1) -> int:
    """Decimals, at least `digits`, with which neither of two bounds on one side of zero is shown as zero."""
    nearest = 100 * min(abs(low), abs(high))
    while low * high > 0 and digits < MAX_DIGITS and not float(f"{nearest:.{digits}f}"):
        digits += 1
    return digits


def signed_bounds(low: float, high: float, digits: int = 1) -> str:
    """Bounds of a difference in points, "−0.7 to +0.1"; "+0.04 to +2.71" if zero lies outside."""
    digits = clear_digits(low, high, digits)
    return f"{signed(low, digits)} to {signed(high, digits)}"


def number(value: float, digits: int = 2) -> str:
    """A plain number with a proper minus sign."""
    if not math.isfinite(value):
        return "–"
    text = f"{abs(value):.{digits}f}"
    return f"−{text}" if value < 0 and float(text) else text


def digits_for(reach: float) -> int | None:
    """Decimals that show three figures of scores up to `reach`; None where a power of ten is shorter."""
    if not 1e-3 <= reach < 1e5:
        return None if 0.0 < reach < math.inf else 2
    return 2 - math.floor(math.log10(reach)) if reach < 1.0 else 2 if reach < 1000.0 else 0


def score(value: float | None, digits: int | None = 2) -> str:
    """A score with so many decimals, or (None) as a power of ten; a missing score is a dash."""
    if value is None:
        return "–"
    if digits is not None or value == 0.0 or not math.isfinite(value):
        return number(value, 2 if digits is None else digits)
    return _power(value)


def count(value: int) -> str:
    """A whole number with thin gaps between thousands."""
    return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)


def statistic(t: float) -> str:
    """A t statistic to three figures; beyond ten thousand a power of ten."""
    if abs(t) >= 10_000:
        return _power(t)
    digits = 2 if abs(t) < 10 else 1 if abs(t) < 100 else 0
    return number(t, digits)


def _power(value: float) -> str:
    """A number as "1.2 × 10⁵"."""
    figures, exponent = f"{abs(value):.1e}".split("e")
    return f"{'−' if value < 0 else ''}{figures} × 10{str(int(exponent)).translate(_DIGITS)}"


def p_value(p: float) -> str:
    """A p-value to two figures, or "< 0.0001"."""
    if math.isnan(p):
        return "–"
    if p < 1e-4:
        return "< 0.0001"
    return f"{p:.4f}" if p < 1e-3 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def plural(n: int, one: str, many: str = "") -> str:
    """A number with its noun: "1 direction", "2 directions"."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


def named(name: str) -> str:
    """A label in a sentence, in quotation marks unless it reads like a word; long names are cut."""
    if _WORDLIKE.fullmatch(name) and len(name) <= _MAX_NAME_IN_SENTENCE:
        return name
    return f"“{clipped(name, _MAX_NAME_IN_SENTENCE)}”"


def the(name: str) -> str:
    """A label with an article: "the background", or "the concept “Male”" if it is quoted."""
    return f"the {name}" if named(name) == name else f"the concept {named(name)}"


def join_with_and(parts: Sequence[str]) -> str:
    """Parts as in a sentence: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else list(parts))


def clipped(text: str, most: int) -> str:
    """Text on one line, cut to `most` characters with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def fit(text: str) -> str:
    """Text for a page: marks of direction are dropped, and other unfit characters replaced."""
    return _UNFIT.sub(lambda found: "" if found.group(1) else "\ufffd", text)


def capital(text: str) -> str:
    """Text with its first letter in upper case; unlike str.capitalize, the rest stays."""
    return text[:1].upper() + text[1:]


def with_short_names(findings: Findings) -> Findings:
    """Findings with groups named "waterbird · land" instead of "bird=waterbird, background=land".

    Groups keep their labels where a class is a number, and names that the user chose stay. Long names are cut, and
    paths lose the folders that they have in common.
    """
    axes = tuple(replace(axis, name=clipped(axis.name, MAX_AXIS_NAME)) for axis in findings.view.axes)
    groups, accuracy = findings.groups, findings.before.accuracy
    if accuracy is not None and groups == tuple(accuracy.labels()):
        groups = short_groups(accuracy)
    return replace(findings, groups=groups, ids=ends_of_paths(findings.ids), view=replace(findings.view, axes=axes))


def ends_of_paths(names: Sequence[str]) -> tuple[str, ...]:
    """Paths without folders, or with as many as tell them apart; other names stay.

    So a page does not disclose where pictures lie on a machine.
    """
    if not any("/" in name for name in names) or not all(PurePosixPath(name).suffix for name in names):
        return tuple(names)
    parts = [[part for part in name.split("/") if part] or [name] for name in names]
    different = len(set(names))
    for kept in range(1, max(map(len, parts)) + 1):
        ends = tuple("/".join(one[-kept:]) for one in parts)
        if len(set(ends)) == different:
            break
    return ends


def short_groups(accuracy: GroupAccuracy) -> tuple[str, ...]:
    """Short names of all groups; names that are equal after they are cut get a number."""
    labels = [clipped(name, MAX_CLASS_NAME) for name in accuracy.names]
    classes = [[clipped(str(value), MAX_CLASS_NAME) for value in values] for _, values in accuracy.groups()]
    if all(_is_name(value) for level in accuracy.levels for value in level):
        names = [" · ".join(values) for values in classes]
    else:
        names = [", ".join(f"{n}={v}" for n, v in zip(labels, values, strict=True)) for values in classes]
    total, seen, found = Counter(names), Counter[str](), []
    for name in names:
        seen[name] += 1
        found.append(f"{name} ({seen[name]})" if total[name] > 1 else name)
    return tuple(found)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not is_number(value)
