package httpx

import "golang.org/x/sys/unix"

// closedEvents is set once the peer sends no more, also while what it sent is not read.
const closedEvents = unix.POLLRDHUP
