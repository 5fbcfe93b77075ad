package httpx

import (
	"context"
	"net/http"
	"time"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/allowance"
)

const (
	// FreeBody is the size up to which bodies are read without a reservation.
	FreeBody = 16 << 10
	// longBody is the size above which a body takes a slot of admission.LongBodies.
	longBody = 16 << 20
	// valueBytes is the memory of one decoded JSON value, without its text.
	valueBytes = 64

	// bodyGrace and leastRate bound how slowly a body may arrive: at least leastRate bytes a second
	// on average, after bodyGrace. The same applies to how fast a client must read a response.
	bodyGrace = 10 * time.Second
	leastRate = 16 << 10
	// bodyTime is the longest time in which a body may arrive.
	bodyTime = 5 * time.Minute
	// A body with a slot keeps it while longRate bytes a second arrive in any longWindow, and wantedRate
	// while another body waits for a slot.
	longRate   = 256 << 10
	wantedRate = 1 << 20
	longWindow = 10 * time.Second
)

// Bodies is the allowance of bytes of request bodies in flight.
type Bodies struct {
	bytes, long, longest *allowance.Allowance
	wait                 time.Duration
}

// NewBodies makes an allowance of bytes, with those of admission.LongBodies and admission.LongestBodies.
func NewBodies(bytes admission.Resource) *Bodies {
	long, longest := admission.LongBodies, admission.LongestBodies
	return &Bodies{
		bytes: bytes.New(), long: long.New(), longest: longest.New(), wait: bytes.Wait + long.Wait + longest.Wait,
	}
}

// InFlight returns how many bytes are reserved.
func (b *Bodies) InFlight() int64 { return b.bytes.InUse() }

// timeOf is how long the body of a request may take to arrive, before it is known which route it
// is for.
func (b *Bodies) timeOf(req *http.Request) time.Duration {
	if req.ContentLength == 0 {
		return 0
	}
	return bodyTime + 2*b.wait
}

// hold is the reservation of one body.
type hold struct {
	bytes, long, longest *allowance.Hold
}

func (b *Bodies) open(o allowance.Owner) hold {
	return hold{b.bytes.Open(o), b.long.Open(o), b.longest.Open(o)}
}

// upTo raises the reservation to n bytes.
func (h hold) upTo(ctx context.Context, n int64) error {
	if n > longBody {
		if err := h.long.Reserve(ctx, 1); err != nil {
			return err
		}
	}
	if n > IngestLimit+1 { // a body of unknown length has room for the byte beyond its limit
		if err := h.longest.Reserve(ctx, 1); err != nil {
			return err
		}
	}
	return h.bytes.Reserve(ctx, n-h.bytes.Held())
}

// await reports that the body waits for its peer, until moved: see allowance.Hold.
func (h hold) await(revoke func()) {
	h.longest.Await(revoke)
	h.bytes.Await(revoke)
	h.long.Await(revoke)
}

// moved reports that n bytes arrived. It returns false if others took the room of the body.
func (h hold) moved(n int) bool {
	longest, bytes, long := h.longest.Moved(n), h.bytes.Moved(n), h.long.Moved(n)
	return longest && bytes && long
}

func (h hold) release() {
	h.longest.Release()
	h.bytes.Release()
	h.long.Release()
}
