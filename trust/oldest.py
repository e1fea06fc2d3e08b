"""constraints-oldest.txt from the lower bounds of pyproject.toml: ``python -m trust.oldest``."""

from __future__ import annotations

from trust.declared import ROOT, declared

TARGET = ROOT / "constraints-oldest.txt"
#: Versions that stand in for the lowest one, with the reason.
INSTEAD = {"torch": ("2.13.0", "the build for CPUs that constraints.txt pins; older ones come with gigabytes for GPUs")}
#: Runs the tests: newer ones complain of how scikit-learn 1.6 makes its own.
TOOLS = ("pytest",)
#: What others bring along, where a newer version does not go with the oldest of ours.
ALONG = {
    "pyparsing<3.3": "later ones warn of how matplotlib calls them",
}
HEADER = """\
# The oldest versions that pyproject.toml declares to work, for `make test-oldest`.
# Written by `python -m trust.oldest`; a test compares.
"""


def oldest() -> str:
    """The file: a pin for each requirement of the core and of the extras that users have."""
    wanted = [one for one in declared(developers=True) if one.extra not in ("docs", "dev") or one.name in TOOLS]
    lines = {}
    for one in wanted:
        version, reason = INSTEAD.get(one.name, (str(one.lowest), ""))
        lines[one.name] = f"{one.name}=={version}" + (f"  # instead of {one.lowest}: {reason}" if reason else "")
    along = [f"{pin}  # {reason}" for pin, reason in ALONG.items()]
    return HEADER + "\n".join([*(lines[name] for name in sorted(lines)), *along]) + "\n"


if __name__ == "__main__":
    TARGET.write_text(oldest(), encoding="utf-8")
