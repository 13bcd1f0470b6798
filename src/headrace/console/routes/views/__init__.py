"""Routes about views: their status, their rows, their changes."""
