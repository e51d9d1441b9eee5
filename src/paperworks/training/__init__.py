"""How models are trained: schedules, merging, optimisation of large networks."""
