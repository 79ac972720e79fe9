"""Models, data, training and metrics (torch)."""
