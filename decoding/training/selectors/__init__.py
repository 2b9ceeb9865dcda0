"""Training the neural selector of delayed trees: labelled roots, objective, learner."""
