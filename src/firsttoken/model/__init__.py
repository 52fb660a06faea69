"""Dense decoders defined by config, their weights and where these come from."""
