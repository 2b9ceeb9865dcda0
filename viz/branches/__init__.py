"""The history of a run's branches, and what two of them do differently."""
