package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// shownBy returns the certificate that an address shows.
func shownBy(t *testing.T, l net.Listener) string {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return string(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw)
}

func TestWeb_CertificateIsReplaced(t *testing.T) {
	cert, key, _ := nodetest.Files(t, "cert.pem", "")
	nextCert, nextKey, _ := nodetest.Files(t, "cert.pem", "")
	w := newWebServer(Config{TLSCert: cert, TLSKey: key, Logger: slog.New(slog.DiscardHandler)}, &opening{})
	ctx, cancel := context.WithCancel(t.Context())
	var addresses []net.Listener
	done := make(chan error)
	for range 2 { // as the API's and the console's
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		runtest.Must(t, err)
		addresses = append(addresses, l)
		go func() { done <- w.serve(l, http.NotFoundHandler())(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
	first := shownBy(t, addresses[0])
	if shownBy(t, addresses[1]) != first {
		t.Error("the addresses show different certificates")
	}
	at := time.Now().Add(time.Minute) // not the time of the files before
	for _, file := range []string{nextCert, nextKey} {
		runtest.Must(t, os.Chtimes(file, at, at))
	}
	runtest.Must(t, errors.Join(os.Rename(nextKey, key), os.Rename(nextCert, cert)))
	for _, l := range addresses {
		runtest.Await(t, "the next certificate", func() bool { return shownBy(t, l) != first })
	}
}

func TestWeb_CertificateCannotBeRead(t *testing.T) {
	cert, _, _ := nodetest.Files(t, "cert.pem", "")
	_, key, _ := nodetest.Files(t, "cert.pem", "")
	w := newWebServer(Config{TLSCert: cert, TLSKey: key, Logger: slog.New(slog.DiscardHandler)}, &opening{})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	defer func() { _ = l.Close() }()
	if err := w.serve(l, http.NotFoundHandler())(t.Context()); err == nil {
		t.Error("it serves with the key of another certificate")
	}
}

// With the certificate of the service, answers have browsers use HTTPS alone; over plain HTTP they do not.
func TestWeb_StrictTransport(t *testing.T) {
	cert, key, _ := nodetest.Files(t, "cert.pem", "")
	for scheme, cfg := range map[string]Config{"https": {TLSCert: cert, TLSKey: key}, "http": {}} {
		cfg.Logger = slog.New(slog.DiscardHandler)
		w := newWebServer(cfg, &opening{})
		ctx, cancel := context.WithCancel(t.Context())
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		runtest.Must(t, err)
		done := make(chan error, 1)
		go func() { done <- w.serve(l, http.NotFoundHandler())(ctx) }()
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+l.Addr().String(), nil)
		runtest.Must(t, err)
		res, err := transport.RoundTrip(req)
		runtest.Must(t, err)
		runtest.Must(t, res.Body.Close())
		want := map[string]string{"https": "max-age=31536000"}[scheme]
		if got := res.Header.Get("Strict-Transport-Security"); got != want || res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %q, want %q", scheme, res.StatusCode, got, want)
		}
		cancel()
		runtest.Must(t, <-done)
	}
}
