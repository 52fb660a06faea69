"""What bounds a running server, by its own metrics and the card's sensors."""
