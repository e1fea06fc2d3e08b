"""The card of a model: what it says is what the model, its certificate and its accuracies say."""

import re

import numpy as np
import pytest

from tests.probing import quick_probes
from unspur import INLP, JSE, LEACE, PaperVariant, RobustClassifier, load
from unspur._version import __version__
from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.metrics import group_accuracy
from unspur.report import card

EVIL = "sea|<script>`*\n# x"
HEADINGS = ["Intended use", "Limits", "Provenance", "Tests"]


@pytest.fixture(scope="module")
def sets():
    toys = [make_toy(n, d=6, rho=rho, random_state=k) for k, (n, rho) in enumerate(((900, 0.6), (400, 0.0)))]
    return [(toy.Z, np.array(["land", "water"])[toy.y], np.array(["shore", EVIL])[toy.concept]) for toy in toys]


@pytest.fixture(scope="module")
def model(sets):
    Z, y, concept = sets[0]
    jse = JSE(cv=0.2, penalty=0.1, random_state=0)
    return RobustClassifier(jse, random_state=0).fit(Z, {"bird": y}, concept={"background": concept})


@pytest.fixture(scope="module")
@quick_probes()
def measured(model, sets):
    Z, y, concept = sets[1]
    certificate = model.remover_.certificate(Z, {"bird": y}, {"background": concept})
    del model.remover_.certificate_
    return certificate, group_accuracy(y, model.predict(Z), {"background": concept})


def headings(text):
    return re.findall(r"^### (.*)$", text, re.MULTILINE)


def test_a_card_has_what_is_known(model, measured):
    certificate, accuracy = measured
    text = card(model, certificate=certificate, accuracy=accuracy)
    assert text.startswith("## Removal of background\n")
    assert headings(text) == [*HEADINGS, "Certificate", "Accuracy by group"]
    assert f"It removes {model.remover_.spurious_.dim} direction" in text
    assert f"| fingerprint of the training rows | {model.remover_.training_hash_} |" in text
    assert f"| written by | unspur {__version__} |" in text.replace("\\", "")
    assert "cv=0.2, random\\_state=0, weight\\_decay=0.1" in text
    assert "| head | GroupWeighted |" in text
    assert f"| worst group |  | {100 * accuracy.worst:.1f} |" in text
    after = certificate.probe["background"][1]
    assert f"| {100 * after.accuracy:.1f} | 50.0 | {100 * after.low:.1f} – {100 * after.high:.1f} |" in text
    for step in model.remover_.trace_:
        assert f"| {step.place} | {step.verdict.role} |" in text


def test_what_is_not_measured_is_said_and_left_out(model, measured):
    text = card(model)
    assert headings(text) == HEADINGS
    assert "There is no certificate" in text
    assert "Accuracy by group was not measured" in text
    whole = card(model, certificate=measured[0], accuracy=measured[1])
    assert "There is no certificate" not in whole
    assert "was not measured" not in whole


def test_names_cannot_become_markup(model, measured):
    text = card(model, certificate=measured[0], accuracy=measured[1], title=EVIL)
    assert "script" in text
    assert not re.search(r"(?<!\\)<", text)
    assert not re.search(r"^# x", text, re.MULTILINE)
    for line in text.splitlines():
        if line.startswith("|"):  # every line of a table has the cells of its header
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 5, 7, 8)


@pytest.mark.parametrize(
    ("remover", "said"),
    [
        (LEACE(), "A map of embeddings of 6 features, by LEACE. It removes 1 direction"),
        (LEACE(strength=0.5), "It does so with a **strength of 0.5**"),
        (INLP(max_directions=2, random_state=0, cv=0.2), "by INLP. It removes"),
        (
            JSE(max_spurious=0, random_state=0, cv=0.2),
            "**Nothing was removed** for the concept, and rows are not changed",
        ),
        (JSE(variant=PaperVariant(output="onto_main"), random_state=0, cv=0.2), "of the task and removes all others"),
    ],
)
def test_every_kind_of_removal_has_a_card(sets, remover, said):
    Z, y, concept = sets[0]
    text = card(remover.fit(Z, y, concept=concept))
    assert said in text
    assert headings(text) == HEADINGS
    assert "head" not in text[text.index("### Provenance") :]


def test_the_certificate_that_a_model_keeps_is_used(sets, tmp_path):
    Z, y, concept = sets[0]
    leace = LEACE().fit(Z, y, concept=concept)
    leace.certificate(sets[1][0], sets[1][1], {"background": sets[1][2]})
    leace.encoding_ = {"encoder": "resnet50", "digest": "abc123", "reduction": None}
    leace.save(tmp_path / "leace.safetensors")
    text = card(load(tmp_path / "leace.safetensors"))
    assert "Certificate" in headings(text)
    assert text.startswith("## Removal of background\n")  # which only the certificate knows
    assert "| encoder | resnet50, digest abc123 |" in text
    assert "(encoder resnet50), with" in text


def test_a_long_search_is_summarised(sets):
    Z, y, concept = sets[0]
    inlp = INLP(random_state=0, cv=0.2, significance_level=0.9, penalty=0.01).fit(Z, y, concept=concept)
    several = JSE(random_state=0, cv=0.2, max_spurious=1).fit(
        Z, y, concept={"background": concept, "season": np.arange(len(Z)) % 3}
    )
    for remover in (inlp, several):
        text = card(remover)
        tests = text[text.index("### Tests") :]
        assert "stopped" in tests
        assert len(tests.splitlines()) < 60


def test_other_things_have_no_card():
    with pytest.raises(InputError, match="Reports and cards are about a fitted remover; got a dict"):
        card({})
