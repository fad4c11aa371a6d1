"""Adds one incoming entry to those that are there."""

import pandas as pd

expected_inputs = [[{"email": "ada@example.com", "first_name": "Ada"}]]
stream = {"email": "kz@example.com", "first_name": "Konrad"}
expected_output = [
    {"email": "ada@example.com", "first_name": "Ada"},
    {"email": "kz@example.com", "first_name": "Konrad"},
]


def run(df, stream=None):
    return pd.concat([df, pd.DataFrame([stream])], ignore_index=True)
