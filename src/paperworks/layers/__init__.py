"""Attention and other building blocks for networks."""
