"""Subscriptions, and the asynchronous client."""

import asyncio
import unittest

from kurrentdbclient import KDB_SYSTEM_EVENTS_REGEX, AsyncKurrentDBClient, CaughtUp, Checkpoint
from kurrentdbclient import exceptions as errors

from client import ADDRESS, ANY, NO_STREAM, PATIENCE, WithClient, event, events, ids, named, take, until


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
            with self.assertRaises(errors.GrpcError) as ended:
                for _ in subscribe(timeout=0.5):
                    pass
            # Client and server count the same time. If the server is first, it resets the call.
            if not isinstance(ended.exception, errors.GrpcDeadlineExceededError):
                self.assertIn("CANCELLED", str(ended.exception))


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
