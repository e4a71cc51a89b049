"""Results in a bucket."""
