"""The frame: what is claimed, what was tried and what was found."""
