package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/fsx"
	"github.com/annals-project/annals/internal/panics"
)

const (
	// tileHeight is that of C2SP tlog-tiles: 256 hashes.
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	// anchorLeaves is after how many leaves the copy of a tree remembers how far it is.
	anchorLeaves = 16 * tileWidth
	// anchorLimit bounds the copy of one tree. After anchorTurn it leaves the rest to the next pass, so that a large tree
	// holds up no other. anchorFailures are the failures after which a pass ends.
	anchorLimit    = time.Minute
	anchorTurn     = 10 * time.Second
	anchorFailures = 4
)

// Place takes files of the anchor.
type Place interface {
	// Put stores a file, replacing what has its path. full reports a tile that is full: partial ones of it may go.
	Put(ctx context.Context, path string, data []byte, full bool) error
	// String names the place, without secrets.
	String() string
}

// Anchor copies the files of each tree to a place outside, in the layout of C2SP tlog-tiles below its origin, the
// checkpoint last.
type Anchor struct {
	Copier
	To Place
}

// NewAnchor makes an Anchor with what a copier has.
func NewAnchor(c *Copier, to Place) *Anchor {
	return &Anchor{
		Copier: Copier{Trees: c.Trees, Kept: c.Kept, Holder: c.Holder, Logger: c.Logger, Now: c.Now}, To: to,
	}
}

// place is the name of the anchor's rows: another place is filled from the beginning.
func (a *Anchor) place() string { return "anchor " + a.To.String() }

// Since returns since when a checkpoint waits to be copied, as of the last pass, zero if none does.
func (a *Anchor) Since() time.Time { return a.Waiting()[a.place()] }

// Pass copies what is new.
func (a *Anchor) Pass(ctx context.Context) error {
	if a.isPaused(a.place()) {
		return a.lags(ctx, a.place())
	}
	failures := 0
	err := a.pages(ctx, "anchor", func(page []Tree, organizations []uuid.UUID) error {
		known, err := a.Kept.Copies(ctx, a.place(), organizations)
		if err != nil {
			return err
		}
		var changed []checkpoints.Copy
		var errs []error
		for _, t := range page {
			c := copyOf(known, t)
			if c.Note == t.Checkpoint || a.isPaused(c.Origin) {
				continue
			}
			if c.Since.IsZero() {
				c.Since = a.Now()
			}
			if failures < anchorFailures {
				err := a.copy(ctx, t, &c)
				a.failed(c.Origin, err)
				if err != nil {
					failures++
					errs = append(errs, fmt.Errorf("copy %s to the anchor: %w", c.Origin, err))
				}
			}
			changed = append(changed, c)
		}
		if len(changed) > 0 {
			errs = append(errs, a.Kept.KeepCopies(ctx, a.place(), changed))
		}
		return errors.Join(errs...)
	})
	if failures >= anchorFailures {
		a.failed(a.place(), err)
	} else {
		a.failed(a.place(), nil)
	}
	return errors.Join(err, a.lags(ctx, a.place()))
}

// copy copies what is new of a tree, the checkpoint once all that it covers is there. It changes c to what is copied.
func (a *Anchor) copy(ctx context.Context, t Tree, c *checkpoints.Copy) error {
	ctx, cancel := context.WithTimeout(ctx, anchorLimit)
	defer cancel()
	size, began := t.CheckpointSize, time.Now()
	for c.Tiles < size {
		if time.Since(began) > anchorTurn {
			return nil
		}
		to := min(size, c.Tiles-c.Tiles%anchorLeaves+anchorLeaves)
		for _, tile := range tlog.NewTiles(tileHeight, c.Tiles, to) {
			if err := a.put(ctx, t.Organization, c.Origin, tile); err != nil {
				return err
			}
			if tile.L == 0 {
				tile.L = -1 // the entries
				if err := a.put(ctx, t.Organization, c.Origin, tile); err != nil {
					return err
				}
			}
		}
		c.Tiles = to
	}
	if err := a.To.Put(ctx, c.Origin+"/checkpoint", []byte(t.Checkpoint), false); err != nil {
		return err
	}
	c.Size, c.Note, c.Since = size, t.Checkpoint, time.Time{}
	return nil
}

