package httpx

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
)

// pairFiles is a pair of PEM files, a clock, and a log.
type pairFiles struct {
	cert, key string
	now       time.Time
	written   int
	log       bytes.Buffer
}

func newPairFiles(t *testing.T) *pairFiles {
	t.Helper()
	dir := t.TempDir()
	return &pairFiles{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), now: time.Now()}
}

// pairOf returns a new pair whose certificate has a name.
func pairOf(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	runtest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	runtest.Must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	runtest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// write replaces a file. Its time differs from that of every file before.
func (f *pairFiles) write(t *testing.T, file string, text []byte) {
	t.Helper()
	f.written++
	at := f.now.Add(time.Duration(f.written) * time.Minute)
	runtest.Must(t, os.WriteFile(file, text, 0o600))
	runtest.Must(t, os.Chtimes(file, at, at))
}

func (f *pairFiles) writePair(t *testing.T, name string) {
	t.Helper()
	cert, key := pairOf(t, name)
	f.write(t, f.cert, cert)
	f.write(t, f.key, key)
}

func (f *pairFiles) load(t *testing.T) *Certificate {
	t.Helper()
	c, err := LoadCertificate(f.cert, f.key, slog.New(slog.NewTextHandler(&f.log, nil)))
	runtest.Must(t, err)
	c.now = func() time.Time { return f.now }
	c.checked = f.now
	return c
}

// shown returns the name on the certificate that a handshake shows.
func shown(t *testing.T, c *Certificate) string {
	t.Helper()
	near, far := net.Pipe()
	server := tls.Server(near, &tls.Config{GetCertificate: c.Get, MinVersion: tls.VersionTLS12})
	client := tls.Client(far, &tls.Config{InsecureSkipVerify: true})
	done := make(chan error, 1)
	go func() { done <- server.HandshakeContext(t.Context()) }()
	runtest.Must(t, client.HandshakeContext(t.Context()))
	name := client.ConnectionState().PeerCertificates[0].Subject.CommonName
	go func() { _, _ = io.Copy(io.Discard, far) }() // session tickets
	runtest.Must(t, <-done)
	_ = near.Close()
	return name
}

func (f *pairFiles) want(t *testing.T, c *Certificate, name string, warnings int) {
	t.Helper()
	f.now = f.now.Add(certificateCheck)
	if got := shown(t, c); got != name {
		t.Errorf("a handshake shows %q, want %q; the log: %s", got, name, f.log.String())
	}
	if n := strings.Count(f.log.String(), "level=WARN"); n != warnings {
		t.Errorf("%d warnings, want %d: %s", n, warnings, f.log.String())
	}
}

func TestCertificate_ReplacedPair(t *testing.T) {
	f := newPairFiles(t)
	f.writePair(t, "first")
	c := f.load(t)
	f.want(t, c, "first", 0)
	f.writePair(t, "second")
	if got := shown(t, c); got != "first" {
		t.Errorf("a handshake right after a check shows %q, want the files not to be read again", got)
	}
	f.want(t, c, "second", 0)
	if strings.Count(f.log.String(), "level=INFO") != 1 {
		t.Errorf("want one line for the new certificate: %s", f.log.String())
	}
	f.want(t, c, "second", 0)
}

// The files of a Kubernetes secret are links through one folder, which is replaced.
func TestCertificate_ReplacedLink(t *testing.T) {
	f := newPairFiles(t)
	dir := filepath.Dir(f.cert)
	folder := func(name string) {
		t.Helper()
		f.cert, f.key = filepath.Join(dir, name, "cert.pem"), filepath.Join(dir, name, "key.pem")
		runtest.Must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		f.writePair(t, name)
		next := filepath.Join(dir, "next")
		runtest.Must(t, os.Symlink(name, next))
		runtest.Must(t, os.Rename(next, filepath.Join(dir, "current")))
	}
	folder("first")
	f.cert, f.key = filepath.Join(dir, "current", "cert.pem"), filepath.Join(dir, "current", "key.pem")
	c := f.load(t)
	f.want(t, c, "first", 0)
	folder("second")
	f.want(t, c, "second", 0)
}

func TestCertificate_BrokenPairKeepsTheOld(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, f *pairFiles, cert, key []byte){
		"certificate without its key": func(t *testing.T, f *pairFiles, cert, _ []byte) { f.write(t, f.cert, cert) },
		"key without its certificate": func(t *testing.T, f *pairFiles, _, key []byte) { f.write(t, f.key, key) },
		"half a certificate": func(t *testing.T, f *pairFiles, cert, key []byte) {
			f.write(t, f.cert, cert[:len(cert)/2])
			f.write(t, f.key, key)
		},
		"empty key": func(t *testing.T, f *pairFiles, cert, _ []byte) {
			f.write(t, f.cert, cert)
			f.write(t, f.key, nil)
		},
		"no file": func(t *testing.T, f *pairFiles, _, _ []byte) {
			runtest.Must(t, os.Remove(f.cert))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPairFiles(t)
			f.writePair(t, "old")
			c := f.load(t)
			cert, key := pairOf(t, "new")
			spoil(t, f, cert, key)
			f.want(t, c, "old", 1)
			f.want(t, c, "old", 1) // once for each change
			if strings.Contains(f.log.String(), string(key)) {
				t.Error("the log has the key")
			}
			f.write(t, f.cert, cert)
			f.write(t, f.key, key)
			f.want(t, c, "new", 1)
		})
	}
}

func TestLoadCertificate_BrokenPair(t *testing.T) {
	f := newPairFiles(t)
	f.writePair(t, "one")
	_, key := pairOf(t, "another")
	f.write(t, f.key, key)
	if _, err := LoadCertificate(f.cert, f.key, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("the key of another certificate is no error")
	}
}
