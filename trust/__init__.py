"""Whether the tool deserves to be believed: trials with counts, run by `make trust` and `make trust-full`.

Each module is one part of the question and each test a claim, which it tries many times and counts::

    worlds (simulated sets with a known truth) ┐
    peers, tables of any kind, wheels          ┴─▶ test_*.py ─(tally)─▶ one table, and a record ─▶ reproduction/docs/

A test asserts its claim like any other; what it counted goes into the table whether it passed or not. `quick` trials
take two minutes in all, `full` ones as long as the figures of the page need.
"""
