"""Kernel against reference and compiled reference, at the shapes of real models, on a GPU."""
