"""The checks: each takes readings and gives findings; none reads anything itself."""
