"""Somebody curious attacks what was recorded while participants trained."""
