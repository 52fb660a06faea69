"""The ops a decoder layer is made of: each has a torch reference and faster forms; dispatch lives in the op."""
