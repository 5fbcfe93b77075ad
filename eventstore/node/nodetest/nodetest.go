// Package nodetest holds what tests of a node that stands alone need.
package nodetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/runtest"
)

// Files writes a certificate for the loopback, good for an hour, its key and a password, and
// returns their paths. The certificate's file is called name: it gets into the connection string.
func Files(t testing.TB, name, password string) (cert, key, passwordFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	runtest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(
			1,
		), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	runtest.Must(t, err)
	encoded, err := x509.MarshalECPrivateKey(private)
	runtest.Must(t, err)
	dir := t.TempDir()
	write := func(file string, text []byte) string {
		path := filepath.Join(dir, file)
		runtest.Must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	return write(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})),
		write("password", []byte(password+"\n"))
}
