"""The page of trust is drawn from its record, and from nothing else."""

import json
import re
import sys
from copy import deepcopy
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import trust_page
finally:
    sys.path.pop(0)


def test_the_page_says_what_the_record_says_and_a_changed_number_is_noticed():
    recorded = json.loads(trust_page.RECORD.read_text(encoding="utf-8"))
    page = trust_page.PAGE.read_text(encoding="utf-8")
    assert trust_page.page(recorded) == page
    changed = deepcopy(recorded)
    changed[0]["survived"] -= 1
    assert trust_page.page(changed) != page
    for line in recorded:  # a page can be drawn from any part of the record
        assert "did not hold**" in trust_page.page([{**line, "held": False}])


def test_every_part_is_on_the_page():
    recorded = json.loads(trust_page.RECORD.read_text(encoding="utf-8"))
    modules = [path.read_text(encoding="utf-8") for path in (ROOT / "trust").glob("test_*.py")]
    parts = {re.search('^PART = "(.*)"$', text, re.MULTILINE)[1] for text in modules}
    assert parts == {line["part"] for line in recorded}
    assert all(line["tried"] for line in recorded)
