"""What all trainings share: their folder on disk, the loop, the command around it, and text from a folder."""
