"""What a trained model does and how models compare: attention, training curves, locality, ablations."""
