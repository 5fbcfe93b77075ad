package httpx

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/annals-project/annals/internal/allowance"
)

// Arriving is the body of a request to a page while it arrives, at the rate that bodies of the API must have. What has
// arrived is reserved, but for the first bytes: a silent peer holds nothing. Its errors are faults.
type Arriving struct {
	ctx    context.Context //nolint:containedctx // of the one request
	body   io.Reader
	hold   *allowance.Hold
	paced  bodyReader
	read   int64
	free   int64
	failed error
}

// NewArriving returns the body of a request, at most limit bytes, whose bytes beyond free are reserved in a hold.
func NewArriving(
	ctx context.Context, w http.ResponseWriter, body io.ReadCloser, limit int64, hold *allowance.Hold, free int64,
) *Arriving {
	return &Arriving{
		ctx: ctx, body: http.MaxBytesReader(nil, body, limit), hold: hold, free: free,
		paced: bodyReader{controller: http.NewResponseController(w), started: time.Now()},
	}
}

// Reserve has the bytes that were read, and those to come, reserved in another hold instead.
func (a *Arriving) Reserve(hold *allowance.Hold) error {
	a.hold.Release()
	a.hold, a.free = hold, 0
	return a.reserve()
}

// Read implements io.Reader.
func (a *Arriving) Read(p []byte) (n int, err error) {
	if a.failed != nil {
		return 0, a.failed
	}
	defer func() {
		if err != nil {
			a.failed = err
		}
	}()
	if err := a.paced.deadline(a.paced.due(int(a.read))); err != nil {
		return 0, err
	}
	a.hold.Await(func() { _ = a.paced.deadline(time.Unix(0, 0)) }) // the read ends
	n, err = a.body.Read(p[:min(len(p), readStep)])
	if !a.hold.Moved(n) {
		return 0, unread(os.ErrDeadlineExceeded)
	}
	a.read += int64(n)
	if full := a.reserve(); full != nil {
		return 0, full
	}
	if large, is := errors.AsType[*http.MaxBytesError](err); is {
		return n, tooLarge(large.Limit)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, unread(err)
	}
	return n, err
}

func (a *Arriving) reserve() error {
	began := time.Now()
	err := a.hold.Reserve(a.ctx, a.read-a.free-a.hold.Held())
	a.paced.waited += time.Since(began)
	return err
}

// End ends the reading: from now on a client that leaves is noticed, and no deadline of the body holds.
func (a *Arriving) End() error { return a.paced.deadline(time.Time{}) }

// HangUp returns a function that ends the answer to a request at once, also one that the client does not read.
func HangUp(w http.ResponseWriter, r *http.Request) func() {
	if counted := connectionOf(r); counted != nil {
		return func() { _ = counted.Conn.Close() } // its server notices
	}
	controller := http.NewResponseController(w)
	return func() { _ = controller.SetWriteDeadline(time.Unix(0, 0)) }
}
