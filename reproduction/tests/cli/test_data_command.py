"""`unspur-paper data` as it is typed: on real files and a real server."""

import io
import json
import random
import tarfile

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


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


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
    assert "No published checksum is known" in shown
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
        (["waterbirds", "--root", "r", "--archive", "file"], 1, "cannot be unpacked"),
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
    assert "cannot be unpacked" in data("waterbirds", "--root", tmp_path, "--url", web.url, code=1)
    assert list(tmp_path.iterdir()) == [tmp_path / "own"]
    web.content = packed(FILES)
    data("waterbirds", "--root", tmp_path, "--url", web.url)
    assert (tmp_path / FOLDER / "metadata.csv").exists()
