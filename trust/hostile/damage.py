"""Damage: what disks, networks and people with bad intentions do to the bytes of a file, drawn with a seed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: Values that stand where others should, as JSON would have them.
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**63,
    10**30,
    float("inf"),
    float("-inf"),
    float("nan"),
    "",
    "x",
    "1",
    "\x00",
    "a\nb",
    [],
    [None],
    [[]],
    {},
    {"x": None},
    [1, "x"],
)
#: The same as texts, with some that no JSON writer makes.
ODD_WORDS = (
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e400",
    b"-1e400",
    b"NaN",
    b"Infinity",
    b"nan",
    b"inf",
    b"",
    b'""',
    b"[]",
    b"{}",
    b"999999999999",
    b"9223372036854775808",
    b"1" * 5000,
    b"1_000",
    b"0x10",
    b"\x00",
    b"\xff\xfe",
    b"'",
    b'"',
    b",",
    b"\n",
    b"\r",
    b"[" * 3000,
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"1.",
    b"+1",
    b"\xd9\xa3",
    b"1979-05-27",
    b"\\ud800",
)
WORD = re.compile(rb'"[^"\n]{0,60}"|[A-Za-z_]+|-?[0-9]+(?:\.[0-9]+)?')
HUGE = (2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**60, 2**63 - 1, 2**64 - 1, 10**12)


def damaged(sound: bytes, other: bytes, rng: np.random.Generator, *, text: bool) -> bytes:
    """A sound file with one to three kinds of damage; `other` is another file, to splice with.

    In texts, words are replaced as often as bytes are.
    """
    kinds: list[Callable[[bytearray, bytes, np.random.Generator], None]] = [
        _cut,
        _flip,
        _flip,
        _insert,
        _delete,
        _fill,
        _repeat,
        _splice,
        _number,
    ]
    kinds += [_word] * (len(kinds) if text else 2)
    content = bytearray(sound)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        kinds[rng.integers(len(kinds))](content, other, rng)
    return bytes(content)


def _place(content: bytearray, rng: np.random.Generator) -> int:
    """Somewhere, and often at the beginning or the end, where formats keep what matters."""
    size = len(content)
    where = rng.integers(4)
    reach = size if where > 1 else min(size, 160)
    at = int(rng.integers(max(1, reach)))
    return max(0, size - 1 - at) if where == 1 else at


def _cut(content: bytearray, _: bytes, rng: np.random.Generator) -> None:
    del content[_place(content, rng) :]


def _flip(content: bytearray, _: bytes, rng: np.random.Generator) -> None:
    for _ in range(int(rng.integers(1, 5))):
        if content:
            content[_place(content, rng)] ^= 1 << int(rng.integers(8))


def _insert(content: bytearray, _: bytes, rng: np.random.Generator) -> None:
    at = _place(content, rng)
    content[at:at] = rng.bytes(int(rng.choice([1, 2, 4, 8, 100])))


def _delete(content: bytearray, _: bytes, rng: np.random.Generator) -> None:
    at = _place(content, rng)
    del content[at : at + int(rng.choice([1, 2, 4, 8, 100]))]


def _fill(content: bytearray, _: bytes, rng: np.random.Generator) -> None:
    """As of a block that never reached the disk."""
    at, size = _place(content, rng), int(rng.choice([1, 4, 8, 64, 512]))
    stop = min(len(content), at + size)
    content[at:stop] = bytes([int(rng.choice([0, 255]))]) * (stop - at)


def _repeat(content: bytearray, _: bytes, rng: np.random.Generator) -> None:
    at, size = _place(content, rng), int(rng.choice([1, 8, 64, 512]))
    content[at:at] = content[at : at + size] * int(rng.integers(1, 4))


def _splice(content: bytearray, other: bytes, rng: np.random.Generator) -> None:
    content[_place(content, rng) :] = other[_place(bytearray(other), rng) :]


def _number(content: bytearray, _: bytes, rng: np.random.Generator) -> None:
    """A count or a length that is far too large, in the order of bytes that most formats have."""
    width = int(rng.choice([2, 4, 8]))
    at = _place(content, rng)
    value = HUGE[rng.integers(len(HUGE))] % 256**width
    content[at : at + width] = value.to_bytes(width, "little")


def _word(content: bytearray, _: bytes, rng: np.random.Generator) -> None:
    words = list(WORD.finditer(content[:20_000]))
    if words:
        start, stop = words[rng.integers(len(words))].span()
        content[start:stop] = ODD_WORDS[rng.integers(len(ODD_WORDS))]


def odd_fields(value: Any) -> Iterator[tuple[str, Any]]:
    """A JSON value with every one of its values replaced by every odd one, or left out: in words, and as it then is."""
    for place in _places(value):
        for odd in ODD_VALUES:
            yield f"{_said(place)} = {odd!r}", _with(value, place, lambda holder, key, odd=odd: _set(holder, key, odd))
        if place:
            yield f"{_said(place)} left out", _with(value, place, lambda holder, key: holder.pop(key))


def _set(holder: Any, key: Any, odd: Any) -> None:
    holder[key] = odd


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items)[:40]:
        yield from _places(inner, (*place, key))


def _said(place: tuple[Any, ...]) -> str:
    return ".".join(map(str, place)) or "all of it"


def _with(value: Any, place: tuple[Any, ...], change: Callable[[Any, Any], object]) -> Any:
    """The value with a change at a place; what does not lie on the way there is shared, not copied."""
    outer = [value]
    holder: Any = outer
    keys = (0, *place)
    for key in keys[:-1]:
        holder[key] = copy.copy(holder[key])
        holder = holder[key]
    change(holder, keys[-1])
    return outer[0]


def forged(value: Any, rng: np.random.Generator) -> Any:
    """A JSON value of which one to three things are of another kind, size or number, and the rest is as it was."""
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        places = list(_places(value))
        place = places[rng.integers(len(places))]
        value = _with(value, place, lambda holder, key: _forge(holder, key, rng))
    return value


def _forge(holder: Any, key: Any, rng: np.random.Generator) -> None:
    now = holder[key]
    number = float(rng.choice([0, -1, 0.5, 2, 10, 1e6, -1e6, 1e18, 1e99, 1e308]))
    ways: list[Callable[[], Any]] = [
        lambda: ODD_VALUES[rng.integers(len(ODD_VALUES))],
        lambda: [now],
        lambda: {"x": now},
        lambda: "x" * 300_000,
        lambda: list(range(20_000)),
        lambda: _nested(int(rng.choice([20, 60, 400]))),
        lambda: 10 ** int(rng.integers(400)),
    ]
    if isinstance(now, int | float) and not isinstance(now, bool):
        ways += [lambda: number, lambda: now * number, lambda: now + number, lambda: -now, lambda: int(number)] * 3
    if isinstance(now, str):
        ways += [
            lambda: now * 2,
            lambda: now[:-1],
            lambda: now.upper(),
            lambda: f"{now}\u202e\x1b[31m\n",
            lambda: now[::-1],
        ]
    if isinstance(now, list) and now:
        ways += [lambda: now[:-1], lambda: now * 2, lambda: now * 1000, lambda: now[::-1], lambda: [*now, None]] * 2
    if isinstance(now, dict) and now:
        ways += [lambda: dict(list(now.items())[:-1]), lambda: {**now, "more": 1}, lambda: {"x" * 5000: 1, **now}]
    try:
        holder[key] = ways[rng.integers(len(ways))]()
    except OverflowError:  # of a number that was forged before
        holder[key] = number


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def as_json(value: Any) -> bytes:
    """JSON as Python writes it, with NaN and infinity."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


#: Texts that are JSON, or nearly, and hard on those who read them.
ODD_JSON = {
    "nothing": b"",
    "spaces": b" \n ",
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "a text": b'"x"',
    "100,000 brackets": b"[" * 100_000,
    "nested 100,000 times": b"[" * 100_000 + b"]" * 100_000,
    "tables nested 100,000 times": b'{"format":' * 100_000 + b"1" + b"}" * 100_000,
    "a number of 10,000 digits": b'{"format": ' + b"1" * 10_000 + b"}",
    "no UTF-8": b'{"format": "\xff\xfe"}',
    "UTF-16": '{"format": 1}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"format": 1}',
    "half a surrogate": b'{"format": "\\ud800"}',
    "the same key twice": b'{"format": 1, "format": 2}',
    "NUL bytes": bytes(4096),
}
