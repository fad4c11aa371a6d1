"""What runs on Spark or in its images. Only here are pyspark and pandas imported, and only where they are needed."""
