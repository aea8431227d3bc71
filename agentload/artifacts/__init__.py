"""The run directory: what stands where, how it is written, and which schema each file follows."""
