"""Values and decisions: no input, no output, no clock of its own."""
