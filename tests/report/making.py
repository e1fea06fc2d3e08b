"""Findings to draw from: real removers on small data, with what is measured about them."""

from dataclasses import replace
from functools import cache

import numpy as np
from sklearn.datasets import load_sample_image

from tests.probing import quick_probes
from unspur import JSE, LEACE
from unspur.datasets import CONCEPT_NAMES, MAIN_NAMES, embed_images, make_photodigits, make_toy
from unspur.metrics import PairedDifference
from unspur.report.measuring import measure
from unspur.report.results import Findings, View

#: What a hostile file might call things.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "\"quotes\" & 'more' <b>",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd 🦆",
    "{{ 7 * 7 }}{% raw %}",
    "long " * 60,
)


class Pictures:
    """Content from an array (n, h, w, 3) of values in [0, 1]; counts how often each row is loaded."""

    kind = "image"

    def __init__(self, images):
        self.images, self.loaded = images, np.zeros(len(images), dtype=int)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        from PIL import Image

        self.loaded[index] += 1
        return Image.fromarray(np.uint8(np.round(255 * np.clip(self.images[index], 0, 1))))


class Texts:
    """Content from a list of strings, or of pairs of them."""

    kind = "text"

    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index]


@cache
@quick_probes()
def toy_findings(rows: int = 600) -> Findings:
    """JSE on Toy, compared with INLP and LEACE; no content."""
    train, test = _toys(rows)
    jse = JSE(random_state=0).fit(*train[:2], concept=train[2])
    command = "unspur report --rows train.npz --test test.npz --output report.html"
    return measure(jse, train, test, main="bird", concept="background", compare=("INLP", "LEACE"), command=command)


@cache
@quick_probes()
def photo_findings(repeats: int = 1) -> Findings:
    """JSE on photodigits, with pictures."""
    sets = [
        make_photodigits(split, agreement=p, repeats=r, random_state=k)  # type: ignore[arg-type]
        for k, (split, p, r) in enumerate((("train", 0.9, 2), ("test", 0.5, repeats)))
    ]
    features = [embed_images(data.images) for data in sets]
    centre = features[0].mean(axis=0)
    axes = np.linalg.svd(features[0] - centre, full_matrices=False)[2][:40].T
    train, test = (
        ((rows - centre) @ axes, np.array(MAIN_NAMES)[data.y], np.array(CONCEPT_NAMES)[data.concept])
        for rows, data in zip(features, sets, strict=True)
    )
    jse = JSE(random_state=0).fit(*train[:2], concept=train[2])
    ids = [f"digit {digit}, picture {k}" for k, digit in enumerate(sets[1].digit)]
    found = measure(jse, train, test, main="digit", concept="photo", compare=("LEACE",), ids=ids)
    images = sets[1].images
    return replace(found, content=Pictures(images))


@cache
def text_findings() -> Findings:
    """Toy findings whose rows are sentences."""
    found = toy_findings()
    nouns = ("The committee", "A neighbour", "Every student", "Nobody in the village")
    verbs = ("said that the river was high", "never answered the letter", "walked home through the rain")
    texts = [
        f"{nouns[i % 4]} {verbs[i % 3]}, and so it went on for {i + 2} days until somebody finally asked why the "
        f"{'door' if i % 2 else 'window'} had been left open all night; there was no good answer to be had."
        for i in range(len(found.ids))
    ]
    return replace(found, content=Texts(texts))


@cache
@quick_probes()
def closed_form_findings() -> Findings:
    """LEACE on Toy: no ladder, no main-task directions."""
    train, test = _toys(500)
    leace = LEACE().fit(*train[:2], concept=train[2])
    return measure(leace, train, test, main="bird", concept="background")


@cache
@quick_probes()
def several_findings() -> Findings:
    """JSE for two concepts, of three classes and of two, with a task of three classes."""
    rng = np.random.default_rng(5)
    sets = []
    for n in (700, 400):
        y, hat, glasses = (rng.integers(k, size=n) for k in (3, 3, 2))
        Z = rng.standard_normal((n, 14))
        Z[:, :3] += 2.5 * np.eye(3)[y]
        Z[:, 3:6] += 2.5 * np.eye(3)[hat]
        Z[:, 6] += 2.5 * glasses
        sets.append(
            (
                Z,
                np.array(["cat", "dog", "fox"])[y],
                {"hat": np.array(["red", "blue", "none"])[hat], "glasses": np.array(["off", "on"])[glasses]},
            )
        )
    (Z, y, concepts), test = sets
    jse = JSE(penalty=1e-3, random_state=0).fit(Z, y, concept=np.column_stack(list(concepts.values())))
    return measure(jse, sets[0], test, main="animal", concept=("hat", "glasses"))


