"""OpenAI's `/v1/responses`, as a translation of a chat request and of its answer."""
