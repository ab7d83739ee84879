"""The simulation room."""
