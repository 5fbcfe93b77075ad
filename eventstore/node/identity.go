package node

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// userName is the only user that the node knows.
const userName = "admin"

// Connection is what a client needs to reach a node.
type Connection struct {
	// Addr is host:port.
	Addr string
	// Username and Password are empty if the node is insecure. A password that was not configured is
	// new at every start.
	Username string
	Password string
	// RootCAs contains only the certificate of the node; nil if the node is insecure.
	RootCAs *x509.CertPool
}

// ConnectionString returns the address as EventStoreDB clients expect it, without credentials and
// certificate.
func (c Connection) ConnectionString() string {
	if c.RootCAs == nil {
		return "esdb://" + c.Addr + "?tls=false"
	}
	return "esdb://" + c.Addr
}

// identity is the certificate that authenticates the node to clients, and the password that
// authenticates clients.
type identity struct {
	connection Connection
	// certificate is nil if the node is insecure: then every caller is accepted.
	certificate *tls.Certificate
	// credentials is the hash of the accepted user and password. The comparison of hashes takes
	// equally long for all values.
	credentials [sha256.Size]byte
	// commonHeader is the authorization header as nearly all clients write it, which need not be
	// decoded.
	commonHeader []byte
	// denying is held while a message of a caller without credentials is read.
	denying sync.Mutex
}

// newIdentity generates what the configuration omits. An insecure node listens on the loopback
// only.
func newIdentity(cfg Config, addr net.Addr) (*identity, error) {
	if cfg.Insecure {
		if ip := hostOf(addr); ip == nil || !ip.IsLoopback() {
			return nil, fmt.Errorf("without TLS and a password the event store listens on a loopback address only, not on %s",
				addr)
		}
		if cfg.Certificate != nil || cfg.Password != "" {
			return nil, errors.New("an insecure event store has neither a certificate nor a password")
		}
		return &identity{connection: Connection{Addr: reachable(addr, nil)}}, nil
	}
	certificate, err := cfg.Certificate, error(nil)
	if certificate == nil {
		certificate, err = newCertificate(addr)
	}
	if err != nil {
		return nil, err
	}
	leaf, err := leafOf(certificate)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	c := Connection{Addr: reachable(addr, leaf), Username: userName, Password: cfg.Password, RootCAs: pool}
	if c.Password == "" {
		c.Password = rand.Text()
	}
	pair := []byte(c.Username + ":" + c.Password)
	return &identity{
		connection: c, certificate: certificate, credentials: sha256.Sum256(pair),
		commonHeader: []byte("Basic " + base64.StdEncoding.EncodeToString(pair)),
	}, nil
}

// options make grpc require TLS, and count the connections.
func (id *identity) options() []grpc.ServerOption {
	transport := counted{TransportCredentials: insecure.NewCredentials()}
	if id.certificate != nil {
		transport.secure = &tls.Config{
			Certificates: []tls.Certificate{*id.certificate}, MinVersion: tls.VersionTLS12,
			NextProtos: []string{protocolHTTP2, protocolHTTP1},
		}
	}
	return []grpc.ServerOption{
		grpc.UnknownServiceHandler(func(_ any, call grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(call)
			return status.Error(codes.Unimplemented, notServed(method))
		}),
		grpc.Creds(transport),
	}
}

// open lists the services that clients call before they send credentials. registerOpen serves them.
var open = []string{
	"/" + serverfeatures.ServerFeatures_ServiceDesc.ServiceName + "/",
	"/" + gossip.Gossip_ServiceDesc.ServiceName + "/",
}

// authorize is the interceptor of all calls, also of unknown services. It refuses a call without the right password
// before its first message is read (but see denyBatch): until then the node holds its headers and at most streamWindow
// bytes.
func (id *identity) authorize(
	server any, call grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	if err := id.check(call.Context(), info.FullMethod); err != nil {
		if info.FullMethod == streams.Streams_BatchAppend_FullMethodName && status.Code(err) == codes.PermissionDenied {
			id.denyBatch(call)
		}
		call.SetTrailer(trailersOf(err))
		return err
	}
	return handle(server, call)
}

// denyBatch answers the first append of a batch call as clients expect it, before the call ends. Of all strangers it
// reads one message at a time, since each may be long: others receive the status of the call alone.
func (id *identity) denyBatch(call grpc.ServerStream) {
	if !id.denying.TryLock() {
		return
	}
	defer id.denying.Unlock()
	var first streams.BatchAppendReq
	if call.RecvMsg(&first) != nil {
		return // the status of the call follows
	}
	_ = call.SendMsg(&streams.BatchAppendResp{ // likewise
		CorrelationId: first.GetCorrelationId(), StreamIdentifier: first.GetOptions().GetStreamIdentifier(),
		Result: &streams.BatchAppendResp_Error{Error: statusAccessDenied().Proto()},
	})
}

// check returns why a call is refused, nil if it is not.
func (id *identity) check(ctx context.Context, method string) error {
	if id.certificate != nil {
		known, sent := id.isUser(metadata.ValueFromIncomingContext(ctx, "authorization"))
		isOpen := slices.ContainsFunc(open, func(service string) bool { return strings.HasPrefix(method, service) })
		switch {
		case sent && !known:
			return errWrongPassword()
		case isOpen:
			return nil
		case !known:
			return errAccessDenied()
		}
	}
	if c := connectionOf(ctx); c != nil {
		c.admit()
	}
	return nil
}

// isUser reports whether one of the authorization headers holds the user and the password, and whether one was sent
// that holds any user and password.
func (id *identity) isUser(headers []string) (known, sent bool) {
	for _, header := range headers {
		if subtle.ConstantTimeCompare([]byte(header), id.commonHeader) == 1 {
			return true, true
		}
		scheme, encoded, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "basic") {
			continue
		}
		pair, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || !bytes.Contains(pair, []byte(":")) {
			continue
		}
		sent = true
		hash := sha256.Sum256(pair)
		if subtle.ConstantTimeCompare(hash[:], id.credentials[:]) == 1 {
			return true, true
		}
	}
	return false, sent
}

// hostOf returns the address that a listener is bound to, nil if it is not a TCP address.
func hostOf(addr net.Addr) net.IP {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.IP
	}
	return nil
}

// reachable returns the host:port by which clients reach a listener. The host is a name of the
// certificate if the certificate does not cover the address itself, and the loopback if the
// listener is bound to all addresses.
func reachable(addr net.Addr, certificate *x509.Certificate) string {
	ip, port := hostOf(addr), addr.(*net.TCPAddr).Port // a listener of ours is TCP
	if ip.IsUnspecified() {
		ip = net.IPv4(127, 0, 0, 1)
	}
	host := ip.String()
	if certificate != nil && certificate.VerifyHostname(host) != nil {
		for _, name := range certificate.DNSNames {
			if !strings.HasPrefix(name, "*") {
				host = name
				break
			}
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// certificateLife is longer than any process runs.
const certificateLife = 10 * 365 * 24 * time.Hour

// newCertificate makes a certificate for the loopback and for the address of a listener. Its key
// is in memory only.
func newCertificate(addr net.Addr) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the event store: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "annals event store"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(certificateLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := hostOf(addr).To16(); ip != nil && !ip.IsLoopback() {
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the event store: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// leafOf returns the certificate itself, without its issuers.
func leafOf(certificate *tls.Certificate) (*x509.Certificate, error) {
	if len(certificate.Certificate) == 0 {
		return nil, errors.New("the certificate of the event store is empty")
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the event store: %w", err)
	}
	return leaf, nil
}
