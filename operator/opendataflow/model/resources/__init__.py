"""The models of custom resources and job files, and what is generated from them."""
