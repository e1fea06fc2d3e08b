"""Removers and heads by name, with the modules that define them.

This is the one place where a new one of ours is registered; those of other packages come by entry points (`_registry`).
Nothing is imported here, so the command line can list the names without waiting for scikit-learn.
"""

#: Modules of `unspur.removers`.
REMOVERS = {
    "JSE": "jse",
    "INLP": "inlp",
    "RLACE": "rlace",
    "LEACE": "leace",
    "SAL": "leace",
    "SPLINCE": "leace",
}
#: Modules of `unspur.heads`.
HEADS = {
    "ERM": "reweighted",
    "GroupWeighted": "reweighted",
    "SUBG": "reweighted",
    "GroupDRO": "group_dro",
    "JTT": "reweighted",
    "DFR": "reweighted",
    "AFR": "reweighted",
}
