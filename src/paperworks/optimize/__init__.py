"""Optimisers of costly or discrete objectives, on the interfaces of BoTorch, SciPy and PySCIPOpt."""
