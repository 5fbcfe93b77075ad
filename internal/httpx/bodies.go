package httpx

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/allowance"
)

const (
	// BodyBytes is the most bytes that request bodies in flight reserve, of all organizations. One
	// of them holds a quarter, which is one of the longest bodies.
	BodyBytes = 4 * IngestLimit
	// FreeBody is the size up to which bodies are read without a reservation.
	FreeBody = 16 << 10
	// longBody is the size above which the bodies of an organization arrive one after the other, so
	// that none of them waits for another one that is half read.
	longBody = 16 << 20
	// valueBytes is the memory of one decoded JSON value, without its text.
	valueBytes = 64

	// bodyWait is how long a body waits for memory before its call is refused.
	bodyWait = 5 * time.Second
	// bodyWaiters is how many bodies wait for memory at once.
	bodyWaiters = 1024
	// bodyGrace and leastRate bound how slowly a body may arrive: at least leastRate bytes a second
	// on average, after bodyGrace. The same applies to how fast a client must read a response.
	bodyGrace = 10 * time.Second
	leastRate = 16 << 10
	// bodyTime is the longest time in which a body may arrive.
	bodyTime = 5 * time.Minute
)

// Bodies is the allowance of bytes of request bodies in flight.
type Bodies struct {
	bytes *allowance.Allowance
	// long counts bodies beyond LongBody, longest those beyond IngestLimit: one at a time, since it
	// reserves no more than the share of its organization.
	long, longest *allowance.Allowance
	wait          time.Duration
}

// NewBodies makes an allowance of total bytes.
func NewBodies(total int64) *Bodies { return newBodies(total, bodyWait) }

func newBodies(total int64, wait time.Duration) *Bodies {
	const refusal = "too many bytes of request bodies are in flight; send the request again"
	return &Bodies{
		bytes: allowance.New(
			allowance.Config{Total: total, Share: total / 4, Wait: wait, Waiters: bodyWaiters, Refusal: refusal},
		),
		long:    allowance.New(allowance.Config{Total: 4, Share: 1, Wait: wait, Waiters: bodyWaiters, Refusal: refusal}),
		longest: allowance.New(allowance.Config{Total: 1, Share: 1, Wait: wait, Waiters: bodyWaiters, Refusal: refusal}),
		wait:    wait,
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
	return bodyTime + 4*b.wait
}

// hold is the reservation of one body.
type hold struct {
	bytes, long, longest *allowance.Hold
}

func (b *Bodies) open(organization uuid.UUID) hold {
	return hold{b.bytes.Open(organization), b.long.Open(organization), b.longest.Open(organization)}
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

func (h hold) release() {
	h.longest.Release()
	h.bytes.Release()
	h.long.Release()
}
