package httpx_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/annals-project/annals/internal/httpx"
)

func TestProxies_Caller(t *testing.T) {
	proxies, err := httpx.ParseProxies("10.0.0.0/8, 192.0.2.7,2001:db8:aa::/48")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"no proxy", "198.51.100.1:7", nil, "198.51.100.1"},
		{"a stranger names another", "198.51.100.1:7", []string{"203.0.113.9"}, "198.51.100.1"},
		{"a proxy without a header", "10.1.2.3:7", nil, "10.1.2.3"},
		{"a proxy", "10.1.2.3:7", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a proxy alone", "192.0.2.7:7", []string{"203.0.113.9"}, "203.0.113.9"},
		{"its neighbour", "192.0.2.8:7", []string{"203.0.113.9"}, "192.0.2.8"},
		{"a proxy by IPv6", "[2001:db8:aa::1]:7", []string{"203.0.113.9"}, "203.0.113.9"},
		{"a peer as mapped IPv4", "[::ffff:10.1.2.3]:7", []string{"203.0.113.9"}, "203.0.113.9"},
		{"what the caller wrote before", "10.1.2.3:7", []string{"1.1.1.1, 2.2.2.2,203.0.113.9"}, "203.0.113.9"},
		{"in a line of its own", "10.1.2.3:7", []string{"203.0.113.9", "2.2.2.2"}, "2.2.2.2"},
		{"with a port", "10.1.2.3:7", []string{"203.0.113.9:4711"}, "203.0.113.9"},
		{"IPv6 with a port", "10.1.2.3:7", []string{"[2001:db8:1:2:3::4]:4711"}, "2001:db8:1:2::"},
		{"IPv6 of one network", "10.1.2.3:7", []string{"2001:db8:1:2:ffff::9"}, "2001:db8:1:2::"},
		{"no address", "10.1.2.3:7", []string{"unknown"}, "10.1.2.3"},
		{"an empty end", "10.1.2.3:7", []string{"203.0.113.9,"}, "10.1.2.3"},
		{"a peer without an address", "@", []string{"203.0.113.9"}, "invalid IP"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = c.peer
		for _, line := range c.forwarded {
			r.Header.Add("X-Forwarded-For", line)
		}
		if got := proxies.Caller(r).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if got := httpx.Proxies(nil).Caller(r).String(); len(c.forwarded) > 0 && got == "203.0.113.9" {
			t.Errorf("%s: without trusted proxies a header names the caller", c.name)
		}
	}
}

func TestParseProxies_Refuses(t *testing.T) {
	for _, text := range []string{"10.0.0.0/33", "proxy", "10.0.0.0/8,", "::ffff:10.0.0.0/104", "fe80::1%eth0"} {
		if p, err := httpx.ParseProxies(text); err == nil {
			t.Errorf("%q is read as %v", text, p)
		}
	}
	if p, err := httpx.ParseProxies(" "); err != nil || p != nil {
		t.Errorf("nothing is %v, %v", p, err)
	}
}
