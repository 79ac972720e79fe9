"""Composed expressions: new labels from the parts of real ones, laid out with real symbol inks."""
