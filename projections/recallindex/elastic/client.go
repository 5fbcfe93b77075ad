package elastic

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elastic/elastic-transport-go/v8/elastictransport"
	"github.com/elastic/go-elasticsearch/v8/esapi"
)

// The errors of a server that cannot be used.
var (
	// ErrProduct reports a server that is not Elasticsearch.
	ErrProduct = errors.New("the server is not Elasticsearch: another product that answers like it is not supported")
	// ErrVersion reports an Elasticsearch of another version.
	ErrVersion = errors.New("the version of Elasticsearch is not supported: want 8.11 or a later 8")
	// ErrUnavailable reports that requests are not sent, because several in a row failed.
	ErrUnavailable = errors.New("elasticsearch failed several requests in a row, none is sent for a moment")

	errTooBig = errors.New("the answer of Elasticsearch is too big")
)

// maxConns bounds the connections to one server. Further requests wait for one: a new connection for
// every request costs a server under load more than the requests do, until it answers none in time.
const maxConns = 32

// closeTime bounds how long Close waits for what watches servers that did not answer.
const closeTime = 10 * time.Second

// leastMinor is the minor version that brought sparse vectors.
const leastMinor = 11

// client sends requests: each in its time, with an answer of bounded size, from the right product. Of
// several servers, the next one gets the next request; one that does not answer gets none for a while.
type client struct {
	transport *elastictransport.Client
	http      *http.Transport
	breaker   breaker
	maxBody   int64
	counts    counts
}

// counts are what Stats returns.
type counts struct{ answered, refused, failed, notSent, repeated atomic.Int64 }

// Stats are what the requests of a process came to.
type Stats struct {
	// Requests that were answered, that Elasticsearch refused, that got no answer or an error of the
	// server, and that were not sent since several before them failed.
	Answered, Refused, Failed, NotSent int64
	// Repeated is how many documents were sent again, since there was no room for them.
	Repeated int64
	// Paused is true while no request is sent, because several in a row failed.
	Paused bool
}

// Stats returns what the requests of this process came to.
func (x *Index) Stats() Stats {
	c := &x.client.counts
	return Stats{
		Answered: c.answered.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(), NotSent: c.notSent.Load(),
		Repeated: c.repeated.Load(), Paused: x.client.breaker.isOpen(),
	}
}

func newClient(o Options) (*client, error) {
	at, err := o.address()
	if err != nil {
		return nil, err
	}
	trust, err := o.tls()
	if err != nil {
		return nil, err
	}
	pool, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the default HTTP transport was replaced")
	}
	pool = pool.Clone()
	pool.TLSClientConfig, pool.MaxIdleConnsPerHost, pool.MaxConnsPerHost, pool.Proxy = trust, maxConns, maxConns, nil
	pool.DialContext = (&net.Dialer{Timeout: o.limits.dial, KeepAlive: 30 * time.Second}).DialContext
	options := []elastictransport.Option{elastictransport.WithURLs(at.urls...)}
	if others := len(at.urls) - 1; others == 0 {
		options = append(options, elastictransport.WithTransport(pool), elastictransport.WithDisableRetry())
	} else {
		options = append(options, elastictransport.WithTransport(patient{pool}), elastictransport.WithRetry(others),
			elastictransport.WithRetryOnError(isForAnother))
	}
	switch {
	case o.Key != "":
		options = append(options, elastictransport.WithAPIKey(o.Key))
	case at.user != "":
		options = append(options, elastictransport.WithBasicAuth(at.user, at.password))
	}
	transport, err := elastictransport.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("connect to Elasticsearch: %w", err)
	}
	return &client{transport: transport, http: pool, maxBody: o.limits.body}, nil
}

// patient is a transport that does not blame a server for a request whose caller gave up: such a server
// would get no request for a minute.
type patient struct{ http.RoundTripper }

// statusGivenUp answers a request whose caller gave up. No server sends it.
const statusGivenUp = 499

