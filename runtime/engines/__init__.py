"""Engines: what runs the graphs of a bundle, one module each, imported only when a bundle asks for it."""
