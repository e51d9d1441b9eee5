"""Paperworks: 57 ICLR 2026 papers that work, each a component to import and a set of claims to test."""

__version__ = "0.1.0"
