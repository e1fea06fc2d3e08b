"""Several processes in one folder, some of them killed, and clocks that go back: the results are those of one run."""

import os
import random
import time

import pytest

from trust.faults import chosen, commands, differences, disturbed, fresh, half_read, peace_of, rerun, snapshot
from trust.nursery import Fault, Job

PART = "faults"
DAY = 86400.0
BUSY = "is already at work"
VERBS = ("fit", "apply folder", "embed", "reproduce")


def unfinished(ends) -> str:
    """What is wrong with how processes ended that were not killed: all are done, or say that another one is at it."""
    odd = [end for end in ends if not end.killed and end.code != 0 and not (end.code == 1 and BUSY in end.said)]
    if odd:
        return f"one ended with {odd[0].code}: {odd[0].said[-300:]}"
    return "" if any(end.code == 0 for end in ends) or any(end.killed for end in ends) else "none of them did it"


@pytest.mark.parametrize("name", VERBS)
def test_processes_that_do_the_same_at_the_same_time_leave_what_one_would(name, effort, tally, tmp_path):
    line, nursery, peace, wrong = tally(f"2 or 3 processes at once: {name}"), commands(), peace_of(name), []
    for seed in range(effort.times(2, 40)):
        folder = fresh(tmp_path / str(seed), peace.work)
        faults = [Fault(jitter=10 * seed + number) for number in range(2 + seed % 2)]
        ends = nursery.together(*(peace.work.job(folder, fault) for fault in faults))
        odd = unfinished(ends) or differences(peace.result, snapshot(folder))
        line.trial(not odd)
        wrong += [f"seed {seed}: {odd}"] if odd else []
    busy = "; the store is for one at a time" if name == "embed" else ""
    line.figure = f"results of one run{busy}"
    assert line.all_survived, "\n".join(wrong)


@pytest.mark.parametrize("name", VERBS)
def test_one_of_three_that_is_killed_takes_nothing_with_it(name, effort, tally, tmp_path):
    line, nursery, peace, wrong = tally(f"one of 3 processes killed: {name}"), commands(), peace_of(name), []
    moments = range(1, len(peace.moments) + 1)
    for seed in random.Random(5).sample(moments, len(moments)):
        if line.tried == effort.times(2, 40):
            break
        folder = fresh(tmp_path / str(seed), peace.work)
        faults = [Fault(jitter=seed, kill_at=seed), Fault(jitter=seed + 1), Fault(jitter=seed + 2)]
        ends = nursery.together(*(peace.work.job(folder, fault) for fault in faults))
        odd = unfinished(ends) or half_read(peace, folder) or rerun(nursery, peace, folder)
        if ends[0].killed or odd:  # another one may have been at it first, and this one not come so far
            line.trial(not odd)
        wrong += [f"moment {seed}: {odd}"] if odd else []
    line.figure = "each at another moment"
    assert line.tried > 0
    assert line.all_survived, "\n".join(wrong)


def test_two_halves_of_an_experiment_end_up_in_one_table_and_one_pack(effort, tally, tmp_path):
    """Each process computes one method and draws what there is; the last one has to have seen both."""
    line, nursery, peace, wrong = (
        tally("two methods, a process each, one results folder"),
        commands(),
        peace_of("reproduce"),
        [],
    )
    for seed in range(effort.times(3, 60)):
        folder = fresh(tmp_path / str(seed), peace.work)
        jobs = [
            Job((*peace.work.command, "--only", method), folder, Fault(jitter=100 * seed + number))
            for number, method in enumerate(("ERM", "LEACE"))
        ]
        ends = nursery.together(*jobs)
        odd = unfinished(ends) or differences(peace.result, snapshot(folder))
        line.trial(not odd)
        wrong += [f"seed {seed}: {odd}"] if odd else []
    line.figure = "no record lost"
    assert line.all_survived, "\n".join(wrong)


def test_a_clock_that_jumps_back_a_day_at_every_step_changes_nothing(effort, tally, tmp_path):
    line, nursery, wrong = tally("clock jumps a day back at every step"), commands(), []
    for name in (*VERBS, *(("report", "apply npz") if effort.full else ())):
        peace = peace_of(name)
        folder = fresh(tmp_path / name, peace.work)
        end = nursery.run(peace.work.job(folder, Fault(clock=-DAY)))
        odd = (end.said if end.code else "") or differences(peace.result, snapshot(folder))
        line.trial(not odd)
        wrong += [f"{name}: {odd}"] if odd else []
    assert line.all_survived, "\n".join(wrong)


def test_files_of_a_killed_process_from_next_year_or_long_ago_are_taken_up_alike(effort, tally, tmp_path):
    line, nursery, wrong = tally("killed, clock set by 400 days, rerun"), commands(), []
    for name in VERBS:
        peace = peace_of(name)
        for moment in chosen(range(1, len(peace.moments) + 1), effort.times(2, 25), seed=7):
            folder = fresh(tmp_path / f"{name} {moment}", peace.work)
            first = nursery.run(peace.work.job(folder, Fault(kill_at=moment)))
            assert first.killed, first.said
            then = time.time() + random.Random(moment).choice((-400, 400)) * DAY
            for path in [folder, *folder.rglob("*")]:
                os.utime(path, (then, then))
            odd = rerun(nursery, peace, folder)
            line.trial(not odd)
            wrong += [f"{name}, moment {moment}: {odd}"] if odd else []
    line.figure = "half of them forwards, half back"
    assert line.all_survived, "\n".join(wrong)


def test_killed_after_a_time_of_the_clock_on_the_wall(effort, tally, tmp_path):
    """Not at a change of a file but anywhere: in the middle of arithmetic, of a library, of a system call."""
    line, nursery, peace, wrong = tally("kill -9 at random times: reproduce"), commands(), peace_of("reproduce"), []
    rng = random.Random(0)
    for number in range(effort.times(3, 60)):
        fault = Fault(kill_after=0.02 + 0.6 * rng.random())
        first, odd = disturbed(nursery, peace, tmp_path / str(number), fault)
        if first.killed:
            line.trial(not odd)
        wrong += [f"{fault}: {odd}"] if odd else []
    assert line.all_survived, "\n".join(wrong)
