"""Shell completion, asked for as a shell asks for it."""

import os
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.optional import pandas as pd
from unspur.cli import main
from unspur.cli.completion import column_names, worth_naming
from unspur.embed.store import LABELS
from unspur.io.files import read_table

PROGRAM = Path(sys.executable).parent / "unspur"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame(np.zeros((3, 5)), columns=[f"f{i}" for i in range(5)]).assign(bird=0, background=1)
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet")
    np.savez(folder / "rows.npz", Z=np.zeros((3, 2)), bird=np.zeros(3), background=np.zeros(3))
    np.save(folder / "rows.npy", np.zeros((3, 2)))
    (folder / "spaced.csv").write_text("f0,the bird,background\n1,0,1\n")
    (folder / "semicolons.csv").write_text("f0;bird;background\n1;0;1\n")
    (folder / "broken.npz").write_bytes(b"PK not really")
    return folder


def completed(line, folder, shell="bash"):
    """What the program offers for the last word of a line."""
    words = line.split(" ")
    environment = {"_UNSPUR_COMPLETE": f"{shell}_complete", "COMP_WORDS": line}
    environment["COMP_CWORD"] = words[-1] if shell == "fish" else str(len(words) - 1)
    with chdir(folder):
        done = CliRunner().invoke(main, env=environment, prog_name="unspur")
    assert (done.exit_code, done.stderr) == (0, "")
    if shell == "zsh":
        return done.stdout.splitlines()[1::3]
    return [line.split(",", 1)[1] for line in done.stdout.splitlines() if line.startswith("plain,")]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("unspur com", ["compare", "completion"]),
        ("unspur fit --conc", ["--concept"]),
        ("unspur fit x.npz --balance ", ["none", "concept", "main", "group"]),
        ("unspur fit rows.csv --task b", ["bird", "background"]),
        ("unspur fit rows.csv --task f1", ["f1"]),
        ("unspur fit rows.npz --task ", ["bird", "background"]),
        ("unspur fit rows.parquet --task bird --concept ", ["bird", "background"]),
        ("unspur fit --output r rows.csv --ignore ba", ["background"]),
        ("unspur evaluate r.safetensors rows.csv --concept ", ["bird", "background"]),
        ("unspur apply r.safetensors rows.csv --label ", ["bird", "background"]),
        ("unspur fit semicolons.csv --task b", ["bird", "background"]),
        ("unspur fit gone.csv --task ", []),
        ("unspur fit broken.npz --task ", []),
        ("unspur fit --task ", []),
        ("unspur embed x.csv --encoder grey", ["grey-50"]),
        ("unspur completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_the_next_word(folder, line, offered):
    assert completed(line, folder) == offered


def test_other_shells(folder):
    assert completed("unspur evalu", folder, "zsh") == ["evaluate"]
    assert [word.split("\t")[0] for word in completed("unspur evalu", folder, "fish")] == ["evaluate"]


def test_names_with_spaces_are_for_shells_that_can_quote_them(folder):
    assert completed("unspur fit spaced.csv --task ", folder) == ["f0", "background"]
    assert completed("unspur fit spaced.csv --task ", folder, "zsh") == ["f0", "the bird", "background"]


def test_labels_of_a_store(tmp_path):
    (tmp_path / LABELS).write_text("id,bird,split\na,0,train\n")
    assert column_names(tmp_path) == ["id", "bird", "split"]
    (tmp_path / LABELS).unlink()
    assert column_names(tmp_path) == []


@pytest.mark.parametrize("name", ["rows.csv", "rows.npz", "rows.parquet"])
def test_columns_are_those_that_reading_finds(folder, name):
    table = read_table(folder / name, ("bird", "background"))
    found = {*table.columns, *(table.features or [])}
    assert set(column_names(folder / name)) == found
    assert len(found) >= 2


def test_numbered_columns_are_left_out_unless_they_are_typed():
    names = ["bird", *(f"f{i}" for i in range(300)), "k1", "k2"]
    assert worth_naming(names, "") == ["bird", "k1", "k2"]
    assert worth_naming(names, "f2") == names


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_real_bash_completes(folder):
    script = f"""
        PATH={PROGRAM.parent}:$PATH
        eval "$(unspur completion bash)"
        complete -p unspur
        COMP_WORDS=(unspur fit rows.csv --concept ba) COMP_CWORD=4
        $(complete -p unspur | sed -E 's/.*-F ([^ ]+).*/\\1/') unspur
        echo "offered: ${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.stderr == ""
    assert "offered: background" in done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells_are_read_by_them(shell):
    done = subprocess.run([PROGRAM, "completion", shell], capture_output=True, text=True, check=True)
    assert f"_UNSPUR_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)


def test_without_a_shell_it_says_which_there_are():
    done = subprocess.run([PROGRAM, "completion"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.endswith("Choose from: bash, zsh, fish\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
def test_nobody_waits_for_a_pipe_when_a_name_is_completed(tmp_path):
    os.mkfifo(tmp_path / "rows.csv")
    assert column_names(tmp_path / "rows.csv") == []
