"""Is this endpoint, with this machine beside it, worth a night? Probes find facts; pure functions judge them."""
