"""Blobs in a bucket of S3, Google Cloud or Azure."""
