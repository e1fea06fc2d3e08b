"""What the program released with the paper does on Toy, written anew: to explain published numbers, not for use.

Its early stopping, its tests and its test set differ from what the paper describes;
reproduction/docs/paper-map.md lists how. Published figures are figures of this program. The library has every method
done right.
"""
