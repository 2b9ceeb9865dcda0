"""The contract: records of what a run did, their file, and all that reads only them. Torch-free."""
