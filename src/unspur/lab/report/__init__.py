"""From results to tables and pictures; never fits anything."""
