"""Geometry of hyperbolic spaces, batched over factors."""
