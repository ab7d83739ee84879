"""The allocation room."""
