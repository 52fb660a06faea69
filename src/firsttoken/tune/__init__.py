"""Keep only what a measurement on this machine and this workload says helps."""
