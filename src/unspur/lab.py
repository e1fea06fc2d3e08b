"""Raises an ImportError that says where the former content of this module is."""

raise ImportError(
    "unspur.lab was divided: unspur.datasets (make_toy, make_photodigits), unspur.report (measure, build, figures), "
    "unspur.embed (encoders), unspur.compare, unspur.selection and unspur.io are part of unspur; published datasets, "
    "fine-tuning and experiments are in unspur_paper, which a clone of unspur installs: pip install -e reproduction"
)
