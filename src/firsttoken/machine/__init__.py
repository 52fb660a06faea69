"""What this machine is, reads and can do, behind small interfaces that a test can replay."""
