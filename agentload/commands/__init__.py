"""The subcommands: options in, one stage called, its answer printed. No arithmetic here."""
