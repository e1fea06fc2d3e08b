"""What a saved file holds is of the kinds that it should have."""

import pytest

from unspur._reading import require_kinds

KIND = {"n": int, "x": (int, float), "list": [str], "table": {...: bool}, "inner": {"a": dict}}
SOUND = {"n": 1, "x": 0.5, "list": ["a"], "table": {"p": True}, "inner": {"a": {}}, "more": None}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n": True}, "'n' of it is True"),  # which Python counts as a number
        ({"n": 1.0}, "'n' of it"),
        ({"x": None}, "'x' of it"),
        ({"list": "a"}, "'list' of it"),
        ({"list": ["a", 1]}, r"'list' of it\[1\]"),
        ({"table": {"p": True, "q": 1}}, "'q' of 'table' of it"),
        ({"inner": {}}, "'inner' of it has no 'a'"),
        ({"n": "9" * 10_000}, "…"),
        ({"n": 2**63}, "'n' of it is a number of 19 digits"),  # which no array and no float may hold
        ({"x": -(10**400)}, "'x' of it is a number of 401 digits"),
    ],
)
def test_values_of_another_kind_are_named(change, says):
    require_kinds(SOUND, KIND)
    with pytest.raises(ValueError, match=says) as error:
        require_kinds({**SOUND, **change}, KIND)
    assert len(str(error.value)) < 200
