"""Background work: timers, recovery, garbage collection, webhooks and publishing."""
