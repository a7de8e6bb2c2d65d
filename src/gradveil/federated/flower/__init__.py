"""Training on Flower: simulated on this machine, or on the nodes of a SuperLink."""
