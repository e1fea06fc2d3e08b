"""Clusters: rows that are not independent of each other (frames of one film), and folds that keep them together.

(A *group* is a combination of labels.) Copies of a row are found by hashes. Folds of a user, from a splitter or index
arrays, are read here as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from unspur._arrays import is_tensor, renumbered, to_numpy
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError
from unspur.labels import as_labels

#: Distinct values that make a column continuous: half the number of distinct rows, within these bounds.
CONTINUOUS_VALUES = (10, 100)
#: Distinct rows that are looked at to tell whether columns are continuous.
CONTINUITY_ROWS = 2000
#: Numbers hashed at once, on the host and on a device, to bound temporary copies.
BLOCK_SIZE, DEVICE_BLOCK_SIZE = 2**17, 2**24


def cluster_labels(values: Any, name: str, n_rows: int) -> Array:
    """Labels of the cluster of each row as an array, shape (n,)."""
    array = as_labels(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n_rows,):
        raise InputError(f"{name} has shape {array.shape} for {n_rows} rows of X. Each row needs one label.")
    return array


def cluster_codes(values: Any, name: str, n_rows: int) -> IntArray:
    """Code 0, 1, … of the cluster of each row, shape (n,), in the order of the labels."""
    import pandas as pd

    try:
        codes, seen = pd.factorize(cluster_labels(values, name, n_rows))
        rank = renumbered(seen)
    except TypeError as error:
        raise InputError(f"{name} must be labels that can be compared ({error}). Use numbers or texts.") from None
    if missing := int(np.sum(codes < 0)):
        raise InputError(
            f"{name} is missing in {missing} rows. Give each row that belongs to no cluster a label of its own."
        )
    return np.asarray(rank[codes])


def folds_by_cluster(code: IntArray, group: IntArray, shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Fold 0, 1, … of each row: whole clusters, fold k with about `shares[k]` of every group's rows and clusters.

    Clusters with the same numbers of rows in every group are dealt out in proportion. The remaining ones, the largest
    first, go to the fold in which the sum of ``share² / shares[k]``, over rows and clusters of all groups, grows least.
    """
    n_clusters, n_groups = int(code.max(initial=-1)) + 1, int(group.max(initial=0)) + 1
    rows = np.bincount(code * n_groups + group, minlength=n_clusters * n_groups).reshape(n_clusters, n_groups)
    order = rng.permutation(n_clusters)
    kinds, kind, number = np.unique(rows[order], axis=0, return_inverse=True, return_counts=True)
    kind = kind.reshape(-1)
    of_cluster, filled = np.zeros(n_clusters, dtype=np.intp), np.zeros((len(shares), 2 * n_groups))
    size = np.hstack([kinds / np.maximum(rows.sum(axis=0), 1), (kinds > 0) / np.maximum((rows > 0).sum(axis=0), 1)])
    members = np.split(order[np.argsort(kind, kind="stable")], np.cumsum(number)[:-1])
    rest: list[tuple[IntArray, FloatArray]] = []
    for own, one in zip(members, size, strict=True):
        dealt = np.floor(len(own) * shares + 1e-9).astype(np.intp)
        of_cluster[own[: dealt.sum()]] = np.repeat(np.arange(len(shares)), dealt)
        filled += np.outer(dealt, one)
        rest += [(cluster, one) for cluster in own[dealt.sum() :]]
    for cluster, one in sorted(rest, key=lambda left: -float(left[1] @ left[1])):
        growth = ((2.0 * filled + one) @ one) / shares
        of_cluster[cluster] = best = int(np.argmin(growth))
        filled[best] += one
    return of_cluster[code]


def held_out_mask(group: IntArray, share: float, rng: np.random.Generator, clusters: Array | None = None) -> BoolArray:
    """Mask (n,) of a share of each group: at least one row, but never the only one; none of group -1.

    With labels of `clusters` (n,), whole clusters are held out, including rows without a group: at least one cluster of
    each group that has two or more, unless a group would have none left to train on.
    """
    if clusters is not None:
        code = cluster_codes(clusters, "clusters", len(group))
        numbered = np.where(group < 0, group.max(initial=-1) + 1, group)
        aside = np.asarray(folds_by_cluster(code, numbered, np.array([share, 1.0 - share]), rng) == 0)
        return _one_cluster_of_each(aside, code, group)
    held = np.zeros(len(group), dtype=bool)
    for g in range(int(group.max(initial=-1)) + 1):
        members = rng.permutation(np.flatnonzero(group == g))
        held[members[: min(max(1, round(share * len(members))), len(members) - 1)]] = True
    return held


