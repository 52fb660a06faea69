"""Opt-in changes to a host: planned, journalled, applied, verified, and put back."""
