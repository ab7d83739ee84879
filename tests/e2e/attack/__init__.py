"""Attacks on loopback: bounded, cleaned up, each refused at its boundary."""
