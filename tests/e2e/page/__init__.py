"""A package, so that what it shares ends with it: while Playwright runs, no test after it can run a loop of its own."""
