"""Below the scope: why a token fared as it did, luck, what was possible, the smallest change that would keep it."""
