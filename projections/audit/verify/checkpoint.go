package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	domain "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/eventstore"
)

// open returns the checkpoint of a signed note, if a key that the log has of its origin signed it.
func (k keys) open(text []byte) (*log.Checkpoint, error) {
	signed, err := note.Open(text, note.VerifierList(k.verifiers...))
	if err != nil {
		return nil, err
	}
	c := &log.Checkpoint{}
	if rest, err := c.Unmarshal([]byte(signed.Text)); err != nil || len(rest) > 0 {
		return nil, fmt.Errorf("it is no checkpoint: %w", err)
	}
	if !slices.ContainsFunc(signed.Sigs, func(s note.Signature) bool { return s.Name == c.Origin }) {
		return nil, fmt.Errorf("no key of %s signed it", c.Origin)
	}
	return c, nil
}

// checkpoint checks a checkpoint of the log.
func (t *tree) checkpoint(
	ctx context.Context, p *pass, e eventstore.DecodedEvent, signed *domain.CheckpointSigned,
) error {
	c, err := t.keys.open([]byte(signed.Note))
	if err != nil {
		p.found(t.about(e, "the checkpoint of %d leaves: %v", signed.Size, err))
		return nil
	}
	size := int64(c.Size)
	switch {
	case c.Origin != t.keys.origin() || size != signed.Size || signed.OrganizationID != t.Organization:
		p.found(t.about(e, "the checkpoint of %d leaves is of another tree or size", signed.Size))
		return nil
	case size < t.report.Covered:
		p.found(t.about(e, "the checkpoint of %d leaves is after one of %d", size, t.report.Covered))
		return nil
	}
	want := tlog.Hash(c.Hash)
	got, ok, err := t.rootAt(ctx, p, size)
	if err != nil {
		return err
	}
	if !ok || got != want {
		p.found(t.about(e, "the checkpoint of %d leaves has another root than the tree", size))
	}
	t.judge(p, size, want, ok && got == want)
	t.report.Checkpoints, t.report.Covered, t.report.CoveredAt = t.report.Checkpoints+1, size, e.Details.At
	t.newest = c
	return nil
}

// judge finds out by the first checkpoint after the first difference whether the log or the tree was changed.
func (t *tree) judge(p *pass, size int64, want tlog.Hash, isTree bool) {
	if t.log == nil || t.judged || size <= t.differs {
		return
	}
	t.judged = true
	inLog, ok := t.log.root(size)
	verdict := "a checkpoint fits neither"
	switch {
	case isTree:
		verdict = "the tree is as the checkpoint has it, and the log was changed"
	case ok && inLog == want:
		verdict = "the log is as the checkpoint has it, and the rows of the tree were changed"
	}
	if f := p.finding; f != nil && f.Organization == t.Organization && f.Index <= size {
		f.Detail += ": " + verdict
	}
}

// keptCheckpoint is a checkpoint that the caller kept.
type keptCheckpoint struct {
	text         []byte
	origin       string
	organization uuid.UUID
	size         int64
	want         tlog.Hash
	root         tlog.Hash // of as many leaves of the tree
}

// parseKept reads a checkpoint without its signatures.
func parseKept(text []byte) (*keptCheckpoint, error) {
	body, _, signed := strings.Cut(string(text), "\n\n")
	c := &log.Checkpoint{}
	if _, err := c.Unmarshal([]byte(body + "\n")); err != nil || !signed || len(c.Hash) != tlog.HashSize {
		return nil, fmt.Errorf("it is no signed checkpoint: %w", err)
	}
	parts := strings.Split(c.Origin, "/")
	if len(parts) != 4 {
		return nil, fmt.Errorf("it is of %q, which is no log of Annals", c.Origin)
	}
	organization, err := uuid.Parse(parts[2])
	if err != nil {
		return nil, fmt.Errorf("it is of %q, which is no log of Annals", c.Origin)
	}
	return &keptCheckpoint{
		text: text, origin: c.Origin, organization: organization, size: int64(c.Size), want: tlog.Hash(c.Hash),
	}, nil
}

// compareKept compares the checkpoint of the caller with the tree.
func (p *pass) compareKept(k *keptCheckpoint) {
	at := Finding{Organization: k.organization, Index: k.size, Position: p.head}
	t := p.trees[k.organization]
	if t == nil || !slices.Contains(t.keys.origins, k.origin) {
		at.What, at.Detail = Fork, "the log has no key of "+k.origin
		p.found(at)
		return
	}
	if _, err := t.keys.open(k.text); err != nil {
		at.What, at.Detail = Checkpoint, fmt.Sprintf("the checkpoint that was given: %v", err)
		p.found(at)
		return
	}
	isFormer := k.origin != t.keys.origin()
	switch {
	case isFormer && k.size > t.keys.begins:
		at.What, at.Index = Restored, t.keys.begins
		at.Detail = fmt.Sprintf("restored at %s, %d leaves lost", t.keys.began.Details.At.Format("2006-01-02 15:04:05 MST"),
			k.size-t.keys.begins)
	case k.size > t.Size:
		at.What, at.Index = Cut, t.Size
		at.Detail = fmt.Sprintf("the log ends before the checkpoint: it has %d leaves, and the checkpoint %d", t.Size, k.size)
	case k.size > 0 && k.root != k.want:
		at.What, at.Detail = Fork, fmt.Sprintf("the first %d leaves of the log are not those of the checkpoint", k.size)
	default:
		return
	}
	p.found(at)
}
