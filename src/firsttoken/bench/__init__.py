"""`firsttoken bench`: load, exact metrics and reports for any OpenAI-compatible server. No torch anywhere in it."""
