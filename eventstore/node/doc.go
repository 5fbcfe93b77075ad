// Package node is an event store in the process: a gRPC server that speaks the EventStoreDB protocol to the callers
// that it knows, over a log that package storage keeps on the disk.
//
// A client of EventStoreDB appends events to streams, each append under the condition of a revision, and reads streams
// or the whole log in one order, also as a subscription. The node can be part of a program, or be served alone.
//
// # Promises
//
//   - An append is answered once it is fsynced. After a crash the log has every answered append, and no half of one.
//   - The order of the log never changes, and no reader sees an event that a crash could take back.
//   - What is deleted, truncated or tombstoned is removed from the files by a scavenge: no byte of it stays.
//   - One process holds the folder; a second one, a damaged file and a newer format are refused with words.
//   - The official Go, Python and Node.js clients are run against it by the tests. Single answers on the wire are
//     stated by TestProtocol…, which run against a server of EventStoreDB too.
//
// # What it does not do
//
// It is one node: no replication and no cluster. Persistent subscriptions, projections, users and statistics are not
// served, and access control lists have no effect: there is one user, "admin".
//
// # Use
//
//	n, err := node.Start(ctx, node.Config{Dir: "log"})
//	if err != nil {
//		return err
//	}
//	defer n.Close()
//	c := n.Connection()
//	// Any client of EventStoreDB connects with these.
//	fmt.Println(c.ConnectionString(), c.Username, c.Password, c.RootCAs)
//
// # Reading the code
//
// The file grpc_append.go and its siblings serve the methods of the protocol. messages.go translates its messages;
// identity.go decides who may call; errors.go maps errors to the statuses and trailers that official clients expect.
//
// # Formats
//
// Package storage describes the log on the disk, and wire the messages in it. docs/event-store.md lists what is served
// and where it differs from EventStoreDB 24.10, docs/limits.md the limits.
//
// # Figures
//
// BenchmarkFigures prints a table of the machine. 32 callers must reach half of the appends that they reach without
// fsync, and 10,000 a second where an fsync takes less than 0.5 ms.
package node
