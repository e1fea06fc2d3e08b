"""How much memory rows in files may take, and what it is spent on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unspur.exceptions import InputError

#: Bytes that a fit keeps for each row besides its features: two labels as given, as codes and as targets, which rows
#: have them, weight, group, cell and fold, and the hash a certificate needs.
PER_ROW = 128
#: Larger pieces of a file are read no faster, and what a piece is worked on in has to fit the cache anyway.
LARGEST_PIECE = 64 * 2**20
#: Pieces that exist at once: one is summed, one waits, and one is decoded, which takes its values, their levels (as
#: large again for float32) and room to grow.
PIECES = 8
#: Fewer rows at a time are not worth a read.
FEWEST_ROWS = 16

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def as_bytes(size: int | str) -> int:
    """Bytes of a size such as ``2_000_000``, "512MB", "1.5 GiB" or "1g"; decimal unless an i says otherwise."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", size.lower()) if isinstance(size, str) else None
    if found is None or found[2] not in _UNITS or int(float(found[1]) * _UNITS[found[2]]) < 1:
        raise InputError(f"{size!r} is not an amount of memory; write a number of bytes, or '500MB', '1GB', '2GiB'.")
    return int(float(found[1]) * _UNITS[found[2]])


def in_words(size: float) -> str:
    """A size for people, such as ``1.2 GB``; rounded up, so that it is enough where it says what is needed."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{-(-size * 10 // unit) / 10:g} {name}"
    return f"{size:g} bytes"


@dataclass(frozen=True, slots=True)
class Budget:
    """A number of bytes, divided among n-long columns, reading, and columns computed from the rows.

    ``total = PER_ROW · rows + overhead + PIECES · piece + 2 room``. `overhead` is what a reader holds besides its
    pieces (pages of every column it reads at once), `piece` a stretch of rows, and `room` what a copy or a projection
    of the rows may take before it goes to a temporary file. The d × d matrices of an algorithm come on top.
    """

    total: int
    rows: int
    row_bytes: int
    overhead: int = 0

    @property
    def needed(self) -> int:
        """The smallest total that would do."""
        return PER_ROW * self.rows + self.overhead + PIECES * FEWEST_ROWS * self.row_bytes

    @property
    def piece_rows(self) -> int:
        """Rows to read at a time."""
        share = (self.total - PER_ROW * self.rows - self.overhead) // (2 * PIECES)
        return max(FEWEST_ROWS, min(share, LARGEST_PIECE) // max(1, self.row_bytes))

    @property
    def reading(self) -> int:
        """Bytes that reading may take."""
        return self.overhead + PIECES * self.piece_rows * self.row_bytes

    @property
    def room(self) -> int:
        """Bytes for a copy of the rows, or for columns that are computed from them; twice that is free."""
        return max(0, self.total - PER_ROW * self.rows - self.reading) // 2

    def require_enough(self, what: str) -> None:
        """Raise InputError with the sum that was done, unless the total suffices."""
        if self.total >= self.needed:
            return
        raise InputError(
            f"memory={in_words(self.total)} is too little for {what}: {self.rows:,} rows × {PER_ROW} bytes for labels, "
            f"weights and hashes are {in_words(PER_ROW * self.rows)}, and reading takes at least "
            f"{in_words(self.needed - PER_ROW * self.rows)}"
            + (f" ({in_words(self.overhead)} for the pages of one row group)" if self.overhead else "")
            + f". Pass memory='{-(-self.needed // 10**6)}MB' or more"
            + (", or write the file with smaller row groups." if self.overhead > self.needed / 2 else ".")
        )


def divide(total: int, budgets: Sequence[Budget]) -> list[int]:
    """Shares of a total for rows that are used together: what each needs, and of the rest in proportion to its rows."""
    needed = [budget.needed for budget in budgets]
    rest = total - sum(needed)
    if rest < 0:
        raise InputError(
            f"memory={in_words(total)} is too little for training and validation rows together, which need "
            f"{' and '.join(map(in_words, needed))}. Pass memory='{-(-sum(needed) // 10**6)}MB' or more."
        )
    rows = sum(budget.rows for budget in budgets)
    return [least + rest * budget.rows // rows for least, budget in zip(needed, budgets, strict=True)]
