"""Tables, figures and pages of experiments, from their records."""
