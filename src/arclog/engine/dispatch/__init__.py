"""Commands on their way to workers: claims, leases, pools and the workers that are seen."""
