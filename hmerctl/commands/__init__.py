"""One small module per command (group): a ``register(app)`` that adds it, heavy imports inside the functions."""
