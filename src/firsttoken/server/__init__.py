"""The OpenAI-compatible HTTP API. Tokenises, detokenises and streams; never touches a tensor."""
