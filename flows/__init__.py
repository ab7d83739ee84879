"""Prefect flows: each a paragraph that calls the rooms of gogh_core in their order."""

__all__: list[str] = []
