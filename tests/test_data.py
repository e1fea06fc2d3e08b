import numpy as np

from unspur._data import decode_rows


def test_groups_count_rows_of_known_concept_only():
    y = np.array([0, 0, 0, 1, 1, 1, 1])
    concept = np.array(["a", "b", None, "a", "a", "b", None], dtype=object)
    X = np.arange(14.0).reshape(7, 2)
    data = decode_rows((X, y, concept))
    known = data.concept_known
    np.testing.assert_array_equal(known, [True, True, False, True, True, True, False])
    np.testing.assert_array_equal(data.counts, [1, 1, 2, 1])
    np.testing.assert_array_equal(data.group_weights, [1, 1, 2, 1])
    np.testing.assert_array_equal(data.effective_group_sizes, [1, 1, 2, 1])
    weighted = data.reweighted(np.array([1.0, 1.0, 9.0, 3.0, 1.0, 2.0, 9.0]))
    np.testing.assert_array_equal(weighted.counts, [1, 1, 2, 1])
    np.testing.assert_array_equal(weighted.group_weights, [1, 1, 4, 2])
    np.testing.assert_allclose(weighted.effective_group_sizes, [1, 1, 1.6, 1])
    for rows in (data, weighted):
        for balanced in (False, True):
            weighting = rows.weighting(balanced=balanced)
            block = rows.source().sum(lambda block: [block])[0]
            share = weighting(block)
            assert np.isclose(share.sum(), 1.0)
            only = rows.select(known)
            expected = only.weight * only.weighting(balanced=balanced).factor[only.group]
            np.testing.assert_allclose(share @ block.z, expected @ only.X)
    drawn = data.subsample_groups(np.random.default_rng(0))
    assert len(drawn) == 4
    assert known[drawn].all()
    first, second = data.with_labels().split(0.5, np.random.default_rng(0))
    assert not (first.weight + second.weight)[~known].any()
