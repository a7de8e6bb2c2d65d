"""What gradients give away, measured: scenario -> shares -> reconstructions -> records -> store."""
