"""Results in notebooks are tables whose text cannot become markup."""

import numpy as np
import pytest

from unspur import JSE, LEACE
from unspur._text import brief, counted
from unspur.datasets import make_toy
from unspur.metrics import group_accuracy

EVIL = "<script>alert(1)</script>&\"'|`*\n#"


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
def test_names_of_users_are_escaped_in_tables():
    toy, held_out = make_toy(600, d=6, rho=0.6, random_state=0), make_toy(300, d=6, rho=0.0, random_state=1)
    names = np.array(["shore", f"sea{EVIL}"])
    concept, other = ({f"place{EVIL}": names[rows.concept]} for rows in (toy, held_out))
    jse = JSE(random_state=0, cv=0.2, penalty=0.1).fit(toy.Z, toy.y, concept=concept)
    number = LEACE(concept_type="continuous").fit(toy.Z, concept={EVIL: toy.Z[:, 0] + toy.concept})
    for found, named in (
        (jse.trace_, False),
        (jse.certificate(held_out.Z, held_out.y, other), True),
        (number.certificate(held_out.Z, concept={EVIL: held_out.Z[:, 0] + held_out.concept}), True),
        (group_accuracy(toy.y, toy.y, concept), True),
    ):
        text = found._repr_html_()
        assert "<table" in text
        assert "<script>" not in text
        assert ("&lt;script&gt;" in text) == named


def test_texts_are_short_and_on_one_line():
    assert [counted(n, "row") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
    assert brief("two\nlines  of words.", 12) == "two lines o…"
