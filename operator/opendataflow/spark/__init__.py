"""What runs in a Spark image: the program of driver pods. It needs the standard library and Spark, and little else."""
