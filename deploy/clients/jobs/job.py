"""The main job with the client that openapi-generator makes: openapi_client is that client."""

import os
import time

import openapi_client as annals
from openapi_client.exceptions import ApiException

settings = annals.Configuration(host=os.environ["ANNALS_URL"], access_token=os.environ["ANNALS_PROJECT_KEY"])
client = annals.ApiClient(settings)
ingestion, deadline = annals.IngestionApi(client), time.monotonic() + 300


def call(route, *arguments):
    """Calls until the service does not refuse for load."""
    while True:
        try:
            return route(*arguments)
        except ApiException as refused:
            if refused.status != 503 or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


receipt = call(ingestion.ingest, annals.Ingest(content="My favourite editor is Helix.", id="python-1", identity="ana"))
assert receipt.source_id == "python-1", receipt
while call(ingestion.get_ingestion, receipt.ingestion_id).status == "processing":
    assert time.monotonic() < deadline
    time.sleep(0.02)
page = call(annals.RecallApi(client).recall, annals.Recall(query="Which editor does Ana like?", identity="ana"))
assert any("Helix" in result.content for result in page.results), page
explained = call(annals.DebuggingApi(client).explain_ingestion, receipt.ingestion_id)
assert explained.phase == "indexed", explained
call(ingestion.delete_data_point, "python-1")
try:
    call(ingestion.delete_data_point, "python-1")
    raise AssertionError("it is deleted twice")
except ApiException as refused:
    assert refused.status == 404 and refused.data.code == "data-point-not-found", refused
print("the main job is done")
