"""Whether this machine and this model will be fast, and if not, why: readings in, verdicts and fixes out."""
