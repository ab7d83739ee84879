"""The estimation room."""