// RoundTrip implements http.RoundTripper.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := p.RoundTripper.RoundTrip(r)
	if err != nil && errors.Is(r.Context().Err(), context.Canceled) {
		return &http.Response{StatusCode: statusGivenUp, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return answer, err
}

// isForAnother reports whether another server may get a request that one did not answer: one that did
// not get it, or one that changes nothing when it is made twice.
func isForAnother(r *http.Request, err error) bool {
	if r.Context().Err() != nil {
		return false
	}
	failed, is := errors.AsType[*net.OpError](err)
	return is && failed.Op == "dial" || r.Method != http.MethodPut && !strings.HasSuffix(r.URL.Path, "/_aliases")
}

// request is one of package esapi.
type request interface {
	Do(ctx context.Context, transport esapi.Transport) (*esapi.Response, error)
}

// several is an answer to several requests that were sent as one. Its status is good even if that of a part is not.
type several interface {
	// refusal returns the error of the first part that was refused.
	refusal() error
}

// do sends a request, and decodes its answer into out unless that is nil.
func (c *client) do(ctx context.Context, limit time.Duration, r request, out any) error {
	if !c.breaker.allow(time.Now()) {
		c.counts.notSent.Add(1)
		return ErrUnavailable
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := c.send(limited, r)
	var unreadable error
	if err == nil && out != nil {
		if failed := json.Unmarshal(answer, out); failed != nil {
			unreadable = fmt.Errorf("the answer of Elasticsearch is unreadable: %w", failed)
		} else if parts, is := out.(several); is {
			err = parts.refusal()
		}
	}
	c.note(ctx, err)
	return cmp.Or(err, unreadable)
}

// note counts what became of a request that was sent.
func (c *client) note(ctx context.Context, err error) {
	refused, isRefusal := errors.AsType[*responseError](err)
	switch {
	case err == nil:
		c.counts.answered.Add(1)
		c.breaker.succeeded()
	case isRefusal && !refused.isServerFailure(), errors.Is(err, ErrProduct):
		c.counts.refused.Add(1)
		c.breaker.succeeded()
	case ctx.Err() != nil:
		c.breaker.abandoned()
	default:
		c.counts.failed.Add(1)
		c.breaker.failed(time.Now())
	}
}

// send returns the body of a good answer.
func (c *client) send(ctx context.Context, r request) (body []byte, err error) {
	answer, err := r.Do(ctx, c.transport)
	if err != nil {
		return nil, fmt.Errorf("elasticsearch does not answer: %w", err)
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	body, err = io.ReadAll(io.LimitReader(answer.Body, c.maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("elasticsearch broke off its answer: %w", err)
	case answer.StatusCode == statusGivenUp && ctx.Err() != nil:
		return nil, ctx.Err()
	case int64(len(body)) > c.maxBody:
		return nil, errTooBig
	case answer.StatusCode >= http.StatusBadRequest:
		return nil, newResponseError(answer.StatusCode, body)
	case answer.Header.Get("X-Elastic-Product") != "Elasticsearch":
		return nil, ErrProduct
	}
	return body, nil
}

func (c *client) close() error {
	defer c.http.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return c.transport.Close(ctx)
}

// checkVersion returns an error unless the server is an Elasticsearch of a version that the package
// knows. It does not ask GET /, which some distributions lack.
func (c *client) checkVersion(ctx context.Context, limit time.Duration) error {
	var nodes struct {
		Nodes map[string]struct {
			Version string `json:"version"`
		} `json:"nodes"`
	}
	r := esapi.NodesInfoRequest{
		NodeID: []string{"_local"}, Metric: []string{"http"}, FilterPath: []string{"nodes.*.version"},
	}
	if err := c.do(ctx, limit, r, &nodes); err != nil {
		return err
	}
	for _, n := range nodes.Nodes {
		major, rest, _ := strings.Cut(n.Version, ".")
		text, _, _ := strings.Cut(rest, ".")
		if minor, err := strconv.Atoi(text); major != "8" || err != nil || minor < leastMinor {
			return fmt.Errorf("%w, this is %.20q", ErrVersion, n.Version)
		}
		return nil
	}
	return fmt.Errorf("%w, it names none", ErrVersion)
}

// responseError is an answer that refuses a request. It holds no reason: Elasticsearch quotes
// documents there.
type responseError struct {
	status int
	kind   string
}

func newResponseError(status int, body []byte) *responseError {
	var answer struct {
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	e := &responseError{status: status}
	if json.Unmarshal(body, &answer) == nil {
		e.kind = answer.Error.Type
	}
	return e
}

func (e *responseError) Error() string {
	switch e.status {
	case http.StatusUnauthorized:
		return "elasticsearch refuses the credentials (401)"
	case http.StatusForbidden:
		return "elasticsearch denies the user or key a right that it needs (403)"
	}
	return fmt.Sprintf("elasticsearch answers %d %.100s", e.status, e.kind)
}

// isServerFailure reports whether the server or what is before it could not work.
func (e *responseError) isServerFailure() bool { return e.status >= http.StatusInternalServerError }

// isTransient reports whether a request may succeed when it is sent again.
func isTransient(err error) bool {
	if refused, is := errors.AsType[*responseError](err); is {
		return refused.isServerFailure() || refused.status == http.StatusTooManyRequests
	}
	for _, permanent := range []error{ErrProduct, ErrVersion, errTooBig} {
		if errors.Is(err, permanent) {
			return false
		}
	}
	return err != nil && !isTrustError(err)
}

// isMissing reports whether an index or alias does not exist.
func isMissing(err error) bool {
	refused, is := errors.AsType[*responseError](err)
	return is && refused.status == http.StatusNotFound
}

// isTrustError reports whether the certificate of the server is not trusted: no retry changes that.
func isTrustError(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}

// breakerLimit is how many requests in a row must fail before more are refused, breakerPause for how
// long. Then one request tries the server.
const (
	breakerLimit = 5
	breakerPause = time.Second
)

// breaker refuses requests for a moment after several in a row failed, so that callers of a dead
// server fail fast instead of waiting for their time-outs.
type breaker struct {
	mu       sync.Mutex
	failures int
	// until is when the next request may try the server; trying is true while one does.
	until  time.Time
	trying bool
}

// allow reports whether a request may be sent. The caller must call one of the other methods then.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakerLimit {
		return true
	}
	if b.trying || now.Before(b.until) {
		return false
	}
	b.trying = true
	return true
}

// isOpen reports whether requests are refused.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= breakerLimit
}

func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.trying = 0, false
}

func (b *breaker) failed(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.trying, b.until = b.failures+1, false, now.Add(breakerPause)
}

// abandoned ends a request whose caller gave up: it proves nothing about the server.
func (b *breaker) abandoned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trying = false
}
