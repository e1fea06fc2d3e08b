"""The page on whole networks is written from its record."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_record_says_and_a_changed_number_is_noticed(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(ROOT / "reproduction" / "scripts"))
    import scrub_networks

    found, text = json.loads(scrub_networks.RESULTS.read_text()), scrub_networks.PAGE.read_text(encoding="utf-8")
    assert scrub_networks.page(found) == text
    found["gpt2"]["perplexity_after"] += 1.0
    assert scrub_networks.page(found) != text
    assert re.search(r"`transformer\.h\.5` \| 9\d\.\d", text)
    sys.modules.pop("scrub_networks")
