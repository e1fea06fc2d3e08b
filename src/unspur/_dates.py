"""Dates and durations as numbers of seconds, whatever the unit or the kind of object they come in."""

from __future__ import annotations

from datetime import UTC, date
from typing import Any

import numpy as np

from unspur._arrays import is_missing
from unspur._typing import Array, FloatArray

_SECOND = np.timedelta64(1, "s")


def dates_in(values: Any) -> Array | None:
    """Dates or durations as an array of datetime64 or timedelta64; None if `values` are something else.

    Python's dates and pandas' Timestamps and Periods become datetime64, a Period by its start. Dates with a time zone
    become UTC.
    """
    kind = getattr(values, "dtype", None)
    zoned = getattr(kind, "tz", None) is not None
    array = np.asarray(values, dtype=f"datetime64[{getattr(kind, 'unit', 'ns')}]" if zoned else None)
    if array.dtype.kind in "mM":
        return array
    known = (value for value in array.flat if not is_missing(value)) if array.dtype.kind == "O" else iter(())
    if not is_date(next(known, None)):
        return None
    return np.array([as_date(value) for value in array.flat], dtype="datetime64[us]").reshape(array.shape)


def holds_dates(values: Any) -> bool:
    """Whether values are dates; durations are not."""
    dates = dates_in(values)
    return dates is not None and dates.dtype.kind == "M"


def date_text(number: float) -> str:
    """The date of a number of seconds since 1970, with no more digits than it needs."""
    time = np.datetime64(round(number * 1e6), "us")
    unit = next((unit for unit in ("D", "s") if time.astype(f"datetime64[{unit}]") == time), "us")
    return str(time.astype(f"datetime64[{unit}]"))


def is_date(value: Any) -> bool:
    """Whether a value is a date, or a period that starts at one."""
    return isinstance(value, date | np.datetime64) or hasattr(value, "to_timestamp")


def as_date(value: Any) -> np.datetime64:
    """A date, or its text, as datetime64 in UTC; NaT if it is missing. Raises TypeError or ValueError otherwise."""
    if is_missing(value):
        return np.datetime64("NaT", "us")
    if hasattr(value, "to_timestamp"):  # a Period
        value = value.to_timestamp()
    if hasattr(value, "to_datetime64"):  # a Timestamp, which has nanoseconds
        value = value.to_datetime64()
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if not is_date(value) and not isinstance(value, str):
        raise TypeError(f"{value!r} is no date")
    return np.datetime64(value)


def seconds(dates: Array) -> FloatArray:
    """Dates as seconds since 1970-01-01, and durations in seconds; NaN for NaT.

    The same date gives the same number in every unit: whole seconds and the rest are converted apart, since
    nanoseconds since 1970 have more digits than a float64.
    """
    kind = f"{dates.dtype.kind}8[s]"
    whole = dates.astype(kind)
    if np.datetime_data(dates.dtype)[0] in ("Y", "M"):  # numpy subtracts no seconds from months
        dates = whole
    return np.asarray((whole - np.zeros((), kind)) / _SECOND + (dates - whole) / _SECOND)
