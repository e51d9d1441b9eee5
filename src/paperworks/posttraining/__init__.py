"""Training of language models after pre-training, as TRL trainers and losses."""
