"""Stores of embeddings and the networks that fill them, as the recorded experiments of the paper were run."""
