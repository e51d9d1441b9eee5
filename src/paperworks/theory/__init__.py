"""Papers on the theory of learning: scaling limits, implicit bias, generalisation."""
