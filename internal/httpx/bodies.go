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
	// LongBody is the size beyond which the bodies of an organization arrive one after the other.
	// None of them then waits for another that is half read.
	LongBody = 16 << 20
	// valueBytes is what one JSON value takes in memory once it is decoded, without its text.
	valueBytes = 64

	// bodyWait is how long a body waits for room before its call is refused.
	bodyWait = 5 * time.Second
	// bodyWaiters is how many bodies wait for room at once.
	bodyWaiters = 1024
	// bodyGrace and leastRate bound how slowly a body may arrive: so many bytes a second on average,
	// once the grace is over. The same holds for how fast an answer must be read.
	bodyGrace = 10 * time.Second
	leastRate = 16 << 10
	// bodyTime is the longest time that a body may take to arrive.
	bodyTime = 5 * time.Minute
)

// Bodies is the allowance of bytes that request bodies in flight share.
type Bodies struct {
	bytes *allowance.Allowance
	// long counts bodies beyond LongBody.
	long *allowance.Allowance
	wait time.Duration
}

// NewBodies makes an allowance of total bytes.
func NewBodies(total int64) *Bodies { return newBodies(total, bodyWait) }

func newBodies(total int64, wait time.Duration) *Bodies {
	const refusal = "too many bytes of request bodies are in flight; send the request again"
	return &Bodies{
		bytes: allowance.New(
			allowance.Config{Total: total, Share: total / 4, Wait: wait, Waiters: bodyWaiters, Refusal: refusal},
		),
		long: allowance.New(allowance.Config{Total: 4, Share: 1, Wait: wait, Waiters: bodyWaiters, Refusal: refusal}),
		wait: wait,
	}
}

// InFlight returns how many bytes are reserved.
func (b *Bodies) InFlight() int64 { return b.bytes.InUse() }

// longest is how long the body of a request may take to arrive, before it is known which route it
// is for.
func (b *Bodies) longest(req *http.Request) time.Duration {
	if req.ContentLength == 0 {
		return 0
	}
	return bodyTime + 4*b.wait
}

// hold is the reservation of one body.
type hold struct {
	bytes, long *allowance.Hold
}

func (b *Bodies) open(organization uuid.UUID) hold {
	return hold{b.bytes.Open(organization), b.long.Open(organization)}
}

// upTo raises the reservation to n bytes.
func (h hold) upTo(ctx context.Context, n int64) error {
	if n > LongBody {
		if err := h.long.Reserve(ctx, 1); err != nil {
			return err
		}
	}
	return h.bytes.Reserve(ctx, n-h.bytes.Held())
}

func (h hold) release() {
	h.bytes.Release()
	h.long.Release()
}
