package operator

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
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
	err = raw.Control(func(fd uintptr) {
		var credentials *unix.Ucred
		if credentials, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); asked == nil {
			p.uid = int(credentials.Uid)
		}
	})
	if err = errors.Join(err, asked); err != nil {
		return p, fmt.Errorf("read the peer's user: %w", err)
	}
	return p, nil
}