def _one_cluster_of_each(aside: BoolArray, code: IntArray, group: IntArray) -> BoolArray:
    """The mask with one more cluster, the smallest possible, for each group that has none in it."""
    size, groups = np.bincount(code), np.unique(group[group >= 0])
    for g in groups:
        if aside[group == g].any():
            continue
        own = np.unique(code[group == g])
        for cluster in own[np.argsort(size[own], kind="stable")]:
            more = aside | (code == cluster)
            if len(np.unique(group[~more & (group >= 0)])) == len(np.unique(group[~aside & (group >= 0)])):
                aside = more
                break
    return aside


def splits_from_cv(
    cv: Any, label: Array, clusters: IntArray | None = None, rows: Array | None = None
) -> list[tuple[IntArray, IntArray]]:
    """Training and test rows from a splitter, or from pairs of index arrays or masks.

    A splitter gets `label` (n,) as y, the clusters as groups, and the rows if they are passed.
    """
    splits, number = [], np.arange(len(label))
    for k, split in enumerate(_splits(cv, label, clusters, rows), start=1):
        try:
            train, test = (number[np.asarray(to_numpy(part), dtype=None if len(part) else np.intp)] for part in split)
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"cv: split {k} is not a pair of index arrays (train, test) into the {len(label)} rows: {error}."
            ) from None
        if not len(train) or not len(test):
            raise InputError(f"cv: the {'test' if len(train) else 'training'} set of split {k} is empty.")
        if both := len(np.intersect1d(train, test)):
            raise InputError(f"cv: {both} rows are in the training set and in the test set of split {k}.")
        splits.append((train, test))
    if not splits:
        raise InputError("cv: no row is in any test set. (A generator gives its splits once; pass a list of them.)")
    if np.bincount(np.concatenate([test for _, test in splits])).max() > 1:
        raise InputError("cv: a row is in two test sets. Use a splitter without repeats, such as StratifiedKFold.")
    return splits


def splits_of_known(
    cv: Any, known: BoolArray, label: Array, clusters: IntArray | None, rows: Array
) -> list[tuple[IntArray, IntArray]]:
    """`splits_from_cv` of the rows that are `known` (n,); label, clusters and rows are of those only.

    A splitter splits the known rows; pairs of indices are into all n rows, as is a PredefinedSplit of n rows.
    """
    if len(getattr(cv, "test_fold", ())) == len(known):
        cv = list(cv.split())
    if hasattr(cv, "split"):
        return splits_from_cv(cv, label, clusters, rows)
    place = np.cumsum(known) - 1
    pairs = [(place[train[known[train]]], place[test[known[test]]]) for train, test in splits_from_cv(cv, known)]
    if not any(len(test) for _, test in pairs):
        raise InputError("cv: no row of a test set has a known label and a weight.")
    return [(train, test) for train, test in pairs if len(test)]


def _splits(cv: Any, label: Array, clusters: IntArray | None, rows: Array | None) -> Iterable[Any]:
    if isinstance(cv, str) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise InputError(
            f"cv must be a number of folds, a splitter or pairs of index arrays (train, test); got {cv!r}."
        )
    if not hasattr(cv, "split"):
        return list(cv)
    try:
        own = () if clusters is None else (clusters,)  # what does not use them warns of them
        return list(cv.split(np.zeros((len(label), 1)) if rows is None else rows, label, *own))
    except ValueError as error:
        asked = clusters is None and "groups" in str(error)
        how = " Pass clusters, which are what it calls groups." if asked else ""
        raise InputError(f"cv: {type(cv).__name__} cannot split these rows: {error}{how}") from None


def split_clusters(code: IntArray, part: IntArray) -> IntArray:
    """Clusters with rows in more than one part, by code."""
    first = np.full(int(code.max(initial=-1)) + 1, -1, dtype=np.intp)
    first[code[::-1]] = part[::-1]
    return np.unique(code[first[code] != part])


def shared_clusters(one: Any, other: Any) -> set[Any]:
    """Labels that occur in both."""
    return set(as_labels(one).tolist()) & set(as_labels(other).tolist())


