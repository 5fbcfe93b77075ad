"""What a service in Python does with the store: every method of the client for streams, metadata, the whole log with
its filters, and subscriptions. The address is in ANNALS_ADDRESS. Every test has streams of its own, so the store may
hold anything, but a test may count on it that nobody else writes meanwhile.

Not tried, since the node does not have it by choice: persistent subscriptions, projections, and what needs several
nodes. That the client is told so is tried at the end.
"""

import asyncio
import datetime
import json
import os
import threading
import unittest
from uuid import uuid4

from kurrentdbclient import (
    KDB_SYSTEM_EVENTS_REGEX,
    AsyncKurrentDBClient,
    CaughtUp,
    Checkpoint,
    KurrentDBClient,
    NewEvent,
    StreamState,
)
from kurrentdbclient import exceptions as errors

ADDRESS = os.environ["ANNALS_ADDRESS"]
NO_STREAM, ANY, EXISTS = StreamState.NO_STREAM, StreamState.ANY, StreamState.EXISTS
SOFT_DELETED = 2**63 - 1
# PATIENCE bounds every subscription; nothing waits that long unless it hangs.
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


class Streams(WithClient):
    def test_appends_and_reads_both_ways(self):
        stream = named("account")
        sent = events(3) + [event("raw", b"\x00\xff", content_type="application/octet-stream", metadata=b"m")]
        position = self.client.append_to_stream(stream, current_version=NO_STREAM, events=sent)
        got = self.client.get_stream(stream)
        self.assertEqual(ids(sent), ids(got))
        self.assertEqual([0, 1, 2, 3], [e.stream_position for e in got])
        last = got[3]
        self.assertEqual(
            ("raw", b"\x00\xff", b"m", "application/octet-stream", stream),
            (last.type, last.data, last.metadata, last.content_type, last.stream_name),
        )
        self.assertEqual(("application/json", b'{"n": 2}', b""), (got[2].content_type, got[2].data, got[2].metadata))
        self.assertEqual(position, last.commit_position)
        age = abs(got[0].recorded_at - datetime.datetime.now(datetime.timezone.utc))
        self.assertLess(age, datetime.timedelta(hours=1))
        self.assertEqual([2, 3], [e.stream_position for e in self.client.get_stream(stream, stream_position=2)])
        self.assertEqual([0, 1], [e.stream_position for e in self.client.get_stream(stream, limit=2)])
        back = self.client.get_stream(stream, stream_position=2, backwards=True, limit=2)
        self.assertEqual([2, 1], [e.stream_position for e in back])
        self.assertEqual([3, 2, 1, 0], [e.stream_position for e in self.client.read_stream(stream, backwards=True)])
        self.assertEqual(3, self.client.get_current_version(stream))

    def test_appends_one_and_many_at_every_kind_of_version(self):
        stream = named("account")
        positions = [
            self.client.append_event(stream, current_version=v, event=event()) for v in (NO_STREAM, 0, ANY, EXISTS)
        ]
        positions += [self.client.append_events(stream, current_version=v, events=events(2)) for v in (3, ANY, EXISTS)]
        self.assertEqual(sorted(set(positions)), positions)
        self.assertEqual(9, self.client.get_current_version(stream))

    def test_many_callers_append_at_once(self):
        stream, failures = named("account"), []

        def work():
            try:
                for _ in range(10):
                    self.client.append_events(stream, current_version=ANY, events=events(2))
            except Exception as e:  # the test fails with it
                failures.append(e)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([], failures)
        self.assertEqual(list(range(160)), [e.stream_position for e in self.client.get_stream(stream)])

    def test_a_conflict_is_told_and_a_repetition_is_none(self):
        for form in (lambda sent: sent, lambda sent: sent[0]):
            stream, sent = named("account"), form(events(3))
            first = self.client.append_to_stream(stream, current_version=NO_STREAM, events=sent)
            self.assertEqual(first, self.client.append_to_stream(stream, current_version=NO_STREAM, events=sent))
            self.assertEqual(first, self.client.append_to_stream(stream, current_version=ANY, events=sent))
            for version in (NO_STREAM, 10):
                with self.assertRaises(errors.WrongCurrentVersionError):
                    self.client.append_to_stream(stream, current_version=version, events=form(events(1)))
            for call in (self.client.get_stream, self.client.read_stream):
                self.assertEqual(len(sent) if isinstance(sent, list) else 1, len(list(call(stream))))
            with self.assertRaises(errors.WrongCurrentVersionError):
                self.client.append_to_stream(named("missing"), current_version=EXISTS, events=sent)

    def test_an_append_that_is_too_large_is_told(self):
        stream, large = named("account"), [event(data=b"x" * 600 * 1024) for _ in range(2)]
        with self.assertRaises(errors.MaximumAppendSizeExceededError):
            self.client.append_events(stream, current_version=NO_STREAM, events=large)
        with self.assertRaises(errors.KurrentDBClientError):
            self.client.append_event(stream, current_version=NO_STREAM, event=event(data=b"x" * (1 << 20)))
        self.client.append_events(stream, current_version=NO_STREAM, events=large[:1])

    def test_what_is_missing_is_told(self):
        stream = named("missing")
        with self.assertRaises(errors.NotFoundError):
            self.client.get_stream(stream)
        with self.assertRaises(errors.NotFoundError):
            list(self.client.read_stream(stream))
        self.assertEqual(NO_STREAM, self.client.get_current_version(stream))

    def test_a_read_is_stopped(self):
        stream, _, _ = self.written("a", "b")
        response = self.client.read_stream(stream)
        response.stop()
        self.assertEqual([], list(response))

    def test_links_are_resolved(self):
        stream, sent, _ = self.written("a", "b")
        gone, _, _ = self.written("c")
        self.client.delete_stream(gone, current_version=0)
        links = [event("$>", f"{n}@{s}".encode()) for n, s in ((1, stream), (0, gone))]
        linked = named("links")
        self.client.append_events(linked, current_version=NO_STREAM, events=links)
        self.assertEqual(["$>", "$>"], [e.type for e in self.client.get_stream(linked)])
        got = self.client.get_stream(linked, resolve_links=True)
        self.assertEqual(sent[1].id, got[0].id)
        self.assertEqual((linked, links[0].id, links[0].id), (got[0].link.stream_name, got[0].link.id, got[0].ack_id))
        # The client omits a link to a missing event, or shows the link itself.
        self.assertNotIn(gone, [e.stream_name for e in got])

    def test_a_deleted_stream_is_written_again(self):
        stream = named("account")
        for version in (NO_STREAM, ANY, EXISTS):
            with self.assertRaises(errors.NotFoundError):
                self.client.delete_stream(stream, current_version=version)
        stream, _, _ = self.written("a", "b", stream=stream)
        with self.assertRaises(errors.WrongCurrentVersionError):
            self.client.delete_stream(stream, current_version=0)
        self.client.delete_stream(stream, current_version=1)
        self.client.delete_stream(stream, current_version=1)
        self.client.delete_stream(stream, current_version=ANY)
        with self.assertRaises(errors.StreamIsDeletedError):
            self.client.delete_stream(stream, current_version=EXISTS)
        with self.assertRaises(errors.NotFoundError):
            self.client.get_stream(stream)
        self.assertEqual(NO_STREAM, self.client.get_current_version(stream))
        with self.assertRaises(errors.WrongCurrentVersionError):
            self.client.append_events(stream, current_version=0, events=events(1))
        self.client.append_events(stream, current_version=NO_STREAM, events=events(1))
        self.client.append_events(stream, current_version=2, events=events(1))
        self.assertEqual([2, 3], [e.stream_position for e in self.client.get_stream(stream)])
        self.client.delete_stream(stream, current_version=EXISTS)
        self.assertEqual(NO_STREAM, self.client.get_current_version(stream))

    def test_a_tombstoned_stream_is_ended(self):
        for version in (1, ANY, EXISTS):
            stream, _, _ = self.written("a", "b")
            with self.assertRaises(errors.WrongCurrentVersionError):
                self.client.tombstone_stream(stream, current_version=0)
            self.client.tombstone_stream(stream, current_version=version)
            for call in (
                lambda: self.client.tombstone_stream(stream, current_version=ANY),
                lambda: self.client.delete_stream(stream, current_version=ANY),
                lambda: self.client.get_stream(stream),
                lambda: self.client.get_current_version(stream),
                lambda: self.client.append_events(stream, current_version=1, events=events(1)),
            ):
                with self.assertRaises(errors.StreamIsDeletedError):
                    call()
            with self.assertRaises(errors.FailedPreconditionError):  # the client has no closer error
                self.client.append_event(stream, current_version=ANY, event=event())
        never = named("never")
        with self.assertRaises(errors.NotFoundError):
            self.client.tombstone_stream(never, current_version=EXISTS)
        self.client.tombstone_stream(never, current_version=ANY)
        with self.assertRaises(errors.StreamIsDeletedError):
            self.client.append_events(never, current_version=NO_STREAM, events=events(1))


