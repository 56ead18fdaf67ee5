"""The page of the server for people: what the catalog has, and the approvals of owners."""
