"""Target `coreml`: conversion to .mlpackage, an evaluator for saved packages, and what Core ML asks of a graph."""
