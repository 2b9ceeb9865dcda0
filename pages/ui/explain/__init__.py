"""Below the scope: why a token was accepted or not, luck, what was possible, the smallest change to include it."""
