//go:build linux || darwin

package httpx

import (
	"net/http"
	"syscall"

	"golang.org/x/sys/unix"
)

// leftBy returns a function that reports whether the client of a request has closed its connection. net/http notices
// that only once the body is read.
func leftBy(req *http.Request) func() bool {
	counted := connectionOf(req)
	if counted == nil {
		return nil
	}
	socket, ok := counted.Conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	return func() (left bool) {
		err := raw.Control(func(fd uintptr) {
			of := []unix.PollFd{{Fd: int32(fd), Events: closedEvents}} //nolint:gosec // a descriptor is small
			_, err := unix.Poll(of, 0)
			left = err == nil && of[0].Revents&(closedEvents|unix.POLLHUP|unix.POLLERR) != 0
		})
		return left || err != nil
	}
}
