"""Old names work for one release, and say the new one."""

import pytest

import unspur.report
from unspur.report.measuring import measure


def test_the_old_name_of_measure_works_and_warns():
    with pytest.warns(FutureWarning, match=r"unspur\.report\.find is now unspur\.report\.measure"):
        assert unspur.report.find is measure


def test_other_names_are_missing_as_in_any_module():
    with pytest.raises(AttributeError, match="has no attribute 'judge'"):
        _ = unspur.report.judge
