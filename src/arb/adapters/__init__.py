"""ARB inside other people's libraries: one module per host, each with its own extra; none is imported by another."""
