"""Answers that keep to a grammar: compiled once, followed by one matcher a sequence."""
