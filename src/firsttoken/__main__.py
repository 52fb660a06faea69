"""`python -m firsttoken` is the `firsttoken` command."""

from firsttoken.cli.main import main

if __name__ == "__main__":  # a process of its own that multiprocessing starts imports this module too
    main()
