"""The Spark session, and measures of rows while Spark reads them."""
