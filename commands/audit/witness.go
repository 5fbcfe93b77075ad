package audit

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/transparency-dev/formats/witness"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/panics"
)

// Witness cosigns checkpoints: C2SP tlog-witness.
type Witness struct {
	URL string // with its path /add-checkpoint
	Key note.Verifier
}

// ReadPolicy reads the witnesses of the quorum of a C2SP tlog-policy file.
func ReadPolicy(path string) (list []Witness, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ANNALS_AUDIT_POLICY: %w", err)
	}
	policy, err := witness.ParsePolicy(text)
	if err != nil {
		return nil, fmt.Errorf("ANNALS_AUDIT_POLICY: %w", err)
	}
	for at, key := range policy.Endpoints() {
		list = append(list, Witness{URL: at, Key: key})
	}
	return list, nil
}

// name identifies a witness, with the hash of its key, as a signature has both.
func (w Witness) name() string { return fmt.Sprintf("witness %s+%08x", w.Key.Name(), w.Key.KeyHash()) }

// Witnesses has the checkpoint of each tree cosigned. A witness that is away holds up nothing.
type Witnesses struct {
	Copier
	Journal eventstore.Journal
	List    []Witness
	Client  *http.Client
}

// NewWitnesses makes Witnesses.
func NewWitnesses(c *Copier, journal eventstore.Journal, list []Witness) *Witnesses {
	return &Witnesses{
		Copier: Copier{Trees: c.Trees, Kept: c.Kept, Holder: c.Holder, Logger: c.Logger, Now: c.Now}, Journal: journal,
		List: list, Client: newClient(),
	}
}

// Since returns, by the name of a witness, since when a checkpoint waits for it; zero for none.
func (w *Witnesses) Since() map[string]time.Time {
	waiting, since := w.Waiting(), map[string]time.Time{}
	for _, one := range w.List {
		since[one.Key.Name()] = waiting[one.name()]
	}
	return since
}

// Pass asks each witness for what it has not cosigned.
func (w *Witnesses) Pass(ctx context.Context) error {
	names := make([]string, len(w.List))
	for i, one := range w.List {
		names[i] = one.name()
	}
	err := w.pages(ctx, "witnesses", func(page []Tree, organizations []uuid.UUID) error {
		known := make([]map[uuid.UUID]checkpoints.Copy, len(w.List))
		for i, name := range names {
			var err error
			if known[i], err = w.Kept.Copies(ctx, name, organizations); err != nil {
				return err
			}
		}
		changed, errs := make([][]checkpoints.Copy, len(w.List)), make([]error, len(page))
		var mu sync.Mutex
		failed := panics.Each(ctx, w.Logger, width, len(page), func(ctx context.Context, i int) error {
			copies, err := w.cosign(ctx, page[i], known)
			mu.Lock()
			defer mu.Unlock()
			errs[i] = err
			for at, c := range copies {
				changed[at] = append(changed[at], c)
			}
			return nil
		})
		errs = append(errs, failed)
		for i, name := range names {
			if len(changed[i]) > 0 {
				errs = append(errs, w.Kept.KeepCopies(ctx, name, changed[i]))
			}
		}
		return errors.Join(errs...)
	})
	return errors.Join(err, w.lags(ctx, names...))
}

// cosign asks the witnesses that do not have the checkpoint of a tree, all at once, and appends what they signed. It
// returns what they have then, by their place in the list.
func (w *Witnesses) cosign(
	ctx context.Context, t Tree, known []map[uuid.UUID]checkpoints.Copy,
) (map[int]checkpoints.Copy, error) {
	type cosigned struct {
		at   int
		copy checkpoints.Copy
		line string
		err  error
	}
	results, asked := make(chan cosigned, len(w.List)), 0
	for i, one := range w.List {
		c := copyOf(known[i], t)
		if c.Size >= t.CheckpointSize {
			continue
		}
		if c.Since.IsZero() {
			c.Since = w.Now()
		}
		asked++
		panics.Go(ctx, w.Logger, "call of a witness panicked", func() {
			r := cosigned{at: i, copy: c, err: errors.New("the call panicked")}
			defer func() { results <- r }()
			r.line, r.err = w.ask(ctx, one, t, &r.copy)
		})
	}
	copies, lines, errs := map[int]checkpoints.Copy{}, "", []error(nil)
	for range asked {
		r := <-results
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s of %s: %w", w.List[r.at].name(), r.copy.Origin, r.err))
		} else if r.line != "" {
			lines += r.line
		}
		if r.copy != known[r.at][t.Organization] {
			copies[r.at] = r.copy
		}
	}
	if lines != "" {
		if err := w.append(ctx, t, lines); err != nil {
			// Nothing is known to be stored, so they are asked again: a witness signs the same checkpoint twice.
			return nil, errors.Join(append(errs, err)...)
		}
	}
	return copies, errors.Join(errs...)
}

