"""The coding agents: their loop, their tools, their sandbox, their checkout and their client of the endpoint."""
