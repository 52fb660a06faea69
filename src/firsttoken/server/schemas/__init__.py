"""What clients may send, as OpenAI and vLLM name it."""
