"""Shapes of groups and methods as SVG paths around the origin, and their colours as a style sheet."""

from __future__ import annotations

from collections.abc import Sequence

from unspur.report.colours import GROUP_MARKERS, Marker, group_look, in_the_dark, method_colours

#: All of about the same area.
PATHS: dict[Marker, str] = {
    "circle": "M4 0A4 4 0 1 1-4 0A4 4 0 1 1 4 0Z",
    "square": "M-3.5-3.5H3.5V3.5H-3.5Z",
    "triangle": "M0-4.8L4.5 3.2H-4.5Z",
    "diamond": "M0-5L5 0L0 5L-5 0Z",
    "cross": "M-4.4-2.6L-2.6-4.4L0-1.8L2.6-4.4L4.4-2.6L1.8 0L4.4 2.6L2.6 4.4L0 1.8L-2.6 4.4L-4.4 2.6L-1.8 0Z",
    "plus": "M-1.5-4.8H1.5V-1.5H4.8V1.5H1.5V4.8H-1.5V1.5H-4.8V-1.5H-1.5Z",
    "down": "M0 4.8L4.5-3.2H-4.5Z",
    "hexagon": "M2.2-3.9L4.5 0L2.2 3.9H-2.2L-4.5 0L-2.2-3.9Z",
}


def group_path(number: int) -> str:
    """Shape of a group."""
    return PATHS[group_look(number)[1]]


def series_path(number: int) -> str:
    """Shape of a method, by its place in the comparison."""
    return PATHS[GROUP_MARKERS[number % len(GROUP_MARKERS)]]


def palette(groups: int, methods: Sequence[str]) -> str:
    """Custom properties --g0, --m0, … for light and dark, and classes .g0, .m0, … that set --mark."""
    colours = method_colours(methods)
    light = {f"g{k}": group_look(k)[0] for k in range(groups)}
    light |= {f"m{k}": colours[name] for k, name in enumerate(methods)}
    dark = {name: in_the_dark(colour) for name, colour in light.items()}
    rules = [
        f":root{{{_properties(light)}}}",
        f"@media screen and (prefers-color-scheme:dark){{:root{{{_properties(dark)}}}}}",
        f":root[data-printing]{{{_properties(light)}}}",
    ]
    return "".join([*rules, *(f".{name}{{--mark:var(--{name})}}" for name in light)])


def _properties(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())
