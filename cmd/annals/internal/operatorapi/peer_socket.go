//go:build linux || darwin

package operatorapi

import (
	"errors"
	"fmt"
	"net"
)

// peerOf asks the system for the peer of a connection.
func peerOf(c net.Conn) (p peer, err error) {
	socket, is := c.(*net.UnixConn)
	if !is {
		return p, errors.New("the connection has no peer that the system knows")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return p, fmt.Errorf("read the peer's user: %w", err)
	}
	var asked error
	err = raw.Control(func(fd uintptr) { p.uid, asked = userOf(int(fd)) })
	if err = errors.Join(err, asked); err != nil {
		return peer{}, fmt.Errorf("read the peer's user: %w", err)
	}
	return p, nil
}
