"""Positions and committed offsets, as people type them and as they are moved."""
