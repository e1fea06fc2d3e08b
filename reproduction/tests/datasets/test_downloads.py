"""Downloads against a real server that misbehaves, from one file to a whole dataset."""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from reproduction.tests.datasets.making import everything, lay, make_zip, tar
from reproduction.tests.datasets.serving import serving
from unspur.exceptions import InputError, OutputExistsError
from unspur_paper.datasets.downloads import (
    PUBLICATIONS,
    Archive,
    ArchiveError,
    ChecksumError,
    DownloadError,
    Part,
    Publication,
    obtain,
)
from unspur_paper.datasets.downloads.fetch import fetch
from unspur_paper.files import BusyError, hold

CONTENT = random.Random(0).randbytes(700_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def web():
    with serving(CONTENT) as served:
        yield served


def get(web, folder, **options):
    """Fetch without waiting between attempts."""
    return fetch(web.url, folder / "file", pause=0, **options)


def ranges(web):
    return [headers.get("Range") for headers in web.asked]


# ---------------------------------------------------------------- fetching


def test_a_file_arrives_whole_and_is_compared(web, tmp_path):
    assert get(web, tmp_path, size=len(CONTENT), checksum=f"sha256:{SHA}") == SHA
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert not (tmp_path / "file.part").exists()
    md5 = hashlib.md5(CONTENT).hexdigest()
    assert get(web, tmp_path, checksum=f"md5:{md5}") == SHA  # the file that is there is used
    assert len(web.asked) == 1


@pytest.mark.parametrize("step", ["drop:300000", "500", "503", "lie:5", "429"])
def test_a_transfer_that_ends_early_is_taken_up_again(web, tmp_path, step):
    web.script = [step]
    assert get(web, tmp_path, checksum=f"sha256:{SHA}") == SHA
    resumed = {"drop:300000": "bytes=300000-", "lie:5": f"bytes={len(CONTENT)}-"}.get(step)
    assert ranges(web)[:2] == [None, resumed]
    if resumed:
        assert web.asked[1]["If-Range"] == '"one"'


def test_progress_between_failures_is_worth_more_attempts(web, tmp_path):
    web.script = [f"drop:{60_000}"] * 9
    assert get(web, tmp_path, tries=2) == SHA
    assert len(web.asked) == 10


def test_a_server_that_ignores_range_starts_again_cleanly(web, tmp_path):
    web.script = ["drop:300000", "whole"]
    assert get(web, tmp_path) == SHA
    assert ranges(web) == [None, "bytes=300000-"]


@pytest.mark.parametrize("step", ["good", "blind"])
def test_a_file_that_changed_meanwhile_is_not_mixed_with_the_old(web, tmp_path, step):
    web.script = ["drop:300000", "404"]
    with pytest.raises(DownloadError, match="answered 404"):
        get(web, tmp_path)
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:300_000]
    web.content = CONTENT[::-1]
    web.headers["ETag"] = '"two"'
    web.headers["Last-Modified"] = "Tue, 02 Jan 2024 00:00:00 GMT"
    web.script = [step]
    assert get(web, tmp_path) == hashlib.sha256(CONTENT[::-1]).hexdigest()
    assert ranges(web)[2] == "bytes=300000-"


def test_another_piece_than_asked_for_is_not_taken(web, tmp_path):
    web.script = ["drop:300000", "off:1000"]
    assert get(web, tmp_path) == SHA
    assert ranges(web) == [None, "bytes=300000-", None]


def test_a_part_from_another_address_is_not_taken(web, tmp_path):
    web.script = ["drop:300000", "404"]
    with pytest.raises(DownloadError):
        get(web, tmp_path)
    with serving(CONTENT[::-1]) as mirror:  # with the same marks
        assert get(mirror, tmp_path) == hashlib.sha256(CONTENT[::-1]).hexdigest()
    assert get(web, tmp_path) == SHA  # nor is the whole


