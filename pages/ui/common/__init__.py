"""What every part of a page stands on."""
