"""The page Sweep: what varies, its charts as they fill, the best setting on this machine."""
