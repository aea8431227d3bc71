"""Reports: what a person reads of an account."""
