"""The page Tune live: one prefix drafted again with every change of a setting."""
