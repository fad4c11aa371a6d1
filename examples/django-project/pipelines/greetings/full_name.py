"""Leaves out entries without a mail address, and adds the full name."""

expected_inputs = [
    [
        {"email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace"},
        {"email": None, "first_name": "Nobody", "last_name": "Known"},
    ]
]
expected_output = [
    {"email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace", "full_name": "Ada Lovelace"},
]


def run(df):
    df = df[df["email"].notna()].copy()
    print(f"{len(df)} entries have an address")
    df["full_name"] = df["first_name"] + " " + df["last_name"]
    return df
