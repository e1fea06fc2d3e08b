"""Experiments as data: a spec (TOML) is a product of cells, a finished cell is a record, tables are drawn from records.

::

    spec.py ──cells──▶ running.py ──(joblib)──▶ records.py ──▶ summary.py ──▶ report
                          │                                              ▲
                       cells.py: one cell = data × method × preset    published.py
"""
