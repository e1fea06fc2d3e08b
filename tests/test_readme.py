"""What the documentation shows is what the code does."""

import doctest
import re
from pathlib import Path

import pytest
import sklearn

import unspur.removers.jse
from unspur_paper.experiments.spec_file import read_experiment

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
    assert len(blocks) == 2
    assert names["layer"].coef_.shape == (1, 20)
    assert names["Z_clean"].shape == names["Z"].shape
    assert (tmp_path / "background.safetensors").exists()
    assert (tmp_path / "report.html").exists()
    assert "predicts the concept label" in capsys.readouterr().out


def test_examples_of_the_page_on_experiments_run(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    (python,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(toml, encoding="utf-8")
    assert len(read_experiment(tmp_path / "mine.toml").cells("exact")) == 2 * 2 * 2 * 20
    exec(compile(python, "experiments.md", "exec"), {})
    assert "JSE adjusted delta" in capsys.readouterr().out


def test_every_link_of_the_results_leads_somewhere():
    pages = list((ROOT / "results").rglob("*.md"))
    pattern = re.compile(r"\]\(([^)#:]+)\)")
    links = [(page, link) for page in pages for link in pattern.findall(page.read_text(encoding="utf-8"))]
    assert len(links) > 20
    assert not [(page.name, link) for page, link in links if not (page.parent / link).exists()]


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


def test_what_the_paper_map_names_is_in_the_file_it_links_to():
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    links = re.findall(r"\[`([\w.]+)`\]\(\.\./(src/[\w/.]+\.py)\)", text)
    gone = [
        (name, path)
        for name, path in links
        if name.split(".")[-1] != Path(path).stem
        and not re.search(rf"\b{name.split('.')[-1]}\b", (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert len(links) > 50
    assert not gone
