"""The parity ladder: proof, rung by rung, that a bundle says what its checkpoint says."""
