"""Evaluations of language models, as Inspect AI tasks."""
