"""The page Papers: every table and figure that can be run again, ours beside theirs."""
