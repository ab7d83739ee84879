"""The contracts room."""
