"""Write files atomically, explain errors of the system, serve memory pages."""
