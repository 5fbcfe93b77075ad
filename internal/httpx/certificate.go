package httpx

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// certificateCheck is the least time between two looks at the files of a certificate.
const certificateCheck = time.Second

// Certificate is a certificate with its key, which is read again when its files change. It is safe for
// concurrent use.
type Certificate struct {
	cert, key string
	log       *slog.Logger
	now       func() time.Time

	pair atomic.Pointer[tls.Certificate]

	mu      sync.Mutex // guards what is below
	checked time.Time
	// loaded is what the files were when pair was read, refused what they were when they could not be used.
	loaded, refused [2]fileState
}

// fileState differs after each change of a file. It is the zero value for a file that cannot be read.
type fileState struct{ modified, size int64 }

// LoadCertificate reads a certificate and its key from PEM files.
func LoadCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, log: log, now: time.Now, checked: time.Now()}
	state, pair, err := c.read()
	if err != nil {
		return nil, err
	}
	c.loaded = state
	c.pair.Store(pair)
	return c, nil
}

// Get returns the current certificate, for tls.Config.GetCertificate. A changed pair that cannot be used, such as one
// that is half written, is logged once, and the one before stays.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.mu.TryLock() { // else another handshake looks
		defer c.mu.Unlock()
		if now := c.now(); now.Sub(c.checked) >= certificateCheck {
			c.checked = now
			c.refresh()
		}
	}
	return c.pair.Load(), nil
}

func (c *Certificate) refresh() {
	if c.state() == c.loaded {
		return
	}
	state, pair, err := c.read()
	if err == nil {
		c.loaded = state
		c.pair.Store(pair)
		c.log.Info("certificate changed, new connections get it", "file", c.cert, "expires", pair.Leaf.NotAfter)
		return
	}
	if state != c.refused {
		c.log.Warn("changed certificate cannot be used, the one before stays, will retry", "file", c.cert, "err", err)
	}
	c.refused = state
}

// read reads the pair. The state is that before, so that a change during the read is noticed by the next check.
func (c *Certificate) read() (state [2]fileState, pair *tls.Certificate, err error) {
	state = c.state()
	read, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return state, nil, fmt.Errorf("load the certificate: %w", err)
	}
	return state, &read, nil
}

func (c *Certificate) state() (state [2]fileState) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			state[i] = fileState{info.ModTime().UnixNano(), info.Size()}
		}
	}
	return state
}

// strictTransport has browsers use HTTPS alone with this host, for a year from each answer (RFC 6797).
const strictTransport = "max-age=31536000"

// StrictTransport serves a handler over TLS. Over plain HTTP browsers ignore the header; a proxy in front sets its own.
func StrictTransport(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", strictTransport)
		handler.ServeHTTP(w, r)
	})
}
