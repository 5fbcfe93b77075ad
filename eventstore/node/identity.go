package node

import (
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
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// userName is the only user that the node knows.
const userName = "admin"

// certificateLife is longer than any process runs.
const certificateLife = 10 * 365 * 24 * time.Hour

// Connection is what a client needs to reach a node. It is new at every start and is kept in memory only.
type Connection struct {
	// Addr is host:port.
	Addr     string
	Username string
	Password string
	// RootCAs holds the certificate of the node and nothing else.
	RootCAs *x509.CertPool
}

// ConnectionString is the address as EventStoreDB clients take it. The credentials are not in it.
func (c Connection) ConnectionString() string { return "esdb://" + c.Addr }

// identity is the certificate by which clients know the node, and the password by which it knows them.
type identity struct {
	certificate tls.Certificate
	leaf        *x509.Certificate
	password    string
	// credentials is the hash of the authorization header that is let in: comparing hashes takes equally long for all.
	credentials [sha256.Size]byte
}

func newIdentity(addr net.Addr) (*identity, error) {
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
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of the event store: %w", err)
	}
	id := &identity{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		leaf:        leaf,
		password:    rand.Text(),
	}
	id.credentials = sha256.Sum256([]byte(userName + ":" + id.password))
	return id, nil
}

func (id *identity) connection(addr net.Addr) Connection {
	pool := x509.NewCertPool()
	pool.AddCert(id.leaf)
	return Connection{Addr: reachable(addr), Username: userName, Password: id.password, RootCAs: pool}
}

// open are the services that clients call before they send credentials.
var open = []string{"/" + serverfeatures.ServerFeatures_ServiceDesc.ServiceName + "/", "/" + gossip.Gossip_ServiceDesc.ServiceName + "/"}

// admit refuses a call that does not know the password.
func (id *identity) admit(ctx context.Context, method string) error {
	for _, service := range open {
		if strings.HasPrefix(method, service) {
			return nil
		}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, header := range md.Get("authorization") {
		scheme, encoded, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "basic") {
			continue
		}
		sent, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			continue
		}
		hash := sha256.Sum256(sent)
		if subtle.ConstantTimeCompare(hash[:], id.credentials[:]) == 1 {
			return nil
		}
	}
	return status.Error(codes.Unauthenticated, "the event store asks for its user and password")
}

func (id *identity) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := id.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

func (id *identity) stream(srv any, call grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if err := id.admit(call.Context(), info.FullMethod); err != nil {
		return err
	}
	return handle(srv, call)
}

// hostOf returns the address that a listener is bound to; nil where that is no TCP address.
func hostOf(addr net.Addr) net.IP {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.IP
	}
	return nil
}

// reachable is the address by which a client of this machine reaches a listener, also one that is bound to all addresses.
func reachable(addr net.Addr) string {
	if ip := hostOf(addr); ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", fmt.Sprint(addr.(*net.TCPAddr).Port))
	}
	return addr.String()
}
