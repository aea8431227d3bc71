"""A right corpus file and a right task file, for tests that put one mistake into them."""

CORPUS = """\
name = "mine"
project = "mine"
version = "1.0"
licence = "MIT"
include = ["src/", "LICENSE"]

[upstream]
repository = "somewhere"
commit = "0000000000000000000000000000000000000001"
tree = "0000000000000000000000000000000000000002"

[sdist]
requirement = "mine==1.0"
sha256 = "0000000000000000000000000000000000000000000000000000000000000003"

[import]
message = "mine 1.0"
tree = "0000000000000000000000000000000000000004"
commit = "0000000000000000000000000000000000000005"
files = 2
rs_files = 1
rs_lines = 1
"""

TASK = """\
id = "mine"
title = "A task"
corpus = "tiny"
kind = "trace"
prompt = "Read src/a.rs."

[expectations]
tool_calls = [2, 5]
min_facts = 1
min_opened = 0.5

[[facts]]
id = "one"
fact = "It holds a lock."
patterns = ['lock', '\\b(8|eight)\\b']
evidence = [{ path = "src/a.rs", line = 1, text = "lock" }]

[[facts]]
id = "two"
fact = "It is red."
patterns = ['red']
evidence = [{ path = "src/a.rs", line = 2, text = "red" }]

[[likely_reads]]
path = "src/a.rs"

[[likely_reads]]
path = "src/b.rs"
lines = [1, 9]

[[likely_reads]]
path = "src/b.rs"
lines = [20, 30]
"""
