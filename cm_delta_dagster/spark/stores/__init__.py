"""Object stores and shared disks, as the session reaches them."""
