"""Server logs: one module a format, bytes in and facts out. Pure: no file is opened here."""
