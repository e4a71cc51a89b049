"""What a store keeps."""
