//go:build linux || darwin

package peersocket

import (
	"errors"
	"fmt"
	"net"
)

// peerOf returns the peer of a connection, as the system reports it.
func peerOf(c net.Conn) (p Peer, err error) {
	socket, is := c.(*net.UnixConn)
	if !is {
		return p, errors.New("the connection has no peer that the system knows")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return p, fmt.Errorf("read the peer's user: %w", err)
	}
	var userErr error
	err = raw.Control(func(fd uintptr) { p.UID, userErr = userOf(int(fd)) })
	if err = errors.Join(err, userErr); err != nil {
		return Peer{}, fmt.Errorf("read the peer's user: %w", err)
	}
	return p, nil
}
