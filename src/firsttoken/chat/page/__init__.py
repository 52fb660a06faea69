"""The chat page: Chainlit before a server's public HTTP API.

It runs in an environment of its own (Chainlit pins much) as `python -m firsttoken.chat.page`, and there imports
nothing of firsttoken but `errors`, `version` and `chat`.
"""
