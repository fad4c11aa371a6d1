"""A program for a run's pod: with the token of its account it tries to reach what belongs to others.

Its log has one line of JSON: what was tried, and the answer: an HTTP status, or the message of Postgres. Arguments: the
namespaces of the operator, of Postgres, and of the run.
"""

import json
import ssl
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def status_of(method: str, path: str) -> int:
    with open(f"{ACCOUNT}/token", encoding="utf-8") as file:
        headers = {"Authorization": f"Bearer {file.read()}", "Content-Type": "application/json"}
    request = Request(
        f"https://kubernetes.default.svc{path}", b"{}" if method == "POST" else None, headers, method=method
    )
    try:
        with urlopen(request, context=ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def login(host: str) -> str:
    try:
        psycopg.connect(host=host, user="dataflow", dbname="dataflow", password="guess", connect_timeout=30).close()
    except psycopg.OperationalError as error:
        return str(error)
    return "logged in"


if __name__ == "__main__":
    operator, postgres, own = sys.argv[1:]
    tried: dict[str, int | str] = {
        "own pods": status_of("GET", f"/api/v1/namespaces/{own}/pods"),
        "own secrets": status_of("GET", f"/api/v1/namespaces/{own}/secrets"),
        "secrets of the operator": status_of("GET", f"/api/v1/namespaces/{operator}/secrets"),
        "pods of the operator": status_of("GET", f"/api/v1/namespaces/{operator}/pods"),
        "a token of the operator": status_of("POST", f"/api/v1/namespaces/{operator}/serviceaccounts/dataflow/token"),
        "the secret of postgres": status_of("GET", f"/api/v1/namespaces/{postgres}/secrets/dataflow-postgres"),
        "jobs of the operator's namespace": status_of(
            "GET", f"/apis/opendataflow.io/v1alpha1/namespaces/{operator}/dataflowjobs"
        ),
        "postgres": login(f"dataflow-postgres.{postgres}.svc"),
    }
    print(json.dumps(tried))
