"""Kind `transfer`: rows from a database, a file or a stored result into a database or a file."""
