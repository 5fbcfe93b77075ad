package httpx

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of the proxies that are trusted to name who calls them.
type Proxies []netip.Prefix

// maxProxies bounds how many networks each request is compared with.
const maxProxies = 64

// ParseProxies reads networks such as 10.0.0.0/8, or single addresses, separated by commas. An empty text is none.
func ParseProxies(text string) (Proxies, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var proxies Proxies
	for _, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		network, err := netip.ParsePrefix(entry)
		if address, bad := netip.ParseAddr(entry); bad == nil && address.Zone() == "" {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("names %q: want networks such as 10.0.0.0/8, separated by commas", entry)
		}
		if network.Addr().Is4In6() {
			return nil, fmt.Errorf("names %q: write an IPv4 network as IPv4", entry)
		}
		proxies = append(proxies, network.Masked())
	}
	if len(proxies) > maxProxies {
		return nil, fmt.Errorf("names %d networks: want at most %d", len(proxies), maxProxies)
	}
	return proxies, nil
}

// Caller returns the address of who sent a request: of the peer, or what a trusted proxy put last into
// X-Forwarded-For. What stands before that may come from anybody. All of a network of IPv6 count as one caller. The
// address is invalid if the peer has none.
func (p Proxies) Caller(req *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	caller := at.Addr().Unmap().WithZone("")
	if slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(caller) }) {
		if named, err := forwarded(req.Header); err == nil {
			caller = named
		}
	}
	if network, err := caller.Prefix(64); caller.Is6() && err == nil {
		return network.Addr()
	}
	return caller
}

// forwarded returns the last address of X-Forwarded-For. Some proxies write it with a port.
func forwarded(header http.Header) (netip.Addr, error) {
	lines := header.Values("X-Forwarded-For")
	if len(lines) == 0 {
		return netip.Addr{}, errors.New("there is none")
	}
	last := lines[len(lines)-1]
	last = strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:])
	if at, err := netip.ParseAddrPort(last); err == nil {
		return at.Addr().Unmap().WithZone(""), nil
	}
	address, err := netip.ParseAddr(last)
	return address.Unmap().WithZone(""), err
}
