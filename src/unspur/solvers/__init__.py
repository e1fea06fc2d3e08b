"""From sums to weights: the orthogonal pair (exact and by SGD), and two-scalar logistic fits."""
