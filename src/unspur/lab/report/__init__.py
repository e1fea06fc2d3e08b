"""From results to tables and pictures; never fits anything."""

from unspur.lab.report.building import build

__all__ = ["build"]
