"""Downloads against a real server that misbehaves, from one file to a whole dataset."""

import hashlib
import json
import os
import random
import threading
from dataclasses import replace

import pytest

from reproduction.tests.datasets.making import PLAIN, everything, lay, make_zip, tar
from reproduction.tests.datasets.serving import serving
from unspur.exceptions import InputError, OutputExistsError
from unspur_paper.datasets.downloads import ArchiveError, DownloadError, fetch, obtain, unpack
from unspur_paper.datasets.publications import PUBLICATIONS, Archive, Part, Publication
from unspur_paper.files import BusyError, hold

CONTENT = random.Random(0).randbytes(700_000)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def web():
    with serving(CONTENT) as served:
        yield served


def get(web, folder, **options):
    """Fetch without waiting between attempts; what arrived."""
    fetch(web.url, folder / "file", pause=0, **options)
    return (folder / "file").read_bytes()


def ranges(web):
    return [headers.get("Range") for headers in web.asked]


@pytest.mark.parametrize("step", ["drop:300000", 503, 429])
def test_a_transfer_that_ends_early_is_taken_up_again(web, tmp_path, step):
    web.script = [step, step]
    assert get(web, tmp_path, size=len(CONTENT)) == CONTENT
    assert len(web.asked) == 3
    assert ranges(web)[1] == ("bytes=300000-" if step == "drop:300000" else None)


@pytest.mark.parametrize("step", ["whole", "off:5"])
def test_a_server_that_sends_another_piece_starts_again_cleanly(web, tmp_path, step):
    web.script = ["drop:300000", step]
    assert get(web, tmp_path) == CONTENT


def test_a_file_that_changed_meanwhile_is_not_mixed_with_the_old(web, tmp_path):
    web.script = ["drop:300000", "404"]
    with pytest.raises(DownloadError, match="404"):
        get(web, tmp_path)
    web.content, web.headers = CONTENT[::-1], {"ETag": '"two"'}
    assert get(web, tmp_path) == CONTENT[::-1]


def test_giving_up_says_how_far_it_came_and_the_next_call_goes_on(web, tmp_path):
    web.script = ["drop:300000", *["503"] * 5]
    with pytest.raises(DownloadError, match="300,000 bytes arrived, and 5 attempts"):
        get(web, tmp_path)
    assert get(web, tmp_path) == CONTENT
    assert ranges(web)[-1] == "bytes=300000-"


def test_another_size_is_refused_before_it_is_fetched(web, tmp_path):
    with pytest.raises(DownloadError, match="offers 700,000 bytes; the published file has 7"):
        get(web, tmp_path, size=7)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "https://", "https://me:secret@host/x", "x.zip"])
def test_only_plain_web_addresses(tmp_path, url):
    with pytest.raises(InputError, match="is not a web address"):
        obtain(PUBLICATIONS["cub"], tmp_path, urls=[url])


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_sound_archives_of_every_kind_and_cut_ones(tmp_path, mode):
    path = make_zip(tmp_path / "made") if mode == "zip" else tar(tmp_path / "made", mode)
    unpack(path, tmp_path / "out", "made")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in PLAIN} == PLAIN
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        unpack(path, tmp_path / "cut", "made")


def test_nothing_is_written_outside_of_the_folder(tmp_path):
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        unpack(tar(tmp_path / "made", plain={"../evil": b"x"}), tmp_path / "out", "made")
    unpack(make_zip(tmp_path / "made.zip", plain={"../evil": b"x"}), tmp_path / "out", "made.zip")
    assert not (tmp_path / "evil").exists()


def test_a_lock_is_held_once_and_can_be_waited_for(tmp_path):
    lock = tmp_path / ".lock"
    with hold(lock):
        with pytest.raises(BusyError, match=rf"Process {os.getpid()} is already at work"), hold(lock):
            pass
        told = []

        def wait():
            with hold(lock, patience=30):
                told.append("held")

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not told
    waiting.join()
    assert told == ["held"]


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
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        obtain(unknown, tmp_path / "root")
    assert everything(tmp_path / "root") == {}
    web.content = good
    web.headers["ETag"] = '"two"'
    assert obtain(unknown, tmp_path / "root").action == "unpacked"


def test_an_archive_without_the_dataset_changes_nothing(web, dataset, tmp_path):
    other = tar(tmp_path / "other.tar", plain={"set/a.txt": b"aaa"}, mode="w")
    root = lay(tmp_path / "root", {"data/own": b"mine"})
    with pytest.raises(DownloadError, match="not the published file"):
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
