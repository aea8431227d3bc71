"""From raw evidence to derived tables: account(run)."""