def many_findings(n: int = 5000, side: int = 64) -> Findings:
    """Photodigits with rows drawn again until there are n, each a real patch of a photograph."""
    found, rng = photo_findings(), np.random.default_rng(0)
    photographs = [load_sample_image(f"{name}.jpg") / np.float32(255.0) for name in CONCEPT_NAMES]
    images = np.empty((n, side, side, 3), dtype=np.float32)
    for i in range(n):
        photograph = photographs[i % 2]
        top, left = (rng.integers(length - 4 * side) for length in photograph.shape[:2])
        images[i] = photograph[top : top + 4 * side : 4, left : left + 4 * side : 4]
    at = rng.integers(len(found.group), size=n)
    view = replace(found.view, before=found.view.before[at], after=found.view.after[at])
    return replace(
        found,
        group=found.group[at],
        ids=[f"images/part-{i % 7}/a_picture_with_a_name_{i:06d}.jpg" for i in range(n)],
        correct_before=found.correct_before[at],
        correct_after=found.correct_after[at],
        view=view,
        drawn_rows=np.arange(n),
        content=Pictures(images),
    )


def nothing_removed() -> Findings:
    """The toy findings had no direction been accepted."""
    found = toy_findings()
    before = found.before
    same = PairedDifference(0.0, 0.0, 0.0)
    after = replace(before, name=found.method, average_change=same, group_average_change=same, worst_change=same)
    keep = [k for k, axis in enumerate(found.view.axes) if axis.role == "head"]
    stopped = replace(found.traces[""], steps=found.traces[""].steps[-1:], stopped="no direction is proper")
    return replace(
        found,
        n_removed=0,
        n_main=0,
        results=(before, after, *found.results[2:]),
        view=_some_axes(found.view, keep),
        angles=(),
        shared_variance=None,
        extremes=(),
        correct_after=found.correct_before,
        traces={"": stopped},
    )


def hostile_findings() -> Findings:
    """Photodigits whose labels, groups and ids are called what no one should be called."""
    found = photo_findings()
    axes = tuple(replace(axis, name=f"{HOSTILE[k % 3]} {k}") for k, axis in enumerate(found.view.axes))
    origin = replace(found.origin, command=f"unspur report '{HOSTILE[0]}'", remarks=HOSTILE[:3])
    rename = {name: f"{HOSTILE[0]} {k}" for k, name in enumerate(found.concepts)}
    judged = tuple(
        replace(j, leakage={rename.get(name, name): leak for name, leak in j.leakage.items()}) for j in found.results
    )
    return replace(
        found,
        main=HOSTILE[1],
        concepts=tuple(rename.values()),
        groups=HOSTILE[:4],
        results=judged,
        origin=origin,
        view=replace(found.view, axes=axes),
        ids=[f"{HOSTILE[k % 6]}{k}" for k in range(len(found.ids))],
        warnings=(HOSTILE[2],),
        nonlinear={rename[name]: leak for name, leak in found.nonlinear.items()},
    )


def file_findings() -> Findings:
    """Photodigits whose rows are called by long paths, with more directions than a page looks along."""
    found = photo_findings()
    ids = [f"release-2024/photographs/high_resolution/digit_on_a_photograph_{k:06d}.png" for k in range(len(found.ids))]
    return replace(found, ids=ids, n_removed=11)


def long_findings() -> Findings:
    """The toy findings with labels, classes and axes whose names nobody would read to the end."""
    found, levels = toy_findings(), (("a" * 9000, "a" * 9001), ("b" * 9000, "c" * 9000))
    judged = tuple(replace(j, accuracy=replace(j.accuracy, levels=levels)) for j in found.results)
    axes = tuple(replace(axis, name=f"{'x' * 9000} {k}") for k, axis in enumerate(found.view.axes))
    groups = tuple(judged[0].accuracy.labels())
    probe = {f"{'k' * 9000} {k}": pair for k, pair in enumerate(found.certificate.probe.values())}
    return replace(
        found,
        main="m" * 9000,
        results=judged,
        groups=groups,
        view=replace(found.view, axes=axes),
        certificate=replace(found.certificate, probe=probe),
    )


def lost() -> Findings:
    """The toy findings had the removal harmed the task: the worst group falls, and a method has a problem."""
    found = toy_findings()
    before, after = found.before, found.after
    assert before.accuracy is not None
    accuracy = replace(before.accuracy, correct=before.accuracy.rows // 2)
    down = PairedDifference(-0.31, -0.35, -0.27)
    after = replace(after, accuracy=accuracy, average_change=down, group_average_change=down, worst_change=down)
    broken = replace(found.results[2], accuracy=None, problem="Group (bird=1, background=0) has 1 row; 2 are needed.")
    return replace(found, results=(before, after, broken, *found.results[3:]), warnings=("The task may be lost.",))


def _toys(rows):
    """Training and test rows (Z, y, concept) with names for classes."""
    sets = (make_toy(n, rho=rho, random_state=k) for k, (n, rho) in enumerate(((1500, 0.8), (rows, 0.0))))
    return [
        (toy.Z, np.array(["landbird", "waterbird"])[toy.y], np.array(["land", "water"])[toy.concept]) for toy in sets
    ]


def _some_axes(view, keep):
    cut = [replace(b, along=b.along[keep]) for b in (view.boundary_before, view.boundary_after)]
    axes = tuple(view.axes[k] for k in keep)
    return View(axes, view.before[:, keep], view.after[:, keep], view.gram[np.ix_(keep, keep)], *cut)