func (a *Anchor) put(ctx context.Context, organization uuid.UUID, origin string, tile tlog.Tile) error {
	data, ok, err := a.Trees.Tile(ctx, organization, tile.L, tile.N, tile.W)
	if err == nil && !ok {
		err = errors.New("the tree does not have it")
	}
	if err == nil {
		err = a.To.Put(ctx, origin+"/"+tilePath(tile), data, tile.W == tileWidth)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", tilePath(tile), err)
	}
	return nil
}

// tilePath is the path of a tile in C2SP tlog-tiles, which has no height, and entries in place of data.
func tilePath(tile tlog.Tile) string {
	path := strings.TrimPrefix(tile.Path(), fmt.Sprintf("tile/%d/", tileHeight))
	if rest, is := strings.CutPrefix(path, "data/"); is {
		path = "entries/" + rest
	}
	return "tile/" + path
}

// pageTrees is how many trees are read at a time.
const pageTrees = 256

// Run calls a pass every so often until the context ends. A pass that fails is called again.
func Run(
	ctx context.Context, logger *slog.Logger, task string, every time.Duration, pass func(context.Context) error,
) error {
	for backoff.Pause(ctx, every, nil) == nil {
		err := panics.Call(ctx, logger, "task of the audit log panicked", func() error { return pass(ctx) }, "task", task)
		if err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "task of the audit log failed, will retry", "task", task, "err", err)
		}
	}
	return nil
}

// Copier brings the checkpoint of each tree to places outside.
type Copier struct {
	Trees  Trees
	Kept   checkpoints.Store
	Holder uuid.UUID
	Logger *slog.Logger
	Now    func() time.Time

	mu      sync.Mutex
	waiting map[string]time.Time
	pauses  map[string]*pause
}

// pause is how long a place is left alone after a failure.
type pause struct {
	of    backoff.Backoff
	until time.Time
}

// Waiting returns, by place, since when a checkpoint waits to be there, as of the last pass.
func (c *Copier) Waiting() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.waiting)
}

// lags reads since when the places wait. A process whose turn it is not reads it too.
func (c *Copier) lags(ctx context.Context, places ...string) error {
	waiting, err := c.Kept.Waiting(ctx, places)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = waiting
	return nil
}

// isPaused reports whether something is left alone after a failure.
func (c *Copier) isPaused(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, is := c.pauses[what]
	return is && c.Now().Before(p.until)
}

// failed leaves something alone for a while, longer after each failure; without an error it ends that.
func (c *Copier) failed(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.pauses, what)
		return
	}
	p, is := c.pauses[what]
	if !is {
		if c.pauses == nil {
			c.pauses = map[string]*pause{}
		}
		p = &pause{of: backoff.Backoff{First: 5 * time.Second, Longest: 5 * time.Minute}}
		c.pauses[what] = p
	}
	p.until = c.Now().Add(p.of.Next())
}

// pages calls do with all trees that have a checkpoint, a page at a time, while this process has the turn of a task.
func (c *Copier) pages(ctx context.Context, task string, do func([]Tree, []uuid.UUID) error) error {
	mine := checkpoints.Turn{Task: task, Holder: c.Holder, Last: turn}
	var after *uuid.UUID
	var errs []error
	for {
		if is, err := c.Kept.Take(ctx, mine); err != nil || !is {
			return errors.Join(append(errs, err)...)
		}
		page, err := c.Trees.Trees(ctx, after, pageTrees)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list the audit trees: %w", err))...)
		}
		var signed []Tree
		var organizations []uuid.UUID
		for _, t := range page {
			if t.Checkpoint != "" {
				signed, organizations = append(signed, t), append(organizations, t.Organization)
			}
		}
		if len(signed) > 0 {
			errs = append(errs, do(signed, organizations))
		}
		if len(page) < pageTrees {
			return errors.Join(append(errs, c.Kept.Pass(ctx, mine))...)
		}
		after = &page[len(page)-1].Organization
	}
}

// copyOf returns how far a place has a tree: not at all if it has another origin.
func copyOf(known map[uuid.UUID]checkpoints.Copy, t Tree) checkpoints.Copy {
	origin, _, _ := strings.Cut(t.Checkpoint, "\n")
	c := known[t.Organization]
	if c.Origin != origin {
		return checkpoints.Copy{Organization: t.Organization, Origin: origin, Since: c.Since}
	}
	return c
}

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
