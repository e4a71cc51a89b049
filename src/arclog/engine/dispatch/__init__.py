"""Delivery of commands to workers: claims, leases, pools and the registry of workers."""
