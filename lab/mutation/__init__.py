"""Generated mutants: small changes of the source, made by rule, that the tests of its area must catch."""
