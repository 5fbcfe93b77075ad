//go:build !linux && !darwin

package operatorapi

import (
	"errors"
	"net"
)

// peerOf knows no peer: where the system does not name one, the socket takes no commands.
func peerOf(net.Conn) (peer, error) {
	return peer{}, errors.New("this system does not name the user of a socket's peer")
}
