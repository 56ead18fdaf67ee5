"""Unity Catalog's REST API over the tables of the catalog."""
