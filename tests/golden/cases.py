"""What every estimator is asked, by the meaning of the question.

A key says what is asked ("JSE, loops swapped"), never how a constructor spells it, so that names of parameters may
change while the answers stay. Data are drawn here, with NumPy alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold
from threadpoolctl import threadpool_info, threadpool_limits

from unspur import (
    AFR,
    DFR,
    ERM,
    INLP,
    JSE,
    JTT,
    LEACE,
    RLACE,
    SAL,
    SPLINCE,
    SUBG,
    GroupDRO,
    GroupWeighted,
)
from unspur.metrics import (
    group_accuracy,
    leakage,
    paired_difference,
    principal_angles,
    reconstruction_error,
    shared_variance,
)

Answer = dict[str, Any]
CASES: dict[str, Callable[[], Answer]] = {}
N, D = 480, 8


class Data:
    """Rows in which two features carry the concept and two the task; correlated labels; and rows to test on."""

    def __init__(self, seed: int = 0, n: int = N, agreement: float = 0.75, strength: float = 1.6):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(2, size=n)
        self.concept = np.where(rng.random(n) < agreement, self.y, 1 - self.y)
        self.Z = rng.standard_normal((n, D)) @ (np.eye(D) + 0.15 * rng.standard_normal((D, D)))
        self.Z[:, 0] += strength * (2 * self.concept - 1)
        self.Z[:, 1] += 0.7 * strength * (2 * self.concept - 1)
        self.Z[:, 2] += 0.8 * strength * (2 * self.y - 1)
        self.Z[:, 3] += 0.6 * strength * (2 * self.y - 1) * (1 + 0.5 * self.concept)
        self.third = np.digitize(self.Z[:, 2] + rng.standard_normal(n), [-1.0, 1.0])
        self.season = np.digitize(self.Z[:, 0] + rng.standard_normal(n), [-1.0, 1.0])
        self.other = (self.Z[:, 4] + 0.5 * rng.standard_normal(n) > 0).astype(int)
        self.number = 2.0 * self.Z[:, 0] - self.Z[:, 5] + rng.standard_normal(n)
        self.weight = rng.uniform(0.2, 2.0, n)
        self.cluster = np.arange(n) // 4
        self.known = np.where(rng.random(n) < 0.8, self.concept.astype(float), np.nan)
        self.marked = np.where(np.isnan(self.known), -1, self.known).astype(int)


TRAIN, HELD_OUT, TEST = Data(0), Data(1, 240), Data(2, 300, agreement=0.5)
VALIDATION = {"X_val": HELD_OUT.Z, "y_val": HELD_OUT.y, "concept_val": HELD_OUT.concept}
PROBE_ROWS = TEST.Z[:5]


def case(key: str, make: Callable[[], Answer]) -> None:
    if key in CASES:
        raise ValueError(f"two cases are called {key!r}")
    CASES[key] = make


def trace_answer(trace: Any) -> Any:
    """Verdicts and figures of a trace; names and sentences may change, these may not."""
    if hasattr(trace, "parts"):
        return [trace_answer(part) for part in trace.parts.values()]
    if not hasattr(trace, "penalty"):  # of a closed form, or of the minimax
        return _figures(trace.to_dict())
    return {
        "steps": [
            {
                "place": [step.outer, step.inner],
                "role": step.verdict.role,
                "accepted": step.verdict.proper,
                "tests": [[test.t, test.p] for test in (step.verdict.informative, step.verdict.specific)],
                "losses": step.verdict.losses.tolist(),
            }
            for step in trace
        ],
        "delta": trace.delta,
        "penalty": trace.penalty,
        "complete": trace.complete,
        "task": None if trace.task is None else [trace.task.before, trace.task.after, trace.task.lost],
    }


def removal_answer(remover: Any, rows: Any = PROBE_ROWS) -> Answer:
    answer = {"transform": np.asarray(remover.transform(rows), dtype=np.float64), "rank": int(remover.removal_.rank)}
    for name in ("spurious_", "main_"):
        if hasattr(remover, name):
            subspace = getattr(remover, name)
            answer[name.strip("_")] = subspace.dim
    if hasattr(remover, "trace_"):
        answer["trace"] = trace_answer(remover.trace_)
    return answer


def fitted(remover: Any, data: Data = TRAIN, concept: Any = None, y: Any = None, **further: Any) -> Answer:
    labels = data.concept if concept is None else concept
    return removal_answer(remover.fit(data.Z, data.y if y is None else y, concept=labels, **further))


# Removers, one option at a time.


def _research(**hooks: Any) -> Any:
    """JSE with other loops, candidates or tests."""
    return type("Research", (JSE,), hooks)(metric=0.0, random_state=0)


JSE_OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "level 0.2": {"significance_level": 0.2},
    "level of all tests of a concept": {"correction": "familywise"},
    "shift 0.05": {"delta": 0.05},
    "estimated without balance": {"balance": "none"},
    "estimated with balanced concept": {"balance": "concept"},
    "estimated with balanced task": {"balance": "main"},
    "penalty 0.1": {"penalty": 0.1},
    "orthogonal scores": {"metric": 1.0},
    "at most one spurious direction": {"max_spurious": 1},
    "at most one task direction": {"max_main": 1},
    "three folds": {"cv": 3},
    "held out once": {"cv": 0.2},
    "held out once, three tenths": {"cv": 0.3},
    "small groups allowed": {"smallest_group": 2},
    "other folds": {"random_state": 7},
}
for _name, _options in JSE_OPTIONS.items():
    case(f"JSE, {_name}", lambda o=_options: fitted(JSE(**{"metric": 0.0, "random_state": 0, **o})))
case("JSE, loops swapped", lambda: fitted(_research(inner_role="spurious")))
case("JSE, next direction of the failing pair", lambda: fitted(_research(candidate="failing")))
case("JSE, tests over rows", lambda: fitted(_research(test_weighting="plain")))

INLP_OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "level 0.2": {"significance_level": 0.2},
    "tests by group": {"tests": "group"},
    "balanced groups": {"balance": "group"},
    "penalty 0.1": {"penalty": 0.1},
    "at most one direction": {"max_directions": 1},
    "held out once": {"cv": 0.2},
}
for _name, _options in INLP_OPTIONS.items():
    case(f"INLP, {_name}", lambda o=_options: fitted(INLP(**{"random_state": 0, **o})))

CLOSED = {"LEACE": LEACE, "SAL": SAL, "SPLINCE": SPLINCE, "RLACE": RLACE}
for _name, _kind in CLOSED.items():
    case(f"{_name}, defaults", lambda k=_kind: fitted(k()))
    for _balance in ("concept", "main", "group"):
        case(f"{_name}, balanced {_balance}", lambda k=_kind, b=_balance: fitted(k(balance=b)))
    case(f"{_name}, numeric concept", lambda k=_kind: fitted(k(concept_type="continuous"), concept=TRAIN.number))
case("LEACE, in two parts", lambda: _in_parts(LEACE()))
case("SAL, two directions of a concept of three classes", lambda: fitted(SAL(), concept=TRAIN.season))


def _in_parts(remover: Any) -> Answer:
    for part in (slice(0, 200), slice(200, None)):
        remover.partial_fit(TRAIN.Z[part], TRAIN.y[part], concept=TRAIN.concept[part])
    return removal_answer(remover)


# Labels, weights, designs: every remover.

REMOVERS: dict[str, Callable[[], Any]] = {
    "JSE": lambda: JSE(metric=0.0, random_state=0, penalty=0.1),
    "INLP": lambda: INLP(random_state=0, penalty=0.1),
    **CLOSED,
}
SEVERAL = {"place": TRAIN.concept, "other": TRAIN.other}
LABELS: dict[str, dict[str, Any]] = {
    "task of three classes": {"y": TRAIN.third},
    "concept of three classes": {"concept": TRAIN.season},
    "two concepts": {"concept": np.column_stack(list(SEVERAL.values()))},
    "task and concept of three classes": {"y": TRAIN.third, "concept": TRAIN.season},
    "concept missing in some rows": {"concept": TRAIN.known},
    "weights": {"sample_weight": TRAIN.weight},
}
for _name, _new in REMOVERS.items():
    for _what, _given in LABELS.items():
        case(f"{_name}, {_what}", lambda n=_new, g=_given: fitted(n(), **g))
case(
    "JSE, concept missing by a mark",
    lambda: fitted(JSE(metric=0.0, missing_concept=-1, random_state=0), concept=TRAIN.marked),
)
case("LEACE, concept missing by a mark", lambda: fitted(LEACE(missing_concept=-1), concept=TRAIN.marked))
for _name in ("JSE", "INLP"):
    case(f"{_name}, validation set", lambda n=_name: fitted(REMOVERS[n](), **VALIDATION))
    case(f"{_name}, clusters", lambda n=_name: fitted(REMOVERS[n](), clusters=TRAIN.cluster))
case("JSE, validation set and penalty chosen", lambda: fitted(JSE(metric=0.0, random_state=0), **VALIDATION))
case(
    "JSE, folds of a splitter by cluster",
    lambda: fitted(JSE(metric=0.0, cv=GroupKFold(4), random_state=0, penalty=0.1), clusters=TRAIN.cluster),
)
case("JSE, every row twice", lambda: _twice())
case(
    "JSE, nothing to find",
    lambda: fitted(JSE(metric=0.0, random_state=0), concept=np.random.default_rng(5).integers(2, size=N)),
)


def _twice() -> Answer:
    rows = np.concatenate([TRAIN.Z, TRAIN.Z])
    labels = {"y": np.tile(TRAIN.y, 2), "concept": np.tile(TRAIN.concept, 2)}
    return removal_answer(JSE(metric=0.0, random_state=0, penalty=0.1).fit(rows, **labels))


# Where rows live.

SINGLE = ("memory float32", "torch float32")
SOURCES = ("memory float32", "memory map", "Dask", "torch float64", "torch float32")


def _rows_in(where: str, folder: Path) -> Any:
    """Training rows somewhere; where that is a file, in the folder."""
    if where == "memory float32":
        return TRAIN.Z.astype(np.float32)
    if where == "memory map":
        np.save(folder / "z.npy", TRAIN.Z)
        return np.load(folder / "z.npy", mmap_mode="r")
    if where == "Dask":
        import dask.array as da

        return da.from_array(TRAIN.Z, chunks=(160, D))
    import torch

    return torch.from_numpy(TRAIN.Z).to(torch.float32 if "32" in where else torch.float64)


def _somewhere(new: Callable[[], Any], where: str) -> Answer:
    with TemporaryDirectory() as folder:
        return removal_answer(new().fit(_rows_in(where, Path(folder)), TRAIN.y, concept=TRAIN.concept))


for _name, _new in REMOVERS.items():
    for _where in SOURCES:
        case(f"{_name}, rows in {_where}", lambda n=_new, w=_where: _somewhere(n, w))


# Heads.


def head_answer(head: Any) -> Answer:
    predicted = np.asarray(head.predict(TEST.Z))
    table = group_accuracy(TEST.third if len(head.classes_) > 2 else TEST.y, predicted, TEST.concept)
    return {
        "coef": np.asarray(head.coef_, dtype=np.float64),
        "intercept": np.asarray(head.intercept_, dtype=np.float64),
        "groups": [table.rows.tolist(), table.correct.tolist()],
    }


def trained(head: Any, Z: Any = TRAIN.Z, y: Any = None, concept: Any = None, **further: Any) -> Answer:
    labels = TRAIN.concept if concept is None else concept
    return head_answer(head.fit(Z, TRAIN.y if y is None else y, concept=labels, **further))


HEADS: dict[str, Callable[..., Any]] = {
    "ERM": ERM,
    "GroupWeighted": GroupWeighted,
    "SUBG": SUBG,
    "GroupDRO": GroupDRO,
    "JTT": JTT,
    "DFR": DFR,
    "AFR": AFR,
}
for _name, _head in HEADS.items():
    case(f"{_name}, defaults", lambda h=_head: trained(h(random_state=0)))
    case(f"{_name}, penalty 1", lambda h=_head: trained(h(penalty=1.0, random_state=0)))
    case(f"{_name}, task of three classes", lambda h=_head: trained(h(random_state=0), y=TRAIN.third))
    case(f"{_name}, concept missing in some rows", lambda h=_head: trained(h(random_state=0), concept=TRAIN.known))
    case(f"{_name}, weights", lambda h=_head: trained(h(random_state=0), sample_weight=TRAIN.weight))
    case(f"{_name}, validation set", lambda h=_head: trained(h(random_state=0), **VALIDATION))
    for _where in SOURCES:
        case(f"{_name}, rows in {_where}", lambda h=_head, w=_where: _trained_somewhere(h, w))
case("ERM, balanced classes", lambda: trained(ERM(balance="main")))
case("GroupDRO, adjusted for sizes", lambda: trained(GroupDRO(adjustment=1.0)))
case("JTT, errors count twenty-fold", lambda: trained(JTT(upweight=20.0)))
case("DFR, three draws", lambda: trained(DFR(n_draws=3, random_state=0)))
case("DFR, balanced classes", lambda: trained(DFR(balance="main", random_state=0), y=TRAIN.third))
case(
    "GroupWeighted, concepts inferred",
    lambda: trained(
        GroupWeighted(unknown="infer", random_state=0), concept=np.where(np.arange(N) < 200, TRAIN.known, np.nan)
    ),
)
case("GroupWeighted, penalty in the metric 0.5", lambda: trained(GroupWeighted(metric=0.5), sample_weight=TRAIN.weight))
case("ERM, penalty in the metric 1", lambda: trained(ERM(metric=1.0), y=TRAIN.third))
case("AFR, gamma 10", lambda: trained(AFR(gamma=10.0, random_state=0)))


def _trained_somewhere(head: Callable[..., Any], where: str) -> Answer:
    with TemporaryDirectory() as folder:
        return trained(head(random_state=0), _rows_in(where, Path(folder)))


# Certificates and measures.


#: Of a measurement: its sentences, and the accuracy of a probe that is left with nothing, where rounding decides.
WORDS = ("notes", "reason", "method", "response_accuracy")


def _figures(found: Any) -> Any:
    """Numbers and names of a measurement, without its sentences."""
    if isinstance(found, dict):
        return {key: _figures(value) for key, value in found.items() if key not in WORDS}
    return [_figures(part) for part in found] if isinstance(found, list) else found


def _certified(new: Callable[[], Any], concept: str = "concept", **further: Any) -> Answer:
    remover = new().fit(TRAIN.Z, TRAIN.y, concept=getattr(TRAIN, concept))
    few = slice(0, 160)
    further = {name: values[few] for name, values in further.items()}
    found = remover.certificate(TEST.Z[few], TEST.y[few], getattr(TEST, concept)[few], random_state=0, **further)
    return _figures(found.to_dict()) | {"notes": len(found.notes)}


for _name in ("JSE", "RLACE", "SPLINCE"):
    case(f"{_name}, certificate", lambda n=_name: _certified(REMOVERS[n]))
case("JSE, certificate with clusters", lambda: _certified(REMOVERS["JSE"], clusters=TEST.cluster))
case("LEACE, certificate of three classes", lambda: _certified(LEACE, "season"))
case("LEACE, certificate of a number", lambda: _certified(lambda: LEACE(concept_type="continuous"), "number"))
for _probe in ("linear", "mlp"):
    case(
        f"leakage, {_probe} probe",
        lambda p=_probe: _figures(leakage(TEST.Z, TEST.concept, probe=p, cv=3, random_state=0).to_dict()),
    )
case(
    "leakage of a number",
    lambda: _figures(leakage(TEST.Z, TEST.number, concept_type="continuous", random_state=0).to_dict()),
)


def _group_table() -> Answer:
    head = ERM().fit(TRAIN.Z, TRAIN.y)
    predicted = head.predict(TEST.Z)
    table = group_accuracy(TEST.y, predicted, {"place": TEST.concept, "season": TEST.season})
    other = ERM(penalty=100.0).fit(TRAIN.Z, TRAIN.y).predict(TEST.Z)
    change = paired_difference(other == TEST.y, predicted == TEST.y)
    return {
        "rows": table.rows.tolist(),
        "correct": table.correct.tolist(),
        "worst": table.worst,
        "change": [change.value, change.low, change.high],
    }


case("accuracy by group, two concepts, and a paired change", _group_table)


def _measures() -> Answer:
    rest = SAL().fit(TRAIN.Z, concept=TRAIN.concept).transform(TRAIN.Z)
    first, second = (SAL().fit(TRAIN.Z, concept=c).spurious_ for c in (TRAIN.concept, TRAIN.season))
    return {
        "angles": np.asarray(principal_angles(first, second)),
        "shared": shared_variance(first, second),
        "reconstruction": reconstruction_error(rest, TRAIN.Z[:, 0]),
    }


case("angles, reconstruction", _measures)


def answer(key: str) -> Answer:
    """What is said to a question, with the categories of the warnings that came with it."""
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        found = CASES[key]()
    ours = {w.category.__name__ for w in caught if w.category.__module__.partition(".")[0] == "unspur"}
    return found | {"warnings": sorted(ours)}


def machine() -> list[str]:
    """What decides the last digits: linear algebra libraries, and the processor they were chosen for."""
    return sorted(
        {
            f"{pool['internal_api']} {pool['version']} {pool.get('architecture')}"
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        }
    )
