package annals

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// DefaultTimeout bounds a call with all of its attempts.
	DefaultTimeout = 2 * time.Minute
	// DefaultAttemptTimeout bounds one attempt, its body included.
	DefaultAttemptTimeout = time.Minute
)

// Client calls one service with one key. It is safe for concurrent use.
type Client struct {
	base    string
	key     string
	project string
	http    *http.Client

	userAgent      string
	timeout        time.Duration
	attemptTimeout time.Duration
	connectWait    time.Duration // negative for the whole timeout
	maxAttempts    int           // 0 for any number
	withoutKeys    bool
}

// Option changes how a client calls. See [New].
type Option func(*Client)

// WithTransport sets what carries the requests. The default is a transport of the client's own, with the settings of
// [http.DefaultTransport] and 64 idle connections.
func WithTransport(t http.RoundTripper) Option {
	return func(c *Client) { c.http.Transport = t }
}

// WithTimeout bounds the total time of a call, with its repeats and the pauses between them. The context of the call
// bounds it too. 0 is [DefaultTimeout].
func WithTimeout(d time.Duration) Option {
	return func(c *Client) { c.timeout = cmp.Or(max(d, 0), DefaultTimeout) }
}

// WithAttemptTimeout bounds the time of one attempt, its body included. 0 is [DefaultAttemptTimeout].
func WithAttemptTimeout(d time.Duration) Option {
	return func(c *Client) { c.attemptTimeout = cmp.Or(max(d, 0), DefaultAttemptTimeout) }
}

// WithConnectWait bounds how long a call waits for a service that refuses connections. With 0 the call fails at once.
// The default is the whole time of the call.
func WithConnectWait(d time.Duration) Option {
	return func(c *Client) { c.connectWait = max(d, 0) }
}

// WithMaxAttempts bounds how often a call is sent; 1 repeats none. 0 is no bound but the time of the call.
func WithMaxAttempts(n int) Option {
	return func(c *Client) { c.maxAttempts = n }
}

// WithUserAgent sets the User-Agent header, which the request log shows. The default is "annals-go".
func WithUserAgent(name string) Option {
	return func(c *Client) { c.userAgent = name }
}

// WithoutIdempotencyKeys makes no idempotency keys, which cost the service a second write for each single ingest. An
// ingest without a key is repeated after a 503 only: a text that is sent twice may replace a newer one with its id.
func WithoutIdempotencyKeys() Option {
	return func(c *Client) { c.withoutKeys = true }
}

// New returns a client of the service at an address such as https://memory.example.com, without /api/v1. The key is a
// project key, a management key, or the access token of an agent. It may be "" for calls that need none.
func New(baseURL, key string, options ...Option) (*Client, error) {
	base, err := parseBase(baseURL)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the key has a space, or another character that no key has")
	}
	transport := http.DefaultTransport
	if t, ok := transport.(*http.Transport); ok {
		t = t.Clone()
		t.MaxIdleConnsPerHost = 64
		transport = t
	}
	c := &Client{
		base: base, key: key, userAgent: "annals-go",
		http:    &http.Client{Transport: transport, CheckRedirect: refuseRedirect},
		timeout: DefaultTimeout, attemptTimeout: DefaultAttemptTimeout, connectWait: -1,
	}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

func parseBase(baseURL string) (string, error) {
	const want = "want one such as http://127.0.0.1:8080"
	if strings.HasPrefix(baseURL, "svc_") { // an error must not show a key in the wrong place
		return "", errors.New("the address of the server is a key: " + want)
	}
	u, err := url.Parse(baseURL)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return "", fmt.Errorf("%q is no address of a server: %s", baseURL, want)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q has more than the address of a server: %s", u.Redacted(), want)
	}
	return strings.TrimRight(baseURL, "/"), nil
}

// refuseRedirect makes a redirect an error, so that no other host gets the key.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// InProject returns a client with the same connections whose calls name a project by its slug. An agent token for
// several projects needs it, and so does a management key for calls about identities.
func (c *Client) InProject(slug string) *Client {
	in := *c
	in.project = slug
	return &in
}

// BaseURL returns the address of the service, without a slash at its end.
func (c *Client) BaseURL() string { return c.base }

// String returns the address of the service. It does not return the key.
func (c *Client) String() string { return "annals.Client(" + c.base + ")" }

// GoString is String, so that no format prints the key.
func (c *Client) GoString() string { return c.String() }
