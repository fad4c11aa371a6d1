"""Access to the tables of the old framework, and to the views that replace them."""
