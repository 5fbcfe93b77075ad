package httpx

// closedEvents is nothing that is asked for: a closed peer is POLLHUP.
const closedEvents = 0
