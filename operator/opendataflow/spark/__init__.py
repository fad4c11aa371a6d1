"""What runs on Spark or beside it. pyspark and pandas are imported here and nowhere else, both only where needed."""
