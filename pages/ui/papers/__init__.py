"""The page Papers: every table and figure that can be re-run, our numbers next to theirs."""
