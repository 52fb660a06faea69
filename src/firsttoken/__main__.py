"""`python -m firsttoken` is the `firsttoken` command."""

from firsttoken.cli.main import main

main()
