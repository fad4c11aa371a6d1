"""Adds the greeting in the language of each entry."""

import pandas as pd

expected_inputs = [
    [
        {"full_name": "Ada Lovelace", "language": "en"},
        {"full_name": "Konrad Zuse", "language": "de"},
        {"full_name": "Grace Hopper", "language": "xx"},
    ],
    [
        {"language": "de", "salutation": "Guten Tag"},
        {"language": "en", "salutation": "Hello"},
    ],
]
expected_output = [
    {"full_name": "Ada Lovelace", "language": "en", "greeting": "Hello Ada Lovelace"},
    {"full_name": "Konrad Zuse", "language": "de", "greeting": "Guten Tag Konrad Zuse"},
    {"full_name": "Grace Hopper", "language": "xx", "greeting": None},
]


def run(df, df2):
    merged = pd.merge(df, df2, on="language", how="left")
    merged["greeting"] = merged["salutation"] + " " + merged["full_name"]
    return merged.drop(columns="salutation")
