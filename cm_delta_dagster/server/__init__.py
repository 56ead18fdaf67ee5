"""``cm-delta serve``: the catalog as a service over HTTP, for clients of this package and for those of Unity Catalog."""
