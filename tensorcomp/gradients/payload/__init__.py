"""What goes over the wire, and what remains here."""
