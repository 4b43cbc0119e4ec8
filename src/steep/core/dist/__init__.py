"""Several processes that adapt as one."""