def require_disjoint_clusters(clusters: Any, held_out_clusters: Any, suffix: str) -> None:
    """Raise InputError if held-out rows share clusters with the training rows, or have none where these do.

    Arguments of the held-out rows end in `suffix`, "val" or "test".
    """
    if clusters is None:
        return
    if held_out_clusters is None:
        raise InputError(
            f"clusters were passed and clusters_{suffix} was not: tests on the rows of X_{suffix} need to know which "
            "of those belong together."
        )
    if both := shared_clusters(clusters, held_out_clusters):
        which = {"val": "validation"}.get(suffix, suffix)
        raise InputError(
            f"{len(both)} clusters are among the training rows and among the {which} rows, such as "
            f"{min(both, key=str)!r}: tests on them would not be independent of the fit. Leave them out of one of the "
            "two sets; if they are different clusters, give them different labels."
        )


def row_hashes(z: Array) -> Any:
    """A 64-bit hash of each row's values, shape (n,); the same for the same numbers in any float type.

    Rows of a tensor are hashed where they are, and only the hashes come to the host.
    """
    odd = np.random.default_rng(0).integers(2**63, size=z.shape[1], dtype=np.uint64)
    odd = odd * np.uint64(2) + np.uint64(1)
    if is_tensor(z):
        return _device_hashes(z.detach(), odd)
    hashes = np.empty(len(z), dtype=np.uint64)
    step = max(1, BLOCK_SIZE // z.shape[1])
    for start in range(0, len(z), step):
        bits = (np.asarray(z[start : start + step], dtype=np.float64) + 0.0).view(np.uint64)  # −0 becomes 0
        bits ^= bits >> np.uint64(29)
        bits *= odd
        hashes[start : start + step] = bits.sum(axis=1, dtype=np.uint64)
    return hashes


def _device_hashes(z: Array, odd: Any) -> Any:
    """The same hashes in the signed integers of torch, whose sums and products wrap to the same bits."""
    import torch

    factor = torch.from_numpy(odd.view(np.int64)).to(z.device)
    hashes = torch.empty(len(z), dtype=torch.int64, device=z.device)
    step = max(1, DEVICE_BLOCK_SIZE // z.shape[1])
    for start in range(0, len(z), step):
        bits = (z[start : start + step].to(torch.float64) + 0.0).view(torch.int64)
        bits ^= (bits >> 29) & (2**35 - 1)  # mask the sign bits that an arithmetic shift copies in
        bits *= factor
        hashes[start : start + step] = bits.sum(1)
    return hashes.cpu().numpy().view(np.uint64)


def fingerprint(hashes: Any) -> str:
    """One hash of a set of rows, whatever their order: number of rows and sum of their hashes."""
    return f"{len(hashes)}-{int(hashes.sum(dtype=np.uint64)):016x}"


def duplicate_clusters(hashes: Array, labels: Iterable[Array] = ()) -> IntArray | None:
    """Clusters (n,) of duplicates of a row; None if there are none.

    Duplicates have equal hashes and no two different `labels`, of which any may be missing (NaN, None). Equal rows with
    different labels are not duplicates: an encoder maps different inputs that it cannot tell apart (empty texts, blank
    pictures) to the same row.
    """
    import pandas as pd

    _, code, count = np.unique(hashes, return_inverse=True, return_counts=True)
    code, mixed = code.reshape(-1), np.zeros(len(count), dtype=bool)
    if count.max(initial=1) == 1:
        return None
    for values in labels:
        label = pd.factorize(as_labels(values))[0]  # −1 where it is missing
        rows = (count[code] > 1) & (label >= 0)
        pairs = np.unique(np.stack([code[rows], label[rows]]), axis=1)
        mixed |= np.bincount(pairs[0], minlength=len(count)) > 1
    if mixed[count > 1].all():
        return None
    return renumbered(np.where(mixed[code], len(count) + np.arange(len(code)), code))


def distinct_row_indices(hashes: Array) -> IntArray:
    """Numbers of at most `CONTINUITY_ROWS` distinct rows, in increasing order and from all parts of the rows."""
    first = np.sort(np.unique(hashes, return_index=True)[1])
    return first[np.linspace(0, len(first) - 1, min(len(first), CONTINUITY_ROWS)).astype(np.intp)]


def has_continuous_columns(rows: Array) -> bool:
    """Whether equal rows must be copies: some column has many distinct values among the distinct rows.

    Rows of a few small integers, such as binary features, may be equal by chance. Of many rows, pass those of
    `distinct_row_indices`: the first ones may all be the same, as in a table that is sorted.
    """
    rows = np.unique(np.asarray(rows, dtype=np.float64), axis=0)
    ordered = np.sort(rows, axis=0)
    most = 1 + int((ordered[1:] != ordered[:-1]).sum(axis=0).max(initial=0))
    return bool(most >= np.clip(len(rows) / 2, *CONTINUOUS_VALUES))
