"""The recorded runs as static pages."""
