-- The second database of the server. The image of PostgreSQL creates the first one, which Dagster uses.
CREATE DATABASE catalog;
