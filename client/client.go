package annals

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
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

const (
	api = "/api/v1"
	// maxResponse is the most bytes of a response that are held in memory.
	maxResponse = 128 << 20
	// maxStream is the most bytes of a response that is passed on as it arrives.
	maxStream = 4 << 30
)

// call is one request to the service.
type call struct {
	method string
	// path is escaped; "" is the error of an id that is missing.
	path   string
	query  url.Values
	repeat repeat
	// in is encoded as the JSON body, unless body is set. nil is no body.
	in          any
	body        []byte
	contentType string
	// begin is called before each attempt, if it is set.
	begin func() error
	// read reads the body of a success. nil ignores it.
	read func(io.Reader) error
	// anonymous sends no key.
	anonymous bool
}

// path makes a path below /api/v1 from parts that are not escaped yet.
func path(parts ...string) string {
	text := api
	for _, part := range parts {
		if part == "" {
			return ""
		}
		text += "/" + url.PathEscape(part)
	}
	return text
}

// reply is what is known of the last answer besides its body.
type reply struct {
	header http.Header
	// presumed is true for a deletion that counts as done although its answer was lost.
	presumed bool
}

// send makes a call and decodes the answer.
func send[T any](ctx context.Context, c *Client, what call) (*T, error) {
	out := new(T)
	what.read = decodeInto(out)
	if _, err := c.do(ctx, what); err != nil {
		return nil, err
	}
	return out, nil
}

// get is send for a read.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	return send[T](ctx, c, call{method: http.MethodGet, path: path, query: query, repeat: safe})
}

// discard makes a call whose answer has no body.
func (c *Client) discard(ctx context.Context, what call) error {
	_, err := c.do(ctx, what)
	return err
}

func decodeInto(out any) func(io.Reader) error {
	return func(body io.Reader) error {
		text, err := io.ReadAll(&bounded{body, maxResponse})
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, out); err != nil {
			return final{fmt.Errorf("read the answer of the server: %w", err)}
		}
		return nil
	}
}

// do makes a call, and repeats it as its kind allows. It returns the last answer also with an error.
func (c *Client) do(ctx context.Context, what call) (last reply, err error) {
	if what.path == "" {
		return last, errors.New("the id of the call is empty")
	}
	if what.in != nil {
		if what.body, err = encode(what.in); err != nil {
			return last, err
		}
		what.contentType = "application/json"
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	tries := attempts{client: c, repeat: what.repeat}
	for {
		if what.begin != nil {
			if err := what.begin(); err != nil {
				return last, err
			}
		}
		if last.header, err = c.attempt(ctx, what); err == nil {
			return last, nil
		}
		var refused *refusal
		if tries.lost && what.repeat == deletion && errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			last.presumed = true
			return last, nil
		}
		if err = tries.next(ctx, err); err != nil {
			return last, public(err)
		}
	}
}

// public removes what only the repeats need from an error.
func public(err error) error {
	var last final
	if errors.As(err, &last) {
		return last.error
	}
	if refused, ok := err.(*refusal); ok { //nolint:errorlint // an error that wraps one is public already
		return refused.APIError
	}
	return err
}

// attempt sends a call once.
func (c *Client) attempt(ctx context.Context, what call) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.attemptTimeout)
	defer cancel()
	req, err := c.request(ctx, what)
	if err != nil {
		return nil, final{err}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.connectionError(err)
	}
	defer func() { _ = res.Body.Close() }() // what was needed of it was read
	if res.StatusCode/100 != 2 {
		body, err := io.ReadAll(&bounded{res.Body, maxResponse})
		if err != nil {
			return res.Header, c.broken(err)
		}
		_, named := retryAfter(res.Header)
		return res.Header, &refusal{apiError(res, body), named}
	}
	if what.read == nil {
		return res.Header, nil
	}
	if err := what.read(res.Body); err != nil {
		return res.Header, c.broken(err)
	}
	return res.Header, nil
}

// broken returns the error of an answer that could not be read.
func (c *Client) broken(err error) error {
	var last final
	if errors.As(err, &last) {
		return err
	}
	return c.connectionError(fmt.Errorf("read answer: %w", err))
}

func (c *Client) request(ctx context.Context, what call) (*http.Request, error) {
	target := c.base + what.path
	if len(what.query) > 0 {
		target += "?" + what.query.Encode()
	}
	var body io.Reader
	if what.body != nil {
		body = bytes.NewReader(what.body)
	}
	req, err := http.NewRequestWithContext(ctx, what.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", c.connectionError(err).Err)
	}
	req.Header.Set("User-Agent", c.userAgent)
	if what.contentType != "" {
		req.Header.Set("Content-Type", what.contentType)
	}
	if c.key != "" && !what.anonymous {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.project != "" && !what.anonymous {
		req.Header.Set("X-Service-Project", c.project)
	}
	return req, nil
}

// encode returns JSON in which < and & stay one byte, since a batch is cut by the bytes that were read.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// bounded fails, instead of ending, at the first byte too many.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(into []byte) (int, error) {
	if b.left < 0 {
		return 0, final{errors.New("the answer of the server is larger than any that it gives")}
	}
	n, err := b.from.Read(into[:min(int64(len(into)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, final{errors.New("the answer of the server is larger than any that it gives")}
	}
	return n, err
}

// params are the parameters of a query. What is zero is omitted.
type params url.Values

func (p params) text(name string, values ...string) {
	for _, value := range values {
		if value != "" {
			url.Values(p).Add(name, value)
		}
	}
}

func (p params) number(name string, values ...int) {
	for _, value := range values {
		if value != 0 {
			url.Values(p).Add(name, strconv.Itoa(value))
		}
	}
}

// pages yields the elements of page after page. read returns a page, with the cursor of the next one, nil for none.
func pages[T any](cursor string, read func(after string) ([]T, *string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := cursor; ; {
			page, next, err := read(after)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, element := range page {
				if !yield(element, nil) {
					return
				}
			}
			if next == nil || *next == "" || *next == after { // a cursor that repeats would never end
				return
			}
			after = *next
		}
	}
}

// following returns the cursor of the next page, nil if there is none.
func following(hasMore bool, cursor *string) *string {
	if !hasMore {
		return nil
	}
	return cursor
}
