package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/annals-project/annals/internal/fsx"
)

const (
	// callLimit bounds one call to the anchor or to a witness, maxAnswer what is read of the answer.
	callLimit = 10 * time.Second
	maxAnswer = 64 << 10
)

// newClient makes a client for the places that an operator sets. It follows no redirects: they are elsewhere.
func newClient() *http.Client {
	return &http.Client{
		Timeout:       callLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// OpenPlace returns the anchor of a setting: a folder, or an https:// URL below which files are stored by PUT.
// tokenFile has the bearer token for that, "" for none.
func OpenPlace(setting, tokenFile string) (Place, error) {
	if !strings.Contains(setting, "://") {
		return folder(setting), nil
	}
	at, err := url.Parse(setting)
	if err != nil {
		return nil, errors.New("ANNALS_AUDIT_ANCHOR is no URL") // the error would show it
	}
	if at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return nil, errors.New("ANNALS_AUDIT_ANCHOR must be a folder, or an https:// URL with no user, query or fragment")
	}
	p := &web{at: at, client: newClient()}
	if tokenFile != "" {
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("ANNALS_AUDIT_ANCHOR_TOKEN_FILE: %w", err)
		}
		p.token = strings.TrimSpace(string(token))
	}
	return p, nil
}

// folder is a folder of files.
type folder string

func (f folder) String() string { return string(f) }

// Put implements Place. It makes no folder that is missing as a whole, as that of a disk which is not there. A full
// tile takes the place of its partial ones, of which there would be a file for each size.
func (f folder) Put(_ context.Context, path string, data []byte, full bool) error {
	if _, err := os.Stat(string(f)); err != nil {
		return err
	}
	path = filepath.Join(string(f), filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := fsx.WriteFile(path, data); err != nil {
		return err
	}
	if full {
		return os.RemoveAll(path + ".p")
	}
	return nil
}

// web is a server that takes files by PUT.
type web struct {
	at     *url.URL
	token  string
	client *http.Client
}

func (w *web) String() string { return w.at.String() }

// Put implements Place.
func (w *web) Put(ctx context.Context, path string, data []byte, _ bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, w.at.JoinPath(path).String(), bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	status, _, err := answer(w.client, req)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("it answered %d", status)
	}
	return err
}

// answer makes a call and reads the bounded answer.
func answer(client *http.Client, req *http.Request) (status int, body []byte, err error) {
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, body, errors.Join(err, res.Body.Close())
}