def test_without_a_mark_to_compare_nothing_is_resumed(web, tmp_path):
    web.headers = {}
    web.script = ["drop:300000"]
    assert get(web, tmp_path) == SHA
    assert ranges(web) == [None, None]
    web.headers = {"ETag": 'W/"weak"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    web.script = ["drop:300000"]
    fetch(web.url, tmp_path / "other", pause=0)
    assert web.asked[3]["If-Range"] == "Mon, 01 Jan 2024 00:00:00 GMT"


def test_giving_up_says_how_far_it_came_and_the_next_call_goes_on(web, tmp_path):
    web.script = ["drop:300000", *["drop:0"] * 2]
    with pytest.raises(DownloadError, match=r"300,000 of 700,000 bytes arrived.*the same command goes on from there"):
        get(web, tmp_path, tries=3)
    assert not (tmp_path / "file").exists()
    assert get(web, tmp_path) == SHA
    assert ranges(web)[-1] == "bytes=300000-"


def test_a_server_that_claims_too_much_is_given_up(web, tmp_path):
    web.script = ["lie:5"] * 9
    with pytest.raises(DownloadError, match="attempts came no further"):
        get(web, tmp_path, tries=3)
    assert not (tmp_path / "file").exists()


def test_a_body_without_length_is_held_to_the_stated_size(web, tmp_path):
    web.script = ["open"]
    assert get(web, tmp_path, size=len(CONTENT)) == SHA
    web.script = ["open"]
    with pytest.raises(DownloadError, match="sends more than the 1,000 bytes"):
        fetch(web.url, tmp_path / "other", size=1000, pause=0)


def test_another_size_is_refused_before_it_is_fetched(web, tmp_path):
    with pytest.raises(DownloadError, match=r"offers 700,000 bytes; the published file has 5"):
        get(web, tmp_path, size=5)
    assert everything(tmp_path) == {}


def test_a_wrong_checksum_shows_both_and_keeps_nothing(web, tmp_path):
    with pytest.raises(ChecksumError, match=f"its sha256 is {SHA}; somebody states {'0' * 64}"):
        get(web, tmp_path, checksum="sha256:" + "0" * 64, stated_by="somebody")
    assert everything(tmp_path) == {}
    assert get(web, tmp_path, checksum=f"sha256:{SHA.upper()}") == SHA


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://host/a",
        "host/a",
        "http://",
        "http://a:b/c",
        "http://h/ä",
        "http://h/a b",
        "http://me:secret@h/a",
        "",
    ],
)
def test_only_plain_web_addresses(tmp_path, url):
    with pytest.raises(InputError) as error:
        fetch(url, tmp_path / "file")
    assert "secret" not in str(error.value)


def test_redirects_lead_to_the_web_only(web, tmp_path):
    for away in ("file:///etc/passwd", "ftp://127.0.0.1/file"):
        web.script = [f"to:{away}"]
        with pytest.raises(DownloadError, match="sends on to"):
            get(web, tmp_path)
    web.script = [f"to:{web.url}2"]
    assert get(web, tmp_path) == SHA


def test_damaged_notes_start_again(web, tmp_path):
    for note in ("", "[]", '{"url": 1}', "\udc80"):
        (tmp_path / "file").unlink(missing_ok=True)
        (tmp_path / "file.part").write_bytes(b"something else")
        (tmp_path / "file.json").write_text(note, errors="surrogateescape")
        assert get(web, tmp_path) == SHA


def test_a_server_that_has_less_than_was_begun(web, tmp_path):
    web.script = ["drop:300000", "404"]
    with pytest.raises(DownloadError):
        get(web, tmp_path)
    web.content = CONTENT[:100_000]
    assert get(web, tmp_path) == hashlib.sha256(CONTENT[:100_000]).hexdigest()


# ---------------------------------------------------------------- one at a time


@pytest.mark.parametrize("content", [None, "", "rubbish", "1", "²", "9" * 5000, "-1 elsewhere x"])
def test_a_lock_is_held_once_whatever_an_earlier_process_left_in_it(tmp_path, content):
    lock = tmp_path / "a.lock"
    if content is not None:
        lock.write_text(content, encoding="utf-8")
    with hold(lock):
        with pytest.raises(BusyError, match=rf"Process {os.getpid()} is already at work"), hold(lock):
            pass
        assert lock.exists()
    assert everything(tmp_path) == {}


def test_a_lock_can_be_waited_for(tmp_path):
    lock = tmp_path / "a.lock"
    held = threading.Event()

    def first():
        with hold(lock):
            held.set()
            time.sleep(0.3)

    thread = threading.Thread(target=first)
    thread.start()
    held.wait()
    with pytest.raises(BusyError, match="already at work"), hold(lock):
        pass
    with hold(lock, patience=30):
        assert not thread.is_alive() or lock.exists()
    thread.join()
    assert everything(tmp_path) == {}


