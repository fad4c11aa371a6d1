"""What runs on Spark or in its images. pyspark and pandas are imported here and nowhere else, both only where needed."""
