"""`firsttoken lint`: launch commands as people publish them, checked against what each program takes and does."""
