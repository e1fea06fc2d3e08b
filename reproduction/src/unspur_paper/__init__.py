"""The paper behind unspur, run again: its datasets, networks, experiments, tables and figures."""
