package node

import (
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// recoverPanic is deferred by what serves a call. A panic becomes the error of that call, and is
// logged; a write that it interrupted may have been done.
func (n *Node) recoverPanic(method string, err *error) {
	if r := recover(); r != nil {
		n.log.Error("event store call panicked", "method", method, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the event store failed; see its log")
	}
}

// recoverStream is the outermost interceptor of all calls.
func (n *Node) recoverStream(
	server any, call grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) (err error) {
	defer n.recoverPanic(info.FullMethod, &err)
	return handle(server, call)
}
