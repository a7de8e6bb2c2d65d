"""Files, tensors and pictures: written whole or not at all, read as if they came from anyone."""
