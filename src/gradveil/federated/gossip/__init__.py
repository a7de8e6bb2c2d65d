"""Training without a server: every participant in a process of its own, neighbours exchange weights."""
