"""`headrace broker` and `headrace console`: processes of their own, whose flags are made from settings."""