HOLDER = """
import sys, time
from pathlib import Path
from unspur_paper.files import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_of_a_killed_process_is_free(tmp_path):
    lock = tmp_path / "a.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError, match=f"Process {holder.pid} is already at work"), hold(lock):
            pass  # control: it is held while the process lives
        holder.kill()
        holder.wait()
    assert lock.exists()
    with hold(lock):
        pass
    assert everything(tmp_path) == {}


# ---------------------------------------------------------------- all of it


@pytest.fixture
def dataset(web, tmp_path):
    """A dataset of one archive that the server has."""
    web.content = tar(tmp_path / "made.tar.gz").read_bytes()
    digest = hashlib.sha256(web.content).hexdigest()
    archive = Archive("set.tar.gz", "data", web.url, len(web.content), f"sha256:{digest}", "this test")
    return Publication(
        "set", "", "", "", (Part("data/set/*.txt", "texts", 2), Part("data/set/sub/b.txt", "b")), (archive,)
    )


def test_obtaining_downloads_once_and_records_what_it_saw(web, dataset, tmp_path):
    root, said = tmp_path / "root", []
    outcome = obtain(dataset, root, say=said.append)
    assert outcome.action == "unpacked"
    assert [found.files for found in outcome.found] == [2, 1]
    assert sorted(path.name for path in root.iterdir()) == ["data", "set.download.json"]
    record = json.loads((root / "set.download.json").read_text())
    assert record["files"][0]["sha256"] == hashlib.sha256(web.content).hexdigest()
    assert "as stated by this test" in record["files"][0]["checksum"]
    before = everything(root)
    assert obtain(dataset, root, say=said.append).action == "found"
    assert everything(root) == before
    assert len(web.asked) == 1


def test_an_unknown_checksum_is_said_and_recorded(web, dataset, tmp_path):
    unknown = replace(dataset, archives=(replace(dataset.archives[0], checksum=None, size=None),))
    said = []
    obtain(unknown, tmp_path / "root", say=said.append)
    digest = hashlib.sha256(web.content).hexdigest()
    assert any("No published checksum is known" in text and digest in text for text in said)
    assert digest in (tmp_path / "root/set.download.json").read_text()


def test_a_damaged_archive_from_the_net_is_not_kept(web, dataset, tmp_path):
    good = web.content
    unknown = replace(dataset, archives=(replace(dataset.archives[0], checksum=None, size=None),))
    web.content = good[:-20]
    with pytest.raises(ArchiveError, match="damaged or cut off"):
        obtain(unknown, tmp_path / "root")
    assert everything(tmp_path / "root") == {}
    web.content = good
    web.headers["ETag"] = '"two"'
    assert obtain(unknown, tmp_path / "root").action == "unpacked"


def test_an_archive_without_the_dataset_changes_nothing(web, dataset, tmp_path):
    other = tar(tmp_path / "other.tar", plain={"set/a.txt": b"aaa"}, mode="w")
    root = lay(tmp_path / "root", {"data/own": b"mine"})
    with pytest.raises(ChecksumError):
        obtain(dataset, root, archives=[other])
    with pytest.raises(ArchiveError, match=r"would still lack data/set/sub/b.txt \(b\); nothing was changed"):
        obtain(dataset, root, archives=[other], unverified=True)
    assert {k: v for k, v in everything(root).items() if v is not None} == {"data/own": b"mine"}
    assert other.exists()
    (root / "data/set/sub").mkdir(parents=True)
    (root / "data/set/sub/b.txt").write_bytes(b"here already")  # what is there counts
    assert obtain(dataset, root, archives=[other], unverified=True).action == "unpacked"
    assert not web.asked


def test_other_content_in_the_way_keeps_the_archive_for_the_next_try(web, dataset, tmp_path):
    root = lay(tmp_path / "root", {"data/set/sub/b.txt/folder": b""})
    with pytest.raises(OutputExistsError):
        obtain(dataset, root)
    assert (root / ".downloads/set.tar.gz").exists()
    (root / "data/set/sub/b.txt/folder").unlink()
    (root / "data/set/sub/b.txt").rmdir()
    assert obtain(dataset, root).action == "unpacked"
    assert len(web.asked) == 1
    assert not (root / ".downloads").exists()


def test_several_files_are_told_apart_by_name(tmp_path):
    celeba, root = PUBLICATIONS["celeba"], tmp_path / "root"
    images = make_zip(tmp_path / "img_align_celeba.zip", plain={"img_align_celeba/1.jpg": b"1"})
    (tmp_path / "list_attr_celeba.txt").write_text("1\n")
    with pytest.raises(InputError, match=r"Google Drive.*img_align_celeba.zip.*CelebA.html"):
        obtain(celeba, root)
    with pytest.raises(InputError, match="is not a file of celeba"):
        obtain(celeba, root, archives=[images.rename(tmp_path / "faces.zip")])
    images = (tmp_path / "faces.zip").rename(images)
    with pytest.raises(InputError, match="given twice"):
        obtain(celeba, root, archives=[images, images])
    with pytest.raises(ArchiveError, match=r"still lack celeba/list_attr_celeba.txt"):
        obtain(celeba, root, archives=[images], unverified=True)
    outcome = obtain(celeba, root, archives=[images, tmp_path / "list_attr_celeba.txt"], unverified=True)
    assert [found.words for found in outcome.found] == ["1 file", "1 of 202,599 published files"]


def test_a_local_copy_may_be_reached_by_links(dataset, web, tmp_path):
    elsewhere = lay(tmp_path / "elsewhere", {"set/a.txt": b"", "set/sub/b.txt": b"", "set/._a.txt": b""})
    (tmp_path / "root").mkdir()
    (tmp_path / "root/data").symlink_to(elsewhere)
    outcome = obtain(dataset, tmp_path / "root")
    assert outcome.action == "found"
    assert [found.files for found in outcome.found] == [1, 1]
    assert not web.asked


def test_every_publication_is_filled_in():
    for name, dataset in PUBLICATIONS.items():
        assert name == dataset.name
        assert dataset.layout
        assert dataset.page.startswith("http")
        assert dataset.terms
        assert dataset.by_hand or all(archive.url for archive in dataset.archives)
        for archive in dataset.archives:
            kind, _, digits = (archive.checksum or "sha256:" + "0" * 64).partition(":")
            assert len(bytes.fromhex(digits)) == {"md5": 16, "sha256": 32}[kind]
            assert bool(archive.stated_by) == (archive.checksum is not None)
