"""Anthropic's `/v1/messages`, as a translation of a chat request and of its answer."""
