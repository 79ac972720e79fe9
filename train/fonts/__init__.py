"""Expressions composed from stroke fonts by rules: training data that owes nothing to any writer or data set."""
