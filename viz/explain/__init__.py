"""Why an iteration went as it did, in sentences worded from the codes and numbers of its record."""
