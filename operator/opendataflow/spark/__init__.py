"""Programs and modules for Spark and its images. Only this package imports pyspark and pandas."""
