// Package node is an event store in the process: a gRPC server that speaks the EventStoreDB
// protocol to the callers that it knows, over a log that package storage keeps on the disk.
//
// The file grpc_append.go and its siblings serve the methods of the protocol. decode.go and
// encode.go translate its messages; identity.go and certificate.go decide who may call; errors.go
// maps errors to the statuses and trailers that official clients expect. The official Go, Python
// and Node.js clients are run against it by the tests.
package node
