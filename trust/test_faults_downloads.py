"""A download, disturbed in every way a server and a process can: the dataset is complete in the end, or not there."""

import hashlib
import io
import random
import tarfile

import pytest
from reproduction.tests.datasets.serving import serving

from trust.faults import Work, chosen, commands, differences, fresh, half_read, kills, rerun, snapshot, undisturbed
from trust.nursery import Fault

PART = "faults"
FOLDER = "waterbird_complete95_forest2water2"
#: Short pauses between attempts, and little patience with a server that says nothing.
QUICK = {
    "unspur_paper.datasets.downloads.fetch:fetch.__kwdefaults__": {
        "size": None,
        "checksum": None,
        "stated_by": "",
        "tries": 3,
        "pause": 0.01,
    },
    "unspur_paper.datasets.downloads.fetch:_BLOCK": 4096,
    "unspur_paper.datasets.downloads.web:_TIMEOUT": 0.5,
}


def archive() -> bytes:
    """Pictures that do not compress, so that half of the file is half of them."""
    rng, made = random.Random(0), io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name in ("metadata.csv", *(f"{kind}/{number}.jpg" for kind in "ab" for number in range(3))):
            content = b"img_id\n" if name.endswith("csv") else rng.randbytes(20_000)
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


@pytest.fixture
def web():
    with serving(archive()) as served:
        yield served


@pytest.fixture
def peace(web):
    work = Work("data", ("data", "waterbirds", "--root", "root", "--url", web.url), QUICK)
    return undisturbed(commands(), work)


def test_killed_at_any_moment_of_a_download_a_rerun_completes_it(peace, effort, tally, tmp_path):
    line, nursery, wrong, moments = tally("kill -9: data"), commands(), [], 0
    for number, fault in enumerate(kills(peace, *((10, 6), (99, 60))[effort.full], seed=1)):
        folder = fresh(tmp_path / str(number), peace.work)
        first = nursery.run(peace.work.job(folder, fault))
        odd = half_read(peace, folder) or rerun(nursery, peace, folder)
        if first.killed:
            moments += fault.kill_at is not None
            line.trial(not odd)
        wrong += [f"{fault}: {odd}"] if odd else []
    line.figure = f"at {moments} of {len(peace.moments)} moments, {line.tried - moments} inside a write"
    assert line.all_survived, "\n".join(wrong)


def test_a_connection_that_drops_at_any_byte_is_taken_up_again_by_itself(web, peace, effort, tally, tmp_path):
    line, nursery, wrong, size = tally("connection dropped in mid-file"), commands(), [], len(web.content)
    for number, byte in enumerate(chosen(range(1, size), effort.times(6, 100), seed=2)):
        folder = fresh(tmp_path / str(number), peace.work)
        web.script, before = [f"drop:{byte}", f"drop:{(size - byte) // 2}"], len(web.asked)
        end = nursery.run(peace.work.job(folder))
        resumed = "Range" in web.asked[-1]
        odd = end.said if end.code else differences(peace.result, snapshot(folder))
        odd = odd or ("" if resumed and len(web.asked) == before + 3 else "it began anew")
        line.trial(not odd)
        wrong += [f"after {byte} bytes: {odd}"] if odd else []
    line.figure = "twice each; only what was missing was sent again"
    assert line.all_survived, "\n".join(wrong)


#: What a server may do to one answer after the other; "{}" is a number of bytes. Then it answers well.
SERVERS = {
    "answers 500, then 503": ["500", "503"],
    "says nothing more after some bytes": ["stall:{}"],
    "promises more bytes than it has": ["lie:{}"],
    "drops, then ignores the range asked for": ["drop:{}", "whole"],
    "drops, then sends another piece": ["drop:{}", "off:7"],
    "drops, then asks to come back later": ["drop:{}", "429"],
    "drops twice before the first byte": ["drop:0", "drop:0"],
}


def test_a_server_that_misbehaves_does_no_harm(web, peace, effort, tally, tmp_path):
    line, nursery, wrong, rng = tally("server misbehaves, then recovers"), commands(), [], random.Random(3)
    for number in range(effort.times(1, 10)):
        for what, script in SERVERS.items():
            folder = fresh(tmp_path / f"{what} {number}", peace.work)
            web.script = [step.format(rng.randrange(1, len(web.content))) for step in script]
            end = nursery.run(peace.work.job(folder))
            web.go.set()
            web.go.clear()
            odd = "" if end.code in (0, 1) and "Fault" not in end.said else f"it ended with {end.code}: {end.said}"
            odd = odd or half_read(peace, folder) or rerun(nursery, peace, folder)
            line.trial(not odd)
            wrong += [f"{what}: {odd}"] if odd else []
    line.figure = f"in {len(SERVERS)} ways"
    assert line.all_survived, "\n".join(wrong)


def test_wrong_content_is_never_taken_for_the_dataset(web, peace, effort, tally, tmp_path):
    """Without a published checksum it is the archive that has to tell: any byte of it changed, or any cut."""
    line, nursery, wrong, good, rng = (
        tally("wrong content, then the right one"),
        commands(),
        [],
        web.content,
        random.Random(4),
    )
    refused = 0
    for number in range(effort.times(6, 100)):
        folder = fresh(tmp_path / str(number), peace.work)
        at = rng.randrange(len(good))
        bad = (
            good[:at] + bytes([good[at] ^ (1 + rng.randrange(255))]) + good[at + 1 :],
            good[:at],
            b"<html>please log in</html>",
            good[:at] + rng.randbytes(512) + good[at:],
        )
        web.content = bad[number % len(bad)]
        web.headers["ETag"] = f'"{hashlib.sha256(web.content).hexdigest()}"'
        end = nursery.run(peace.work.job(folder))
        # A changed byte of the gzip header (its time, say) changes nothing that is unpacked.
        harmless = end.code == 0 and not differences(_files(peace.result), _files(snapshot(folder)))
        odd = "" if end.code == 1 or harmless else f"it ended with {end.code}: {end.said}"
        refused += end.code == 1
        web.content, web.headers["ETag"] = good, '"one"'
        odd = odd or ("" if harmless else half_read(peace, folder) or rerun(nursery, peace, folder))
        line.trial(not odd)
        wrong += [f"{number}: {odd}"] if odd else []
    line.figure = f"{refused} refused, {line.tried - refused} changed nothing that is unpacked"
    assert line.all_survived, "\n".join(wrong)


def _files(result: dict[str, str]) -> dict[str, str]:
    """The dataset without the record of where it came from."""
    return {name: content for name, content in result.items() if not name.endswith(".download.json")}


def test_two_processes_that_fetch_the_same_dataset(peace, effort, tally, tmp_path):
    line, nursery, wrong = tally("2 or 3 processes at once: data"), commands(), []
    for seed in range(effort.times(2, 40)):
        folder = fresh(tmp_path / str(seed), peace.work)
        kill = [None, *chosen(range(1, len(peace.moments)), 1, seed)][seed % 2]
        faults = [Fault(jitter=seed, kill_at=kill), *(Fault(jitter=seed + n) for n in range(1, 2 + seed % 2))]
        ends = nursery.together(*(peace.work.job(folder, fault) for fault in faults))
        odd = [end.said for end in ends if not end.killed and end.code and "is already at work" not in end.said]
        odd = "".join(odd) or half_read(peace, folder) or rerun(nursery, peace, folder)
        line.trial(not odd)
        wrong += [f"seed {seed}: {odd}"] if odd else []
    line.figure = "one of them killed, in half of the trials"
    assert line.all_survived, "\n".join(wrong)
