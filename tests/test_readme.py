"""What the documentation shows is what the code does."""

import doctest
import re
from pathlib import Path

import pytest
import sklearn

import unspur.removers.jse

from .test_docs import PAGES

ROOT = Path(__file__).parents[1]


def test_python_examples_of_the_readme_run(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    monkeypatch.chdir(tmp_path)
    try:
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
    finally:
        sklearn.set_config(enable_metadata_routing=False)
    assert len(blocks) == 1
    assert names["layer"].coef_.shape == (1, 20)
    assert names["Z_clean"].shape == names["train"].Z.shape
    assert (tmp_path / "background.safetensors").exists()
    assert (tmp_path / "toy.html").exists()
    assert "predicts the concept" in capsys.readouterr().out


def test_links_and_pictures_of_the_documentation_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]  # anchors are looked at by `make docs`
    pattern = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
    links = [(page, link) for page in pages for link in pattern.findall(page.read_text(encoding="utf-8"))]
    assert len(links) > 5
    assert not [(page.name, link) for page, link in links if not (page.parent / link).exists()]


def test_make_targets_named_in_the_documentation_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"make (\w+)", (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()))
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("module", [unspur.removers.jse])
def test_docstring_examples_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
