//go:build !linux && !darwin

package operatorapi

import (
	"errors"
	"net"
)

// peerOf returns an error: this system does not name the peer, so the socket accepts no commands.
func peerOf(net.Conn) (peer, error) {
	return peer{}, errors.New("this system does not name the user of a socket's peer")
}