// append appends cosignatures. They hold whatever else the stream got meanwhile.
func (w *Witnesses) append(ctx context.Context, t Tree, lines string) error {
	name := stream.Name(stream.Audit, t.Organization)
	e := audit.CheckpointCosigned{
		OrganizationID: t.Organization, Size: t.CheckpointSize, Note: t.Checkpoint, Signatures: lines,
	}
	for tries := (backoff.Tries{}); ; {
		last, _, err := w.Journal.Last(ctx, name)
		if err != nil {
			return err
		}
		_, err = w.Journal.Append(ctx, name, last.Revision, event.NewMeta(principal, w.Now()), e)
		if !errors.Is(err, eventstore.ErrConflict) {
			return err
		}
		if err := tries.Again(ctx, err); err != nil {
			return err
		}
	}
}

// ask has a witness cosign the checkpoint of a tree and returns the line of its signature. "" is a witness that is left
// alone for a while, since it failed. It changes c to what the witness has.
func (w *Witnesses) ask(ctx context.Context, one Witness, t Tree, c *checkpoints.Copy) (line string, err error) {
	here := one.name() + " " + c.Origin
	if w.isPaused(one.name()) || w.isPaused(here) {
		return "", nil
	}
	for range 2 { // once more with the size that the witness has
		status, body, err := w.call(ctx, one, t, c.Size)
		switch {
		case err != nil, status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
			if err == nil {
				err = fmt.Errorf("it answered %d", status)
			}
			w.failed(one.name(), err)
			return "", err
		case status == http.StatusOK:
			line, err := one.line(t.Checkpoint, body)
			w.failed(one.name(), nil)
			if w.failed(here, err); err != nil {
				return "", err
			}
			c.Size, c.Since = t.CheckpointSize, time.Time{}
			return line, nil
		case status == http.StatusConflict:
			size, err := strconv.ParseInt(strings.TrimSpace(string(body)), 10, 64)
			if err != nil || size < 0 || size > t.CheckpointSize {
				err = fmt.Errorf("it has a checkpoint of %.20q leaves, and this one has %d", body, t.CheckpointSize)
				w.failed(here, err)
				return "", err
			}
			c.Size = size
		default:
			err := fmt.Errorf("it answered %d: %.200q", status, body)
			w.failed(here, err)
			return "", err
		}
	}
	err = errors.New("it has another size each time")
	w.failed(here, err)
	return "", err
}

// call posts a checkpoint with the proof that it contains one of another size.
func (w *Witnesses) call(ctx context.Context, one Witness, t Tree, former int64) (status int, body []byte, err error) {
	post := fmt.Appendf(nil, "old %d\n", former)
	if former > 0 && former < t.CheckpointSize {
		proof, err := tlog.ProveTree(t.CheckpointSize, former, w.Trees.Reader(ctx, t.Organization))
		if err != nil {
			return 0, nil, err
		}
		for _, hash := range proof {
			post = append(base64.StdEncoding.AppendEncode(post, hash[:]), '\n')
		}
	}
	post = append(append(post, '\n'), t.Checkpoint...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, one.URL, bytes.NewReader(post))
	if err != nil {
		return 0, nil, err
	}
	return answer(w.Client, req)
}

// line returns the line of the signature of a witness on a checkpoint, which it verifies.
func (w Witness) line(checkpoint string, answer []byte) (string, error) {
	text, _, _ := strings.Cut(checkpoint, "\n\n")
	n, err := note.Open(append([]byte(text+"\n\n"), answer...), note.VerifierList(w.Key))
	if err != nil || len(n.Sigs) != 1 {
		return "", errors.Join(errors.New("it answered no signature of its key"), err)
	}
	return "— " + n.Sigs[0].Name + " " + n.Sigs[0].Base64 + "\n", nil
}
