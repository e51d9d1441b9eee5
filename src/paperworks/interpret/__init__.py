"""What representations of networks hold: geometry, probes, concepts."""
