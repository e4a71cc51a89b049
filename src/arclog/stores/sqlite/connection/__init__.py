"""The connections of a SQLite store: opening the file, the writer, the readers, errors."""
