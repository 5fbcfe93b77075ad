package node

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
)

func newLoopback(*testing.T) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2113} }

// Clients get an address that the certificate covers.
func TestAddress_Reachable(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 2113} }
	named := &x509.Certificate{DNSNames: []string{"*.example.com", "log.example.com"}}
	numbered := &x509.Certificate{DNSNames: []string{"log.example.com"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.1")}}
	for _, tt := range []struct {
		name        string
		addr        net.Addr
		certificate *x509.Certificate
		want        string
	}{
		{"the loopback", tcp("127.0.0.1"), nil, "127.0.0.1:2113"},
		{"the loopback of IPv6", tcp("::1"), nil, "[::1]:2113"},
		{"all addresses", tcp("0.0.0.0"), nil, "127.0.0.1:2113"},
		{"a name", tcp("0.0.0.0"), named, "log.example.com:2113"},
		{"an address that it bears", tcp("192.0.2.1"), numbered, "192.0.2.1:2113"},
		{"an address that it does not bear", tcp("192.0.2.2"), numbered, "log.example.com:2113"},
		{"no name at all", tcp("192.0.2.2"), &x509.Certificate{}, "192.0.2.2:2113"},
	} {
		if got := reachable(tt.addr, tt.certificate); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A node whose certificate cannot be read does not start.
func TestCertificate_Unreadable(t *testing.T) {
	for name, c := range map[string]*tls.Certificate{"empty": {}, "damaged": {Certificate: [][]byte{{1, 2, 3}}}} {
		cfg := memoryConfig()
		cfg.Certificate = c
		if n, err := Start(t.Context(), cfg); err == nil {
			t.Errorf("%s: started, close: %v", name, n.Close())
		}
	}
}
