"""Scores of recognised expressions: token and tree scorers, statistics of comparisons, selective recognition."""
