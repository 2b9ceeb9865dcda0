"""What several tests are made of: runs written by hand, small trainings, processes."""
