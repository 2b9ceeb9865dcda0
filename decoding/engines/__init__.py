"""Key/value rows, and what runs a model over them: the library's forward, our lean one, or static shapes as graphs."""
