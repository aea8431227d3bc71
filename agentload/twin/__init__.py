"""What would a ds4-server have done, and when? A pure discrete-event model: no I/O, no clock, the seed passed in.

`server.Server` takes requests at any virtual time and tells what comes out and when; `tables` holds it against
published measurements. It shares no code with the reader of the same log, so that neither can hide the other's mistake.
"""
