"""Papers on learning from weak or imperfect supervision."""
