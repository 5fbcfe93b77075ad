"""What the tests of the official Python client share. They call every method of the client for streams, metadata, the
whole log and subscriptions, against the store at ANNALS_ADDRESS. Each test has its own streams, so the store may hold
other events, but nobody else may write meanwhile.

Persistent subscriptions, projections and clusters are not tested: the node does not serve them. log_test.py checks that
it refuses them.
"""

import json
import os
import unittest
from uuid import uuid4

from kurrentdbclient import KurrentDBClient, NewEvent, StreamState

ADDRESS = os.environ["ANNALS_ADDRESS"]
NO_STREAM, ANY, EXISTS = StreamState.NO_STREAM, StreamState.ANY, StreamState.EXISTS
SOFT_DELETED = 2**63 - 1
# PATIENCE bounds every subscription, in seconds; nothing waits that long unless it hangs.
PATIENCE = 120


def named(what):
    return f"{what}-{uuid4()}"


def event(type="tested", data=b'{"n":1}', **more):
    return NewEvent(type=type, data=data, **more)


def events(n, type="tested"):
    return [event(type, json.dumps({"n": i}).encode()) for i in range(n)]


def ids(found):
    return [e.id for e in found]


def take(subscription, n):
    """The next n events of a subscription, including checkpoints."""
    out = []
    for e in subscription:
        out.append(e)
        if len(out) == n:
            break
    return out


def until(subscription, last):
    """The events of a subscription up to and including one of them."""
    out = []
    for e in subscription:
        out.append(e)
        if e.id == last.id:
            break
    return out


class WithClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = KurrentDBClient(ADDRESS)
        cls.addClassCleanup(cls.client.close)

    def written(self, *types, stream=None):
        """A new stream with an event of each type, and the position of the first."""
        stream = stream or named("account")
        sent = [event(t) for t in types]
        first = self.client.append_events(stream, current_version=NO_STREAM, events=sent[:1])
        if sent[1:]:
            self.client.append_events(stream, current_version=0, events=sent[1:])
        return stream, sent, first
