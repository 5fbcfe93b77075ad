"""The whole log with its filters, and what the node does not serve."""

import unittest

from kurrentdbclient import KDB_SYSTEM_EVENTS_REGEX, KurrentDBClient
from kurrentdbclient import exceptions as errors

from client import ADDRESS, ANY, WithClient, event, events, ids, named


class WholeLog(WithClient):
    def test_is_read_both_ways(self):
        one, first, position = self.written("a", "b")
        two, second, between = self.written("c", "d")
        sent = first + second
        self.assertEqual(ids(sent), ids(self.client.read_all(commit_position=position)))
        self.assertEqual(ids(second), ids(self.client.read_all(commit_position=between)))
        back = self.client.read_all(commit_position=between, backwards=True, limit=2)
        self.assertEqual(ids(sent[1:2] + sent[:1]), ids(back))
        self.assertEqual(ids(sent[::-1]), ids(self.client.read_all(backwards=True, limit=4)))
        self.assertEqual(ids(sent[:3]), ids(self.client.read_all(commit_position=position, limit=3)))
        everything = list(self.client.read_all())
        self.assertEqual(ids(sent), ids(everything)[-4:])
        self.assertEqual(sorted({e.commit_position for e in everything}), [e.commit_position for e in everything])
        self.assertEqual([one, one, two, two], [e.stream_name for e in everything[-4:]])

    def chosen(self, position, by_stream=False, **options):
        found = self.client.read_all(commit_position=position, filter_by_stream_name=by_stream, **options)
        return [e.stream_name if by_stream else e.type for e in found]

    def test_is_filtered_by_type(self):
        types = ["OrderCreated", "OrderUpdated", "InvoiceCreated", "InvoiceDeleted", "Else"]
        _, _, position = self.written(*types)
        for patterns, want in (
            ("OrderCreated", types[:1]),
            (["OrderCreated", "Else"], ["OrderCreated", "Else"]),
            ("Order", []),
            ("Order.*", types[:2]),
            (".*Created", ["OrderCreated", "InvoiceCreated"]),
        ):
            self.assertEqual(want, self.chosen(position, filter_include=patterns), patterns)
            rest = [t for t in types if t not in want]
            excluded = [KDB_SYSTEM_EVENTS_REGEX, *([patterns] if isinstance(patterns, str) else patterns)]
            self.assertEqual(rest, self.chosen(position, filter_exclude=excluded), patterns)
        self.assertEqual(["Else"], self.chosen(position, filter_include=["Else"], filter_exclude=["Else"]))

    def test_is_filtered_by_stream(self):
        one, two = named("one"), named("two")
        streams = [f"{one}-a", f"{one}-b", f"{two}-c"]
        position = [self.written("a", stream=s)[2] for s in streams][0]
        for patterns, want in (
            (streams[:1], streams[:1]),
            (streams[1:], streams[1:]),
            (one + ".*", streams[:2]),
            (two, []),
        ):
            self.assertEqual(want, self.chosen(position, True, filter_include=patterns), patterns)
            excluded = [KDB_SYSTEM_EVENTS_REGEX, *([patterns] if isinstance(patterns, str) else patterns)]
            others = [s for s in streams if s not in want]
            self.assertEqual(others, self.chosen(position, True, filter_exclude=excluded), patterns)

    def test_has_system_events_for_who_excludes_nothing(self):
        stream, _, position = self.written("a")
        self.client.delete_stream(stream, current_version=0)
        self.assertEqual(["a"], self.chosen(position))
        self.assertEqual(["a", "$metadata"], self.chosen(position, filter_exclude=[]))
        first = next(iter(self.client.read_all(filter_exclude=[])))
        self.assertTrue(first.is_system_event, first)

    def test_says_where_it_ends(self):
        stream, _, _ = self.written("a")
        last = self.client.append_events(stream, current_version=0, events=events(1))
        self.assertEqual(last, self.client.get_commit_position())
        self.assertEqual(0, self.client.get_commit_position(filter_exclude=[".*"]))
        self.assertEqual(last, self.client.get_commit_position(filter_include=[stream], filter_by_stream_name=True))
        self.client.set_stream_metadata(stream, metadata={})
        self.assertEqual(last, self.client.get_commit_position())
        self.assertEqual(last + 1, self.client.get_commit_position(filter_exclude=[]))

    def test_a_read_is_stopped(self):
        self.written("a")
        response = self.client.read_all()
        response.stop()
        self.assertEqual([], list(response))

    def test_an_expression_that_is_none_is_told(self):
        with self.assertRaises(errors.KurrentDBClientError) as told:
            list(self.client.read_all(filter_include=["("]))
        self.assertIn("expression of a filter", str(told.exception))


class NotThere(WithClient):
    def test_what_the_node_does_not_have_is_said_to_be_missing(self):
        for call in (
            lambda: self.client.create_subscription_to_all(group_name="g"),
            lambda: self.client.create_subscription_to_stream(group_name="g", stream_name=named("s")),
            lambda: self.client.list_subscriptions(),
            lambda: self.client.create_projection(name="p", query="", emit_enabled=False, track_emitted_streams=False),
        ):
            with self.assertRaises(errors.KurrentDBClientError) as told:
                call()
            self.assertIn("UNIMPLEMENTED", str(told.exception))

    def test_the_cluster_is_this_node(self):
        members = self.client.read_gossip()
        self.assertEqual(["NODE_STATE_LEADER"], [m.state for m in members])
        self.assertIn(str(members[0].port), self.client.connection_target)

    @unittest.skipIf("tls=false" in ADDRESS, "there are no credentials without TLS")
    def test_other_credentials_are_refused(self):
        account, rest = ADDRESS.removeprefix("esdb://").split("@")
        for wrong in ("admin:changeit", account.replace("admin", "ops")):
            with KurrentDBClient(f"esdb://{wrong}@{rest}") as client:
                with self.assertRaises(errors.KurrentDBClientError):
                    client.append_event(named("s"), current_version=ANY, event=event())
                with self.assertRaises(errors.KurrentDBClientError):
                    list(client.read_all(limit=1))


if __name__ == "__main__":
    unittest.main()
