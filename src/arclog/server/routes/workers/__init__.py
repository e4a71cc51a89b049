"""Routes for workers and their pools."""
