"""What attack records allow to be said of a defense: figures with intervals, verdicts, and which images are vulnerable."""
