"""`unspur-paper data` as a user runs it: on real files and a real server, killed and short of disk."""

import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time

import pytest
from click.testing import CliRunner

from reproduction.tests.datasets.serving import serving
from unspur_paper.cli import main

FOLDER = "waterbird_complete95_forest2water2"
FILES = {f"{FOLDER}/metadata.csv": b"img_id\n", f"{FOLDER}/001.Albatross/1.jpg": random.Random(1).randbytes(400_000)}


def packed(files, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def web():
    with serving(packed(FILES)) as served:
        yield served


def data(*arguments, code=0):
    """Run the verb in this process; return what it printed, or its error."""
    done = CliRunner().invoke(main, ["data", *map(str, arguments)])
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stderr if code else done.stdout


def process(*arguments, before=""):
    """Start the program in a process of its own, after running some code in it."""
    code = f"{before}\nfrom unspur_paper.cli import main\nmain()"
    command = [sys.executable, "-W", "error", "-c", code, "data", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def failed(*arguments, before):
    """Run the program to an error of one line and return it."""
    with process(*arguments, before=before) as running:
        _, error = running.communicate(timeout=60)
    assert running.returncode == 1, error
    assert "Traceback" not in error
    return error


def kill(running):
    running.send_signal(signal.SIGKILL)
    running.communicate()


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def until(condition):
    """Wait until something is so; a test that hangs fails."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def limited(most):
    return f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))"


def complete(root):
    """Whether exactly the dataset and its record are there."""
    seen = files(root)
    seen.pop("waterbirds.download.json")
    return seen == FILES


def test_a_download_from_the_beginning_to_a_second_run(web, tmp_path):
    shown = data("waterbirds", "--root", tmp_path / "new/root", "--url", web.url)
    assert "No published checksum is known; the SHA-256" in shown
    assert "1 of 11,788 published files (images)" in " ".join(shown.split())
    assert complete(tmp_path / "new/root")
    shown = data("waterbirds", "--root", tmp_path / "new/root")
    assert "Nothing was downloaded." in shown
    assert len(web.asked) == 1


def test_json_is_one_document(web, tmp_path):
    told = json.loads(data("waterbirds", "--root", tmp_path, "--url", web.url, "--json"))
    assert told["action"] == "unpacked"
    assert told["used"][0]["from"] == web.url
    told = json.loads(data("waterbirds", "--root", tmp_path, "--json"))
    assert told["action"] == "found"
    assert [part["files"] for part in told["layout"]] == [1, 1]
    assert {entry["dataset"] for entry in json.loads(data("--list", "--json"))} >= {"waterbirds", "celeba", "multinli"}


def test_the_list_gives_size_terms_and_page():
    shown = data("--list")
    for text in ("cub: CUB-200-2011", "1,151 MB", "terms: Non-commercial", "https://github.com/kohpangwei/group_DRO"):
        assert text in shown


@pytest.mark.parametrize("name", ["celeba", "scenes"])
def test_what_a_person_must_fetch_is_said_in_words(tmp_path, name):
    error = data(name, "--root", tmp_path / "root", code=1)
    assert {"celeba": "celeba/img_align_celeba/*.jpg", "scenes": "scenes/water/<category>/*.jpg"}[name] in error
    assert "Page: http" in error
    assert not (tmp_path / "root").exists()


def test_a_file_that_is_here_is_used_and_kept(web, tmp_path):
    archive = tmp_path / "birds.tar.xz"
    archive.write_bytes(packed(FILES, "w:xz"))
    shown = data("waterbirds", "--root", tmp_path / "root", "--archive", archive)
    assert "what was used is" in shown
    assert complete(tmp_path / "root")
    assert archive.exists()
    assert not web.asked


def test_the_downloaded_archive_stays_only_if_asked(web, tmp_path):
    data("waterbirds", "--root", tmp_path, "--url", web.url, "--keep-archive")
    assert (tmp_path / f".downloads/{FOLDER}.tar.gz").read_bytes() == web.content


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ([], 2, "Name a dataset"),
        (["waterbirds"], 2, "Name a dataset"),
        (["nonsense", "--root", "r"], 2, "is not one of"),
        (["waterbirds", "--root", "file"], 1, "is a file"),
        (["waterbirds", "--root", "r", "--archive", "gone.tar"], 1, "There is no file"),
        (["waterbirds", "--root", "r", "--archive", "file"], 1, "not an archive"),
        (["waterbirds", "--root", "r", "--url", "file:///etc/passwd"], 1, "not a web address"),
        (["scenes", "--root", "r", "--archive", "file"], 1, "has no published archive"),
        (["cub", "--root", "r", "--archive", "file"], 1, "is not the published file"),
    ],
)
def test_misuse_is_said_in_words_and_leaves_nothing(tmp_path, monkeypatch, options, code, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("text")
    assert says in data(*options, code=code)
    assert files(tmp_path) == {"file": b"text"}


def test_a_hostile_archive_from_the_net_leaves_the_root_as_it_was(web, tmp_path):
    (tmp_path / "own").write_text("mine")
    web.content = packed(FILES | {f"{FOLDER}/../../evil": b"x"})
    assert "leads out of the folder" in data("waterbirds", "--root", tmp_path, "--url", web.url, code=1)
    assert list(tmp_path.iterdir()) == [tmp_path / "own"]
    web.content = packed(FILES)
    data("waterbirds", "--root", tmp_path, "--url", web.url)
    assert (tmp_path / FOLDER / "metadata.csv").exists()


def test_killed_in_a_download_a_second_run_goes_on(web, tmp_path):
    web.script = ["stall:300000"]
    part = tmp_path / f".downloads/{FOLDER}.tar.gz.part"
    arguments = ("waterbirds", "--root", tmp_path, "--url", web.url)
    with process(*arguments) as running:
        until(lambda: part.exists() and part.stat().st_size > 0)
        error = data(*arguments, code=1)  # meanwhile
        assert f"Process {running.pid} is already at work" in error
        kill(running)
    have = part.stat().st_size
    assert not (tmp_path / FOLDER).exists()
    data(*arguments)
    assert web.asked[-1]["Range"] == f"bytes={have}-"
    assert complete(tmp_path)
    assert not (tmp_path / ".downloads").exists()


#: How a process dies when its dataset is in place.
DIE = "os.kill(os.getpid(), 9)"
DEATHS = {
    "_record": f"obtain._record = lambda *_: {DIE}",
    "_discard": f"obtain._discard = lambda *_: {DIE}",
    "forgetting": f"obtain.forget = lambda target: (target.unlink(), {DIE})",  # the archive is gone, its note is not
}


@pytest.mark.parametrize(
    ("keep", "before"), [([], "_record"), (["--keep-archive"], "_record"), ([], "_discard"), ([], "forgetting")]
)
def test_killed_when_all_is_in_place_a_second_run_clears_up(web, tmp_path, keep, before):
    arguments = ["waterbirds", "--url", web.url, *keep, "--root"]
    data(*arguments, tmp_path / "undisturbed")
    module = "obtain = sys.modules['unspur_paper.datasets.downloads.obtain']"
    dies = f"import os, sys, unspur_paper.cli.data; {module}; {DEATHS[before]}"
    with process(*arguments, tmp_path / "root", before=dies) as running:
        running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL
    left = files(tmp_path / "root")
    assert ".downloads/waterbirds.lock" in left  # control: it did not come to its end
    assert ("waterbirds.download.json" in left) == (before != "_record")
    assert "Nothing was downloaded." in data(*arguments, tmp_path / "root")
    assert files(tmp_path / "root") == files(tmp_path / "undisturbed")
    assert len(web.asked) == 2


def test_killed_while_unpacking_a_second_run_does_it_all(web, tmp_path):
    slow = """
import time
from unspur_paper.datasets.downloads import archives
member = archives._Sink.member
def stop_after_one(self, *arguments):
    member(self, *arguments)
    print("one is out", flush=True)
    time.sleep(600)
archives._Sink.member = stop_after_one
"""
    arguments = ("waterbirds", "--root", tmp_path, "--url", web.url)
    with process(*arguments, before=slow) as running:
        assert any("one is out" in line for line in iter(running.stdout.readline, ""))
        kill(running)
    assert not (tmp_path / FOLDER).exists()
    assert (tmp_path / ".downloads/waterbirds.unpacking").exists()
    data(*arguments)
    assert complete(tmp_path)
    assert not (tmp_path / ".downloads").exists()
    assert len(web.asked) == 1  # the archive was whole


def test_interrupted_while_unpacking_cleans_up_by_itself(web, tmp_path, monkeypatch):
    def interrupt(*_):
        assert (tmp_path / ".downloads/waterbirds.unpacking").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("unspur_paper.datasets.downloads.archives._Sink.member", interrupt)
    assert "Interrupted" in data("waterbirds", "--root", tmp_path, "--url", web.url, code=130)
    assert sorted(files(tmp_path)) == [f".downloads/{FOLDER}.tar.gz", f".downloads/{FOLDER}.tar.gz.json"]
    assert not (tmp_path / ".downloads/waterbirds.unpacking").exists()


@pytest.mark.skipif(os.name == "nt", reason="limits of a process are a thing of Unix")
def test_a_full_disk_while_downloading_keeps_the_part(web, tmp_path):
    arguments = ("waterbirds", "--root", tmp_path, "--url", web.url)
    error = failed(*arguments, before=limited(100_000))
    assert "cannot be written" in error
    assert "100,000 bytes) is kept" in error
    assert not (tmp_path / FOLDER).exists()
    data(*arguments)
    assert web.asked[-1]["Range"] == "bytes=100000-"
    assert complete(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="limits of a process are a thing of Unix")
def test_a_full_disk_while_unpacking_leaves_the_root_as_it_was(tmp_path):
    archive, root = tmp_path / "a.tar.gz", tmp_path / "root"
    archive.write_bytes(packed(FILES))
    arguments = ("waterbirds", "--root", root, "--archive", archive)
    error = failed(*arguments, before=limited(100_000))
    assert "cannot be written" in error
    assert "removed again" in error
    assert files(root) == {}
    data(*arguments)
    assert complete(root)
