"""Recovery of catalogs and warehouses."""
