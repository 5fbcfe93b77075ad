package httpx

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// writeStep is the most bytes that are written before the deadline of an answer is set again.
	writeStep = 64 << 10
	// answerTime is the longest time that a client may take to read a response.
	answerTime = 5 * time.Minute
)

// pacedWriter writes a response, and aborts it if the peer reads less than leastRate on average
// after bodyGrace. Only the time of the writes counts, not the time that the handler needs.
type pacedWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	written    int64
	spent      time.Duration
}

func newPacedWriter(w http.ResponseWriter) *pacedWriter {
	return &pacedWriter{ResponseWriter: w, controller: http.NewResponseController(w)}
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements io.Writer.
func (w *pacedWriter) Write(b []byte) (n int, err error) {
	for {
		step := b[n:min(len(b), n+writeStep)]
		began := time.Now()
		allowed := min(bodyGrace+time.Duration(w.written+int64(len(step)))*time.Second/leastRate, answerTime)
		err := w.controller.SetWriteDeadline(began.Add(allowed - w.spent))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return n, fmt.Errorf("set the deadline of an answer: %w", err)
		}
		m, err := w.ResponseWriter.Write(step)
		w.spent += time.Since(began)
		w.written += int64(m)
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}
