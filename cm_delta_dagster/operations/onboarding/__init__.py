"""Tables that come under the catalog and leave it: adopt, release, export."""
