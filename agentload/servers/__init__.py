"""Servers: start one and own its output, attach to a running one, prove its settings, sample it, stop it."""
