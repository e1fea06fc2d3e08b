"""Pages of the reproduction: their code runs, their commands exist, their links lead somewhere."""

import re
from pathlib import Path

import pytest
from tests import test_docs
from tests.test_docs import ROOT, blocks, commands, name_of, require_valid, run_code

from unspur.cli import main as product
from unspur_paper.cli import main
from unspur_paper.experiments.spec_file import read_experiment

DOCS = ROOT / "reproduction" / "docs"
PAGES = sorted(DOCS.glob("*.md"))
WITH_CODE = [page for page in PAGES if "```python" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_of_a_page_runs(page, tmp_path, capsys):
    assert run_code(page, tmp_path) == 0
    if page.name == "experiments.md":
        assert "JSE adjusted delta" in capsys.readouterr().out
        assert (tmp_path / "ood.svg").exists()


def test_pages_of_the_product_do_without_the_reproduction():
    assert [page.name for page in WITH_CODE] == ["experiments.md"]
    texts = [(page.name, text) for page in test_docs.PAGES for _, _, text in blocks(page)]
    assert not [page for page, text in texts if re.search(r"unspur_paper|unspur-paper", text)]


def test_the_spec_on_the_page_on_experiments_is_read(tmp_path):
    text = (DOCS / "experiments.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.toml").write_text(toml, encoding="utf-8")
    assert len(read_experiment(tmp_path / "mine.toml").cells("exact")) == 2 * 2 * 2 * 20


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_a_page_exist(page):
    for _, language, text in blocks(page):
        for name, program in (("unspur-paper", main), ("unspur", product)) if language == "console" else ():
            for arguments in commands(text, name):
                require_valid(arguments, program)


def test_pages_with_commands_were_found():
    texts = [text for page in PAGES for _, _, text in blocks(page)]
    found = [arguments[:2] for text in texts for arguments in commands(text, "unspur-paper")]
    assert len(found) > 25
    assert ["embed", "waterbirds"] in found  # inside a loop


@pytest.mark.parametrize("folder", [DOCS, ROOT / "reproduction" / "results"], ids=lambda folder: folder.name)
def test_every_link_leads_somewhere(folder):
    pages = list(folder.rglob("*.md"))
    pattern = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
    links = [(page, link) for page in pages for link in pattern.findall(page.read_text(encoding="utf-8"))]
    assert len(links) > 20
    assert not [(page.name, link) for page, link in links if not (page.parent / link).exists()]


def test_what_the_paper_map_names_is_in_the_file_it_links_to():
    text = (DOCS / "paper-map.md").read_text(encoding="utf-8")
    links = re.findall(r"\[`([\w.]+)`\]\(((?:\.\./)+src/[\w/.]+\.py)\)", text)
    gone = [
        (name, path)
        for name, path in links
        if name.split(".")[-1] != Path(path).stem
        and not re.search(rf"\b{name.split('.')[-1]}\b", (DOCS / path).read_text(encoding="utf-8"))
    ]
    assert len(links) > 15
    assert not gone
