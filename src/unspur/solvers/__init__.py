"""Sums over rows and the solvers on them, one file for each family of losses."""
