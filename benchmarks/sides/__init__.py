"""Scripts that are run as processes of their own: one for each side and purpose."""
