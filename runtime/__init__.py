"""What runs on the device: ink or picture to LaTeX (numpy, pillow and one engine; never torch)."""
