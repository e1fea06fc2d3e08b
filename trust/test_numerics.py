"""Any table gives an answer that is finite throughout or a clear error, and never the identity in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.removers.test_collinear import multiple_correlation

from trust.answers import Account, Ending, ending, not_finite
from trust.tables import Recipe, recipes
from unspur import heads, metrics
from unspur.exceptions import NothingRemovedWarning
from unspur.labels import class_label
from unspur.removers import INLP, JSE, LEACE, RLACE, SAL, SPLINCE

PART = "numerics"

CLOSED = {
    "LEACE": lambda: LEACE(),
    "SAL": lambda: SAL(),
    "SPLINCE": lambda: SPLINCE(),
    "LEACE, balanced": lambda: LEACE(balance="group"),
}
JOINT = {
    "JSE": lambda: JSE(random_state=0),
    "JSE, held out": lambda: JSE(cv=0.5, random_state=0),
    "JSE, scores": lambda: JSE(metric=1.0, random_state=0),
}
SEARCHED = {
    "INLP": lambda: INLP(random_state=0),
    "RLACE": lambda: RLACE(),
    "RLACE, balanced": lambda: RLACE(balance="concept"),
}
HEADS = {
    "ERM": lambda: heads.ERM(random_state=0),
    "GroupWeighted": lambda: heads.GroupWeighted(random_state=0),
    "SUBG": lambda: heads.SUBG(random_state=0),
    "GroupDRO": lambda: heads.GroupDRO(random_state=0),
    "JTT": lambda: heads.JTT(random_state=0),
    "DFR": lambda: heads.DFR(random_state=0),
    "AFR": lambda: heads.AFR(random_state=0),
}
#: Rounding errors, in those of the rows, that a product of a row with the factors of a map may add up.
ROUNDINGS = 100.0


def tried(count: int, drawn: st.SearchStrategy[Any], judge: Callable[..., Any]) -> None:
    """Judge so many examples, the same for the same modules; failures are told by the account, not searched for."""
    one_by_one = settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    one_by_one(given(drawn)(judge))()


def dense(rows: Any) -> Any:
    """Rows of any kind as a float64 array."""
    return np.asarray(rows.detach().double().numpy() if hasattr(rows, "detach") else rows, dtype=np.float64)


def removed(make: Callable[[], Any], recipe: Recipe) -> Ending:
    """Fit a remover on a table, clean the table, and look at everything that came of it."""
    table = recipe.table()
    end = ending(lambda: make().fit(table.Z, table.y, **table.given))
    if end.answer is None:
        return end
    remover, map_ = end.answer, end.answer.removal_
    end.faults += [f"not finite: {path}" for path in not_finite(vars(remover))]
    for name in ("spurious_", "main_"):
        basis = getattr(remover, name).basis
        if np.abs(basis.T @ basis - np.eye(basis.shape[1])).max(initial=0.0) > 1e-10:
            end.faults.append(f"{name} is not orthonormal")
    if np.abs(map_.left.T @ map_.right - np.eye(map_.right.shape[1])).max(initial=0.0) > 1e-8:
        end.faults.append("the map is no projection")
    if not remover.spurious_.dim and NothingRemovedWarning not in end.spoken:
        end.faults.append("the identity, in silence")
    applied = ending(lambda: remover.transform(table.Z))
    end.faults += applied.faults + ([applied.error] if applied.error else [])
    if end.faults:
        return end
    clean = applied.answer
    if tuple(clean.shape) != tuple(np.shape(table.Z)) or not same_kind(table.Z, clean):
        end.faults.append(f"{np.shape(table.Z)} became {clean.dtype} of shape {tuple(clean.shape)}")
    Z, once, twice = dense(table.Z), dense(clean), dense(map_(clean))
    # What rounding may do: each number goes through two products with the factors, twice.
    size = np.abs(Z) + 2.0 * np.abs(map_.centre)
    for _ in range(2):
        size = size + (size @ np.abs(map_.right)) @ np.abs(map_.left).T
    if not np.isfinite(once).all():
        end.faults.append("the cleaned rows are not finite")
    elif np.any(np.abs(twice - once) > ROUNDINGS * recipe.eps * size):
        end.faults.append("removed twice is not removed once")
    return end


def same_kind(before: Any, after: Any) -> bool:
    """Whether rows kept their floating-point type; other kinds become float64."""
    kind = str(getattr(before, "dtype", "float64")).removeprefix("torch.")
    return str(after.dtype).removeprefix("torch.") == (kind if "float" in kind else "float64")


def covariance_left(remover: Any, recipe: Recipe) -> float:
    """Largest correlation of a cleaned column with the concept, in the units of the column before.

    By the map itself, on the rows as float64 numbers around their mean: how many digits a type has is asked elsewhere.
    A projection has sixteen for all columns together, so one below ten orders of the largest is seen in that unit.
    """
    table = recipe.table()
    Z, label = dense(table.Z), class_label(table.concept, "concept", recipe.n)
    weight = label.present * (1.0 if table.weight is None else np.asarray(table.weight, dtype=np.float64))
    weight = weight / weight.sum()
    around = Z - weight @ Z
    deviation = np.sqrt(weight @ around**2)
    live = deviation > 1e-13 * np.abs(weight @ Z)
    if live.any():  # columns below the rounding errors of the others are left as they are, by promise
        live &= deviation > recipe.eps * np.quantile(deviation[live], 0.75, method="higher")
    cleaned = around - (around @ remover.removal_.right) @ remover.removal_.left.T
    concept = label.codes - weight @ label.codes
    left = np.abs((weight * concept) @ (cleaned - weight @ cleaned))
    deviation = np.maximum(deviation, 1e-10 * deviation.max())
    return float((left / np.where(live, deviation * np.sqrt(weight @ concept**2), np.inf)).max(initial=0.0))


def removals(line: Any, makers: dict[str, Any], count: int, drawn: st.SearchStrategy[Recipe]) -> Account:
    account = Account()

    def judge(which: str, recipe: Recipe) -> None:
        end = removed(makers[which], recipe)
        if which in CLOSED and end.answer is not None and not end.spoken and not which.endswith("balanced"):
            left, map_ = covariance_left(end.answer, recipe), end.answer.removal_
            # An oblique map makes rounding as much larger as its factors are long.
            rounding = 10.0 * recipe.eps * np.linalg.norm(map_.left) * np.linalg.norm(map_.right)
            if left > max(1e-6, rounding):
                end.faults.append(f"correlation of {left:.0e} with the concept is left")
        line.trial(account.add((which, recipe), end))

    tried(count, st.tuples(st.sampled_from(sorted(makers)), drawn), lambda pair: judge(*pair))
    line.figure, line.data = account.figure, account.data
    return account


def test_closed_forms_on_any_table(tally: Any, effort: Any) -> None:
    line = tally("closed forms on any table")
    account = removals(line, CLOSED, effort.times(250, 3000), recipes())
    assert line.all_survived, str(account)
    assert account.answers > line.tried / 2, "a strategy that makes mostly errors tries little"


def faintly_told(seed: int) -> tuple[Any, Any, Any]:
    """Rows of which some columns combine others, up to multiples of the concept that are faint but not rounded away."""
    rng = np.random.default_rng(seed)
    n, d, more = int(rng.integers(100, 800)), int(rng.integers(3, 20)), int(rng.integers(1, 4))
    concept = rng.permutation(np.arange(n) % 2)
    y = np.where(rng.random(n) < 0.75, concept, 1 - concept)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.uniform(-3, 3, size=d)
    z[:, 0] += y
    dtype, least = (np.float64, -9.0) if seed % 2 else (np.float32, -4.0)
    faint = 10.0 ** rng.uniform(least, -2.0, size=more)
    told = z @ rng.standard_normal((d, more)) + faint * (concept[:, None] + 0.1 * rng.standard_normal((n, more)))
    copies = z[:, : int(rng.integers(0, 3))]
    z = np.column_stack([z, told, copies]) * np.exp(rng.uniform(-3, 3, size=d + more + copies.shape[1]))
    return z.astype(dtype), y, concept


def test_columns_that_are_nearly_copies(tally: Any, effort: Any) -> None:
    """However faint the difference of columns is that tells the concept, nothing tells it afterwards."""
    line, worst = tally("nearly copied columns: no combination tells the concept"), {"float64": 0.0, "float32": 0.0}
    for seed in range(effort.times(30, 1000)):
        z, y, concept = faintly_told(seed)
        before, allowed = multiple_correlation(z, concept, z), 1e-4 if z.dtype == np.float64 else 0.02
        for which in ("LEACE", "SAL", "SPLINCE"):
            end = ending(lambda z=z, y=y, concept=concept, which=which: CLOSED[which]().fit(z, y, concept=concept))
            left = np.inf if end.answer is None else multiple_correlation(end.answer.transform(z), concept, z)
            worst[z.dtype.name] = max(worst[z.dtype.name], left)
            line.trial(left < allowed < 0.5 < before)
    line.figure = f"at most {worst['float64']:.0e} in float64, {worst['float32']:.0e} in float32"
    line.data = dict(worst)
    assert line.all_survived, line.figure


def test_joint_estimation_on_any_table(tally: Any, effort: Any) -> None:
    line = tally("JSE on any table")
    account = removals(line, JOINT, effort.times(60, 300), recipes(tested=True))
    assert line.all_survived, str(account)
    assert account.answers > line.tried / 2, "a strategy that makes mostly errors tries little"


def test_searches_on_any_table(tally: Any, effort: Any) -> None:
    line = tally("INLP and RLACE on any table")
    account = removals(line, SEARCHED, effort.times(40, 300), recipes(tested=True))
    assert line.all_survived, str(account)
    assert account.answers > line.tried / 2, "a strategy that makes mostly errors tries little"


def test_last_layers_on_any_table(tally: Any, effort: Any) -> None:
    line, account = tally("last layers on any table"), Account()

    def judge(which: str, recipe: Recipe) -> None:
        table = recipe.table()
        end = ending(lambda: HEADS[which]().fit(table.Z, table.y, **table.given))
        if end.answer is not None:
            head, fitted = end.answer, dict(vars(end.answer))
            if which == "GroupDRO":  # NaN, by promise, for a group without rows: then it has no weight either
                losses, weights = fitted.pop("group_losses_"), fitted["group_weights_"]
                fitted["losses of groups"] = losses[~np.isnan(losses)]
                end.faults += ["a group with a weight has no loss"] if np.any(weights[np.isnan(losses)] > 0) else []
            end.faults += [f"not finite: {path}" for path in not_finite(fitted)]
            for ask in (head.decision_function, head.predict_proba, head.predict_log_proba, head.predict):
                answered = ending(lambda ask=ask: ask(table.Z))
                end.faults += answered.faults + ([answered.error] if answered.error else [])
                if (
                    answered.answer is not None
                    and ask != head.predict
                    and not np.isfinite(dense(answered.answer)).all()
                ):
                    end.faults.append(f"{ask.__name__} is not finite")
        line.trial(account.add((which, recipe), end))

    drawn = st.tuples(st.sampled_from(sorted(HEADS)), recipes())
    tried(effort.times(150, 1000), drawn, lambda pair: judge(*pair))
    line.figure, line.data = account.figure, account.data
    assert line.all_survived, str(account)
    assert account.answers > line.tried / 2


def measured(which: str, recipe: Recipe) -> dict[str, Any]:
    """What a measure says of a table, as plain numbers."""
    table = recipe.table()
    rng = np.random.default_rng(recipe.seed)
    y = np.asarray(table.y)
    guess = np.where(rng.random(recipe.n) < 0.2, y[::-1], y)
    if which == "group accuracy":
        found = metrics.group_accuracy(y, guess, table.concept)
        figures = (found.worst, found.worst_interval(), found.average, found.average_interval())
        return {"figures": figures, "bounds": found.interval(simultaneous=True)}
    if which == "paired difference":
        found = metrics.paired_difference(guess == y, np.roll(guess, 1) == y, group=y)
        return {"found": found}
    if which == "leakage":
        return {"found": metrics.leakage(table.Z, table.concept, sample_weight=table.weight, random_state=0)}
    feature = np.where(y == y[0], 1.0, 0.0) + rng.normal(size=recipe.n)
    return {"error": metrics.reconstruction_error(table.Z, feature)}


MEASURES = ("group accuracy", "paired difference", "leakage", "reconstruction")


def test_measures_on_any_table(tally: Any, effort: Any) -> None:
    line, account = tally("measures on any table"), Account()

    def judge(which: str, recipe: Recipe) -> None:
        end = ending(lambda: measured(which, recipe))
        if end.answer is not None:
            end.faults += [f"not finite: {path}" for path in not_finite(end.answer)]
        line.trial(account.add((which, recipe), end))

    drawn = st.tuples(st.sampled_from(MEASURES), recipes(tested=True))
    tried(effort.times(80, 500), drawn, lambda pair: judge(*pair))
    line.figure, line.data = account.figure, account.data
    assert line.all_survived, str(account)
    assert account.answers > line.tried / 2


FLOATING = ("float64", "float32", "fortran", "tensor", "tensor float32")


#: Digits of a column's spread that must be in the rows for six of them to be in the answer.
FEWEST_DIGITS = 6.5


def digits_of(Z: Any, eps: float) -> float:
    """Fewest digits that the spread of a column has beside its rounding error; those of constant ones do not count."""
    spread, size = Z.std(axis=0), eps * np.abs(Z).max(axis=0)
    varies = spread > 0.01 * size
    return float(np.log10((spread / np.where(varies, size, 1.0))[varies]).min(initial=np.inf))


@pytest.mark.parametrize("exact", [True, False], ids=["powers of two", "any factor"])
def test_the_unit_of_the_rows_does_not_matter(exact: bool, tally: Any, effort: Any) -> None:
    line, account = tally("rows times a power of two" if exact else "rows times any number"), Account()
    worst = {"subspace": 0.0, "rows": 0.0}

    def judge(which: str, factor: float, recipe: Recipe) -> None:
        make = (CLOSED | JOINT | SEARCHED)[which]
        one, other = recipe.table(), recipe.table(factor)
        if not exact and digits_of(dense(one.Z), recipe.eps) < FEWEST_DIGITS:
            return  # times any number such rows are rounded to others
        end = ending(lambda: (make().fit(one.Z, one.y, **one.given), make().fit(other.Z, other.y, **other.given)))
        if end.answer is not None:
            first, second = end.answer
            if first.spurious_.dim != second.spurious_.dim or first.main_.dim != second.main_.dim:
                end.faults.append(f"{first.spurious_} in one unit, {second.spurious_} in another")
            else:
                apart = np.sin(first.spurious_.angles(second.spurious_)).max(initial=0.0)
                here, there = dense(first.transform(one.Z)), dense(second.transform(other.Z)) / factor
                around = dense(one.Z) - dense(one.Z).mean(axis=0)
                moved = float(np.abs(here - there).max() / np.abs(around).max())
                worst["subspace"], worst["rows"] = max(worst["subspace"], apart), max(worst["rows"], moved)
                # Of float32 rows that are very small or large, squares are taken in float64: the same to its rounding.
                if exact and recipe.eps < 1e-10 and not np.array_equal(first.spurious_.basis, second.spurious_.basis):
                    end.faults.append(f"subspaces {apart:.0e} apart")
                if apart > 1e-6:
                    end.faults.append(f"subspaces {apart:.0e} apart")
                if moved > 1e-6 + 10.0 * recipe.eps * np.abs(dense(one.Z)).max() / np.abs(around).max():
                    end.faults.append(f"rows {moved:.0e} apart")
        line.trial(account.add((which, factor, recipe), end))

    factors = st.sampled_from([2.0**10, 2.0**-10, 2.0**33, 2.0**-40] if exact else [10.0, 1e-3, 3.0, 7e9, 1e-12])
    drawn = recipes(tested=True).filter(lambda recipe: recipe.held in FLOATING)
    which = st.sampled_from(sorted(CLOSED | JOINT | SEARCHED))
    tried(effort.times(30, 150), st.tuples(which, factors, drawn), lambda triple: judge(*triple))
    line.figure = f"{account.figure}; subspaces at most {worst['subspace']:.0e} apart"
    line.data = account.data | worst
    assert line.all_survived, str(account)


def test_a_fault_would_be_noticed() -> None:
    """Controls: a NaN anywhere, a warning of NumPy, an error that is none of ours."""
    fitted = LEACE().fit(np.random.default_rng(0).normal(size=(40, 3)), concept=np.arange(40) % 2)
    assert not list(not_finite(vars(fitted)))
    fitted.__dict__["hidden_"] = {"deep": [(1.0, np.array([0.0, np.nan]))]}
    assert list(not_finite(vars(fitted))) == ["['hidden_']['deep'][0][1]"]
    assert ending(lambda: np.ones(1) / np.zeros(1)).faults
    assert ending(lambda: np.linalg.inv(np.zeros((2, 2)))).faults
    assert not ending(lambda: LEACE().fit(np.ones((4, 2)), concept=[0, 1, 0, 1])).faults
