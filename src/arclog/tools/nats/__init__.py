"""The kind `nats`: publish, request, fetch and acknowledge messages, and read and write key-value buckets."""
