"""What the pods of a job may ask for: the Pod Security Standards, and settings of Spark. Pure."""
