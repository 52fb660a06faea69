"""Traces of steps, from whatever profiler: what ran, what did not, and what each took. No torch."""
