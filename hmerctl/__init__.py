"""hmerctl: train, export, prove and measure handwritten mathematical expression recognition on devices."""

__version__ = "0.1.0"
