"""The recogniser and its interchangeable parts: encoder, position encoding, context, decoder."""
