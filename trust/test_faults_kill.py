"""kill -9 at any moment, then the same command: in the end there is what an undisturbed run leaves, and no more."""

import pytest

from trust.faults import commands, disturbed, kills, peace_of

PART = "faults"
#: Moments, and writes cut in the middle: quick and full.
EFFORT = {
    "fit": ((4, 2), (99, 20)),
    "apply npz": ((3, 2), (99, 20)),
    "apply csv": ((2, 2), (99, 20)),
    "apply parquet": ((2, 2), (99, 20)),
    "apply folder": ((4, 2), (99, 20)),
    "apply into empty folder": ((4, 1), (99, 20)),
    "report": ((1, 0), (99, 4)),
    "embed": ((10, 2), (999, 40)),
    "reproduce": ((6, 1), (999, 10)),
}


@pytest.mark.parametrize("name", EFFORT)
def test_killed_at_any_moment_a_rerun_ends_as_if_nothing_had_happened(name, effort, tally, tmp_path):
    line = tally(f"kill -9: {name}")
    nursery, peace = commands(), peace_of(name)
    wrong, moments, cut = [], 0, 0
    for number, fault in enumerate(kills(peace, *EFFORT[name][effort.full], seed=len(name))):
        first, odd = disturbed(nursery, peace, tmp_path / str(number), fault)
        if fault.kill_at is None and not first.killed:
            continue  # no file of this run is that large
        odd = odd if first.killed else f"it was to be killed, and ended with {first.code}: {first.said}"
        line.trial(not odd)
        wrong += [f"{fault}: {odd}"] if odd else []
        moments, cut = moments + (fault.kill_at is not None), cut + (fault.cut_at is not None)
    line.figure = f"at {moments} of {len(peace.moments)} moments, {cut} inside a write"
    line.data = {"moments": len(peace.moments), "killed at": moments, "killed inside a write": cut}
    assert line.all_survived, "\n".join(wrong)
