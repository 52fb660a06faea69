"""Calls of tools: found in what a model writes, and kept to their form by a grammar where a request asks for it."""
