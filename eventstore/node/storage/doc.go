// Package storage keeps an event log on the disk with Pebble, an LSM tree of keys and values.
//
// # Keys
//
// Everything that the log holds is in six key families. The first byte names the family; numbers
// are 8 bytes, big-endian, so that keys sort by them.
//
//	e <position>              the event, as it is sent to readers
//	r <stream id> <revision>  the position of the event with this revision
//	s <stream name>           what decisions need to know about the stream: see streamState
//	p <position> ["$$"]       a removal to do, caused by the event at the position: when it is due,
//	                          and the stream; "$$" is appended if that is a metastream
//	b <stream name>           a stream that $maxCount or $maxAge bounds; without a value
//	h <first> <last>          positions with removed events whose files are still to be rewritten;
//	                          without a value
//
// After an append of one event to the new streams "a" and "b" each, metadata {"$maxCount":1} for
// "a", and a tombstone of "b", before the scavenger runs, the log is:
//
//	e 1                     type "created", stream "a", revision 0
//	e 2                     type "created", stream "b", revision 0
//	e 3                     type "$metadata", stream "$$a", revision 0
//	e 4                     type "$streamDeleted", stream "b", revision 2^63-1
//	r 1 0                   1      the stream id is the position of the stream's first event
//	r 2 0                   2
//	r 2 2^63-1              4
//	r 3 0                   3
//	s "$$a"                 id 3, last revision 0
//	s "a"                   id 1, last revision 0, maxCount 1
//	s "b"                   id 2, last revision 0, tombstone at 4
//	p 4                     due at once, "b"
//	b "a"
//
// # Writing and reading
//
// One goroutine, the writer, decides and writes. It collects the requests that arrive during an
// fsync, decides them one after the other and commits them together: that is the order of the log,
// and one fsync for many appends. Readers use snapshots that are taken after an fsync (views), so
// no answer depends on an event that a crash could take back. The newest events are also in memory
// for subscribers (tail).
//
// # Removing
//
// The scavenger deletes the keys of events that no reader of their stream sees, then rewrites the
// files that held them and deletes the old write-ahead logs, so that no byte of them remains on the
// disk. The newest event is never removed: positions are not reused.
//
// # Why it is ours
//
// A deployment in one process is a goal of the design, and no event store for Go can be embedded
// and offers what the service needs: the append conditions of EventStoreDB, one total order,
// subscriptions over it, and removal from the files on demand. Pebble provides durable, ordered
// keys; everything above it is here. BenchmarkFigures of package node measures it against the bare
// engine and against itself without fsync: 32 callers must reach half of the appends that they
// reach without fsync.
package storage
