"""The feed of the catalog's events: readers, retention, delivery to webhooks."""
