"""The page Race: recorded calls replayed side by side on one clock."""
