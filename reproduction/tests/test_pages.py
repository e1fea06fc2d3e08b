"""Pages that speak of the reproduction: their code runs, their commands exist, their links lead somewhere."""

import re
from pathlib import Path

import pytest
from tests.test_docs import NOT_RUN, PAGES, ROOT, blocks, commands, name_of, require_valid, run_code

from unspur_paper.cli import main
from unspur_paper.experiments.spec_file import read_experiment

OURS = [page for page in PAGES if any("unspur_paper" in text and kind == "python" for _, kind, text in blocks(page))]


@pytest.mark.parametrize("page", OURS, ids=name_of)
def test_code_of_a_page_runs(page, tmp_path, capsys):
    assert run_code(page, tmp_path, reproduction=True) == NOT_RUN.get(name_of(page), 0)
    if name_of(page) == "experiments.md":
        assert "JSE adjusted delta" in capsys.readouterr().out


def test_the_spec_on_the_page_on_experiments_is_read(tmp_path):
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.toml").write_text(toml, encoding="utf-8")
    assert len(read_experiment(tmp_path / "mine.toml").cells("exact")) == 2 * 2 * 2 * 20


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_a_page_exist(page):
    for _, language, text in blocks(page):
        for arguments in commands(text, "unspur-paper") if language == "console" else []:
            require_valid(arguments, main)


def test_pages_with_commands_were_found():
    texts = [text for page in PAGES for _, _, text in blocks(page)]
    found = [arguments[:2] for text in texts for arguments in commands(text, "unspur-paper")]
    assert len(found) > 25
    assert ["embed", "waterbirds"] in found  # inside a loop
    assert len(OURS) == 2


def test_every_link_of_the_results_leads_somewhere():
    pages = list((ROOT / "reproduction" / "results").rglob("*.md"))
    pattern = re.compile(r"\]\(([^)#:]+)\)")
    links = [(page, link) for page in pages for link in pattern.findall(page.read_text(encoding="utf-8"))]
    assert len(links) > 20
    assert not [(page.name, link) for page, link in links if not (page.parent / link).exists()]


def test_what_the_paper_map_names_is_in_the_file_it_links_to():
    text = (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8")
    links = re.findall(r"\[`([\w.]+)`\]\(\.\./((?:reproduction/)?src/[\w/.]+\.py)\)", text)
    gone = [
        (name, path)
        for name, path in links
        if name.split(".")[-1] != Path(path).stem
        and not re.search(rf"\b{name.split('.')[-1]}\b", (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert len(links) > 50
    assert not gone