class Metadata(WithClient):
    def test_is_set_and_read_at_its_versions(self):
        stream, _, _ = self.written("a", "b", "c")
        self.assertEqual(({}, NO_STREAM), self.client.get_stream_metadata(stream))
        acl = {"$w": "$admins", "$r": "$all", "$d": "$admins", "$mw": "$admins", "$mr": "$admins"}
        self.client.set_stream_metadata(stream, metadata={"colour": "green", "$acl": acl}, current_version=NO_STREAM)
        self.assertEqual(({"colour": "green", "$acl": acl}, 0), self.client.get_stream_metadata(stream))
        with self.assertRaises(errors.WrongCurrentVersionError):
            self.client.set_stream_metadata(stream, metadata={}, current_version=10)
        self.client.set_stream_metadata(stream, metadata={"$maxCount": 2}, current_version=0)
        self.assertEqual([1, 2], [e.stream_position for e in self.client.get_stream(stream)])
        self.client.set_stream_metadata(stream, metadata={"$tb": 2})
        self.assertEqual(({"$tb": 2}, 2), self.client.get_stream_metadata(stream))
        self.assertEqual([2], [e.stream_position for e in self.client.get_stream(stream)])

    def test_is_there_without_a_stream(self):
        stream = named("none")
        self.client.set_stream_metadata(stream, metadata={"a": 1}, current_version=NO_STREAM)
        self.assertEqual(({"a": 1}, 0), self.client.get_stream_metadata(stream))
        with self.assertRaises(errors.NotFoundError):
            self.client.get_stream(stream)

    def test_brings_a_deleted_stream_back(self):
        stream, _, _ = self.written("a", "b")
        self.client.delete_stream(stream, current_version=1)
        metadata, version = self.client.get_stream_metadata(stream)
        self.assertEqual({"$tb": SOFT_DELETED}, metadata)
        self.client.set_stream_metadata(stream, metadata=metadata | {"foo": "bar"}, current_version=version)
        self.assertIn(
            self.client.get_stream_metadata(stream)[0], ({"foo": "bar", "$tb": 2}, {"foo": "bar", "$tb": SOFT_DELETED})
        )
        self.client.append_events(stream, current_version=1, events=events(1))
        self.assertEqual([2], [e.stream_position for e in self.client.get_stream(stream)])

    def test_of_a_tombstoned_stream_is_taken_and_not_read(self):
        stream, _, _ = self.written("a")
        self.client.set_stream_metadata(stream, metadata={"a": 1})
        self.client.tombstone_stream(stream, current_version=ANY)
        with self.assertRaises(errors.StreamIsDeletedError):
            self.client.get_stream_metadata(stream)
        self.client.set_stream_metadata(stream, metadata={"a": 2}, current_version=0)
        self.client.set_stream_metadata(stream, metadata={"a": 3}, current_version=ANY)
        with self.assertRaises(errors.WrongCurrentVersionError):
            self.client.set_stream_metadata(stream, metadata={"a": 4}, current_version=0)
        with self.assertRaises(errors.StreamIsDeletedError):
            self.client.get_stream_metadata(stream)


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


