"""Streams and their metadata."""

import datetime
import threading

from kurrentdbclient import exceptions as errors

from client import ANY, EXISTS, NO_STREAM, SOFT_DELETED, WithClient, event, events, ids, named


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
