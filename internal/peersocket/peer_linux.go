package peersocket

import "golang.org/x/sys/unix"

// userOf returns the user at the other end of a Unix socket, as the system reports it.
func userOf(fd int) (uid int, err error) {
	credentials, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(credentials.Uid), nil
}
