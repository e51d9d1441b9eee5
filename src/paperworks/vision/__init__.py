"""Optical flow, point clouds and what makes pictures hard to learn from."""
