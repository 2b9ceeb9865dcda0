"""The page Sweep: what varies, its charts while they fill, what is best here."""
