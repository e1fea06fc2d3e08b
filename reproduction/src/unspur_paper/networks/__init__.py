"""Networks that are trained with the spurious correlation, and the maps of their last layers."""
