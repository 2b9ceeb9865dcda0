"""The page Tune live: one prefix drafted again with every setting turned."""
