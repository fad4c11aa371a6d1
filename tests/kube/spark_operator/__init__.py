"""A stand-in for the Kubeflow Spark operator, written for the tests: its definition, and what it does.

Nothing here is the real one: no program is submitted and no Spark runs. It follows the documented API, v1beta2, and the
states that the real one goes through.
"""
