"""How well a classifier does, group by group."""