class Subscriptions(WithClient):
    def follow(self, **options):
        subscription = self.client.subscribe_to_all(timeout=PATIENCE, **options)
        self.addCleanup(subscription.stop)
        return subscription

    def follow_stream(self, stream, **options):
        subscription = self.client.subscribe_to_stream(stream, timeout=PATIENCE, **options)
        self.addCleanup(subscription.stop)
        return subscription

    def test_whole_log_from_its_start_and_live(self):
        _, before, _ = self.written("a", "b")
        subscription = self.follow()
        got = until(subscription, before[-1])
        self.assertEqual(ids(before), ids(got[-2:]))
        self.assertEqual([], [e.type for e in got if e.is_system_event])
        _, after, _ = self.written("c", "d", "e")
        self.assertEqual(ids(after), ids(take(subscription, 3)))

    def test_whole_log_behind_a_position(self):
        _, sent, position = self.written("a", "b", "c")
        self.assertEqual(ids(sent[1:]), ids(take(self.follow(commit_position=position), 2)))
        system = self.follow(filter_exclude=[])
        self.assertTrue(next(system).is_system_event)

    def test_whole_log_from_its_end(self):
        self.written("a")
        subscription = self.follow(from_end=True, include_caught_up=True)
        self.assertIsInstance(next(subscription), CaughtUp)
        _, sent, _ = self.written("b", "c")
        self.assertEqual(ids(sent), ids(take(subscription, 2)))

    def test_whole_log_filtered(self):
        wanted, other = named("Wanted"), named("Other")
        streams = [named("one"), named("two")]
        position = self.client.get_commit_position()
        by_type = self.follow(commit_position=position, filter_include=[wanted])
        but_type = self.follow(commit_position=position, filter_exclude=[KDB_SYSTEM_EVENTS_REGEX, other])
        by_stream = self.follow(commit_position=position, filter_include=streams[1:], filter_by_stream_name=True)
        but_stream = self.follow(
            commit_position=position, filter_exclude=["[$].*", streams[0]], filter_by_stream_name=True
        )
        _, sent, _ = self.written(wanted, other, stream=streams[0])
        _, more, _ = self.written(other, wanted, stream=streams[1])
        for subscription in (by_type, but_type):
            self.assertEqual(ids([sent[0], more[1]]), ids(take(subscription, 2)))
        for subscription in (by_stream, but_stream):
            self.assertEqual(ids(more), ids(take(subscription, 2)))

    def test_checkpoints_are_places_to_go_on_from(self):
        stream, sent, position = self.written("a", "b", "c")
        subscription = self.follow(
            commit_position=position,
            filter_exclude=".*",
            include_checkpoints=True,
            window_size=1,
            checkpoint_interval_multiplier=1,
        )
        got = take(subscription, 2)
        self.assertTrue(all(isinstance(e, Checkpoint) for e in got))
        self.assertEqual([position + 1, position + 2], [e.commit_position for e in got])
        self.assertEqual(ids(sent[2:]), ids(take(self.follow(commit_position=got[0].commit_position), 1)))
        # No checkpoint is after the end of the log, however wide the window is.
        wide = self.follow(
            include_checkpoints=True, include_caught_up=True, window_size=10000, checkpoint_interval_multiplier=500
        )
        end = self.client.get_commit_position(filter_exclude=[])
        for e in wide:
            self.assertLessEqual(e.commit_position or 0, end)
            if isinstance(e, CaughtUp):
                break

    def test_links_are_resolved(self):
        stream, sent, position = self.written("a")
        linked = named("links")
        link = event("$>", f"0@{stream}".encode())
        self.client.append_events(linked, current_version=NO_STREAM, events=[link])
        resolved = take(self.follow(commit_position=position - 1, resolve_links=True, filter_exclude=[]), 2)
        self.assertEqual([sent[0].id, link.id], [e.link.id if e.link else e.id for e in resolved])
        got = next(self.follow_stream(linked, resolve_links=True))
        self.assertEqual((sent[0].id, link.id), (got.id, got.link.id))

    def test_stream_stored_and_live(self):
        stream, sent, _ = self.written("a", "b", "c")
        whole = self.follow_stream(stream, include_caught_up=True)
        self.assertEqual(ids(sent), ids(take(whole, 3)))
        self.assertIsInstance(next(whole), CaughtUp)
        behind = self.follow_stream(stream, stream_position=1)
        self.assertEqual(ids(sent[2:]), ids(take(behind, 1)))
        at_end = self.follow_stream(stream, from_end=True, include_caught_up=True)
        self.assertIsInstance(next(at_end), CaughtUp)
        self.written("d")  # of another stream
        more = events(2)
        self.client.append_events(stream, current_version=2, events=more)
        for subscription in (whole, behind, at_end):
            self.assertEqual(ids(more), ids(take(subscription, 2)))

    def test_stream_that_comes_later_and_ends(self):
        stream = named("later")
        subscription = self.follow_stream(stream, include_caught_up=True)
        self.assertIsInstance(next(subscription), CaughtUp)
        _, sent, _ = self.written("a", stream=stream)
        self.assertEqual(ids(sent), ids(take(subscription, 1)))
        self.client.tombstone_stream(stream, current_version=0)
        self.assertEqual("$streamDeleted", next(subscription).type)
        with self.assertRaises(errors.KurrentDBClientError):
            next(subscription)
        with self.assertRaises(errors.StreamIsDeletedError):
            next(self.follow_stream(stream))

    def test_are_stopped_and_time_out(self):
        stream, _, _ = self.written("a")
        for subscribe in (
            self.client.subscribe_to_all,
            lambda **options: self.client.subscribe_to_stream(stream, **options),
        ):
            with subscribe(timeout=PATIENCE) as subscription:
                subscription.stop()
                self.assertEqual([], list(subscription))
            with self.assertRaises(errors.GrpcDeadlineExceededError):
                for _ in subscribe(timeout=0.5):
                    pass


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    """The same over the client's other transport, each method once."""

    async def asyncSetUp(self):
        self.client = AsyncKurrentDBClient(ADDRESS)
        await self.client.connect()
        self.addAsyncCleanup(self.client.close)

    async def test_streams_and_metadata(self):
        stream, sent = named("account"), events(3)
        position = await self.client.append_events(stream, current_version=NO_STREAM, events=sent[:2])
        last = await self.client.append_to_stream(stream, current_version=1, events=sent[2])
        self.assertGreater(last, position)
        self.assertEqual(ids(sent), ids(await self.client.get_stream(stream)))
        self.assertEqual(ids(sent[::-1]), [e.id async for e in await self.client.read_stream(stream, backwards=True)])
        self.assertEqual(2, await self.client.get_current_version(stream))
        self.assertEqual(last, await self.client.get_commit_position())
        with self.assertRaises(errors.WrongCurrentVersionError):
            await self.client.append_events(stream, current_version=7, events=events(1))
        await self.client.set_stream_metadata(stream, metadata={"$maxCount": 1}, current_version=NO_STREAM)
        self.assertEqual(({"$maxCount": 1}, 0), await self.client.get_stream_metadata(stream))
        self.assertEqual(ids(sent[2:]), ids(await self.client.get_stream(stream)))
        await self.client.delete_stream(stream, current_version=2)
        with self.assertRaises(errors.NotFoundError):
            await self.client.get_stream(stream)
        await self.client.tombstone_stream(stream, current_version=2)
        with self.assertRaises(errors.StreamIsDeletedError):
            await self.client.get_stream(stream)

    async def test_whole_log_and_subscriptions(self):
        stream, sent = named("account"), events(3)
        position = await self.client.append_events(stream, current_version=NO_STREAM, events=sent[:1]) - 1
        await self.client.append_events(stream, current_version=0, events=sent[1:])
        self.assertEqual(ids(sent), [e.id async for e in await self.client.read_all(commit_position=position + 1)])
        for opened in (
            self.client.subscribe_to_all(commit_position=position, timeout=PATIENCE),
            self.client.subscribe_to_all(filter_include=[stream], filter_by_stream_name=True, timeout=PATIENCE),
            self.client.subscribe_to_stream(stream, timeout=PATIENCE),
        ):
            subscription, got = await opened, []
            async for e in subscription:
                got.append(e)
                if len(got) == 3:
                    break
            await subscription.stop()
            self.assertEqual(ids(sent), ids(got))

    async def test_many_appends_at_once(self):
        stream = named("account")
        await asyncio.gather(
            *(self.client.append_events(stream, current_version=ANY, events=events(2)) for _ in range(40))
        )
        self.assertEqual(79, await self.client.get_current_version(stream))


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
