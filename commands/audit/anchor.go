package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/internal/checkpoints"
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
