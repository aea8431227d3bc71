"""The two tools an agent has: `read` and `bash`."""
