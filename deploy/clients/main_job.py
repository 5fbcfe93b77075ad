"""The main job with the client that openapi-python-client generates: annals_client is that client."""

import os
import time

import httpx
from annals_client import AuthenticatedClient, Client
from annals_client.api.audiences import get_audience, put_audience
from annals_client.api.debugging import explain_ingestion
from annals_client.api.identities import get_identity, put_identity
from annals_client.api.ingestion import delete_data_point, get_ingestion, ingest, ingest_batch
from annals_client.api.recall import recall
from annals_client.api.trace import get_lineage, get_node, get_timeline, list_roots
from annals_client.api.webhooks import receive_event
from annals_client.models import (
    AudienceKind, AudiencePut, Batch, Condition, DataPoint, Error, Ingest, Recall, RecallPage, RecallLevel, Rule,
    Traits, TraitValues,
)

url = os.environ["ANNALS_URL"]
client = AuthenticatedClient(base_url=url, token=os.environ["ANNALS_PROJECT_KEY"])
deadline = time.monotonic() + 300


def call(route, *path, status, **arguments):
    """Calls until the service does not refuse for load, and returns the parsed answer."""
    arguments.setdefault("client", client)
    while True:
        answer = route.sync_detailed(*path, **arguments)
        if answer.status_code != 503 or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert answer.status_code == status, f"{route.__name__}: {answer.status_code} {answer.content}"
    assert answer.parsed is not None or status == 204, f"{route.__name__} parsed nothing of {answer.content}"
    return answer.parsed


def completed(send):
    while True:
        progress = call(get_ingestion, send, status=200)
        if progress.status != "processing":
            break
        assert time.monotonic() < deadline, progress
        time.sleep(0.02)
    assert progress.status == "completed" and progress.failure is None, progress


def recalled(question, identity, **arguments):
    page = call(recall, status=200, body=Recall(query=question, identity=identity, **arguments))
    return {source.source_id: result for result in page.results for source in result.sources}


# Text in, memory derived, recalled with its source.
receipt = call(ingest, status=202, body=Ingest(content="My favourite editor is Helix.", id="call-1", identity="ana"))
assert receipt.status == "queued" and receipt.source_id == "call-1" and receipt.unchanged is None, receipt
completed(receipt.ingestion_id)
again = call(ingest, status=200, body=Ingest(content="My favourite editor is Helix.", id="call-1", identity="ana"))
assert again.unchanged is True and again.status == "completed", again
batch = call(ingest_batch, status=202, body=Batch(items=[DataPoint(content="Bo moved to Lisbon.", id="note-1")]))
assert batch.items[0].source_id == "note-1", batch
completed(batch.ingestion_id)
found = recalled("Which editor does Ana like?", "ana", level=RecallLevel.MEDIUM)
assert "Helix" in found["call-1"].content and found["call-1"].artifact.kind in ("source", "claim"), found
assert recalled("Which editor does Ana like?", "ana", max_tokens=500), "nothing fits into 500 tokens"

# What is scoped reaches a member, and no neighbour.
call(put_identity, "cy", status=200, body=Traits(traits=TraitValues.from_dict({"team": "finance"})))
rule = Rule(match="all", conditions=[Condition(trait="team", operator="is", values=["finance"])])
call(put_audience, "finance", status=201, body=AudiencePut(kind=AudienceKind.RULE, rule=rule))
assert call(get_audience, "finance", status=200).rule.conditions[0].values == ["finance"]
assert call(get_identity, "cy", status=200).audiences == ["finance"]
scoped = call(ingest, status=202, body=Ingest(content="The merger price is 3 million.", id="memo-1", audience="finance"))
completed(scoped.ingestion_id)
assert "memo-1" in recalled("What is the merger price?", "cy")
assert "memo-1" not in recalled("What is the merger price?", "bo")

# Where it comes from, and what became of it.
explained = call(explain_ingestion, receipt.ingestion_id, status=200)
assert explained.phase == "indexed", explained
node = call(get_node, explained.items[0].source_id, status=200)
assert node.kind == "source" and node.data_point_id == "call-1", node
lineage = call(get_lineage, node.id, status=200, reveal_all=True)
assert lineage.edges and any(edge.input_id == node.id for edge in lineage.edges), lineage
assert call(get_timeline, node.id, status=200).root.id == node.id
assert call(list_roots, status=200, search="call-1").sources.nodes[0].data_point_id == "call-1"

# An event of another system.
event = call(
    receive_event, os.environ["ANNALS_WEBHOOK_ID"], os.environ["ANNALS_WEBHOOK_TOKEN"], status=202,
    client=Client(base_url=url), body={"id": "ticket-1", "content": "The printer is out of toner."},
)
assert event.verdict == "ingested" and event.data_point_id == "ticket-1", event
completed(event.ingestion_id)
assert "ticket-1" in recalled("Which printer has no toner?", "bo")

# Deleted, and gone at once. Errors have one form.
call(delete_data_point, "call-1", status=202)
assert "call-1" not in recalled("Which editor does Ana like?", "ana")
refused = call(delete_data_point, "call-1", status=404)
assert isinstance(refused, Error) and refused.code == "data-point-not-found" and refused.data.ids == ["call-1"], refused
refused = call(ingest, status=400, body=Ingest(content=""))
assert isinstance(refused, Error) and refused.data.errors[0].field == "content", refused

# A later version of the service may have more fields and more values.
later = call(recall, status=200, body=Recall(query="What is the merger price?", identity="cy")).to_dict()
later["results"][0]["artifact"] |= {"kind": "insight", "confidence": 1}
assert RecallPage.from_dict(later).results[0].artifact.kind == "insight"
# Beyond the calls per minute the answer has no body.
full = httpx.MockTransport(lambda _: httpx.Response(429, headers={"Retry-After": "7"}))
limited = AuthenticatedClient(base_url=url, token="", httpx_args={"transport": full})
refused = ingest.sync_detailed(client=limited, body=Ingest(content="One more."))
assert refused.status_code == 429 and refused.headers["Retry-After"] == "7", refused
print("the main job is done")
