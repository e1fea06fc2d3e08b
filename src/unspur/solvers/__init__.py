"""Sums over rows, and what is solved with them: one file for each family of losses."""
