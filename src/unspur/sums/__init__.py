"""What is summed over one block of rows: counts, moments, logistic losses, losses per group."""
