//go:build !linux && !darwin

package peersocket

import (
	"errors"
	"net"
)

// peerOf returns an error: this system does not name the peer, so the socket accepts no commands.
func peerOf(net.Conn) (Peer, error) {
	return Peer{}, errors.New("this system does not name the user of a socket's peer")
}
