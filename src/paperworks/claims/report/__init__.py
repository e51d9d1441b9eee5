"""The report: a static site of all papers that opens from disk, made from paper.toml, evidence and docstrings alone."""

from __future__ import annotations

from paperworks.claims.report.site import MARKER, write_site

__all__ = ["MARKER", "write_site"]
