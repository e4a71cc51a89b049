"""Kind `object`: files and objects in S3, Google Cloud Storage and Azure, by URL."""
