package audit_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/commands/audit"
	auditlog "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/checkpoints"
	"github.com/annals-project/annals/internal/ops"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	noon  = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	logID = uuid.New()
)

// scene is a log with its trees, and a database.
type scene struct {
	*testing.T
	log   *eventstoretest.Memory
	trees *trees
	kept  checkpoints.Store
	mu    sync.Mutex
	clock time.Time
}

func newScene(t *testing.T) *scene {
	t.Helper()
	db := pgtest.Database(t)
	runtest.Must(t, ops.Migrate(t.Context(), db, uuid.Nil))
	sealer, err := secret.NewSealer(bytes.Repeat([]byte{1}, secret.SealKeyBytes))
	runtest.Must(t, err)
	log := eventstoretest.NewMemory()
	return &scene{
		T: t, log: log, kept: checkpoints.Store{DB: db, Sealer: sealer}, clock: noon,
		trees: &trees{T: t, store: log, codec: eventstoretest.Codec(t)},
	}
}

func (s *scene) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *scene) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

func (s *scene) journal() eventstore.Journal {
	return eventstore.Journal{Store: s.log, Codec: s.trees.codec}
}

func (s *scene) signer() *audit.Signer {
	return &audit.Signer{
		Journal: s.journal(), Trees: s.trees, Kept: s.kept, Holder: uuid.New(), Logger: runtest.Logger(s), Now: s.now,
		LogID: func(context.Context) (uuid.UUID, error) { return logID, nil },
	}
}

func (s *scene) copier() audit.Copier {
	return audit.Copier{Trees: s.trees, Kept: s.kept, Holder: uuid.New(), Logger: runtest.Logger(s), Now: s.now}
}

// happens appends events of an organization to the log.
func (s *scene) happens(organization uuid.UUID, count int) {
	s.Helper()
	name := stream.Name(stream.Records, organization)
	last, _, err := s.journal().Last(s.Context(), name)
	runtest.Must(s, err)
	events := make([]event.Event, count)
	for i := range events {
		events[i] = auditlog.RecordsKept{OrganizationID: organization, Stream: name}
	}
	_, err = s.journal().Append(s.Context(), name, last.Revision, event.NewMeta("test", s.now()), events...)
	runtest.Must(s, err)
}

// signed signs until nothing is due, and returns the tree of an organization.
func (s *scene) signed(by *audit.Signer, organization uuid.UUID) audit.Tree {
	s.Helper()
	for range 4 {
		runtest.Must(s, by.Pass(s.Context()))
	}
	return s.tree(organization)
}

func (s *scene) tree(organization uuid.UUID) audit.Tree {
	s.Helper()
	t, ok, err := s.trees.Tree(s.Context(), organization)
	if err != nil || !ok {
		s.Fatalf("no tree of %s: %v", organization, err)
	}
	return t
}

// signers returns which of the verifiers of a tree signed its checkpoint, once the checkpoint is that of its size.
func (s *scene) signers(t audit.Tree) (by []int) {
	s.Helper()
	for i, verifier := range t.Verifiers {
		v, err := note.NewVerifier(verifier)
		runtest.Must(s, err)
		n, err := note.Open([]byte(t.Checkpoint), note.VerifierList(v))
		if err != nil {
			continue
		}
		by = append(by, i)
		c, err := tlog.ParseTree([]byte("go.sum database tree\n" + strings.SplitN(n.Text, "\n", 2)[1]))
		runtest.Must(s, err)
		root, err := tlog.TreeHash(c.N, s.trees.Reader(s.Context(), t.Organization))
		if err != nil || root != c.Hash || c.N != t.CheckpointSize || !strings.HasPrefix(n.Text, t.Origin+"\n") {
			s.Errorf("the checkpoint is %q: root %s, %v", n.Text, root, err)
		}
	}
	return by
}

// count counts the events of a type in the stream of checkpoints of an organization.
func (s *scene) count(organization uuid.UUID, typ string) (n int) {
	s.Helper()
	for _, e := range eventstoretest.All(s, s.log, 0) {
		if e.Stream == stream.Name(stream.Audit, organization) && e.Type == typ {
			n++
		}
	}
	return n
}

const (
	added    = "audit.key-added.v1"
	signedV1 = "audit.checkpoint-signed.v1"
	cosigned = "audit.checkpoint-cosigned.v1"
)

// trees are those of a log, read again at each call.
type trees struct {
	*testing.T
	store *eventstoretest.Memory
	codec *eventstore.Codec

	mu sync.Mutex
	// cut are the leaves that a tree lacks, changed those that are others than in the log, and asOf the last event that
	// all trees contain, 0 for all.
	cut, changed map[uuid.UUID]int64
	asOf         eventstore.Position
}

type folded struct {
	audit.Tree
	happened int64
	records  []auditlog.Record
	hashes   []tlog.Hash
}

func (f *folded) add(r auditlog.Record) {
	hashes, err := tlog.StoredHashes(f.Size, r[:], f)
	if err != nil {
		panic(err)
	}
	f.hashes, f.records = append(f.hashes, hashes...), append(f.records, r)
	f.Size++
}

// ReadHashes implements tlog.HashReader.
func (f *folded) ReadHashes(indexes []int64) (list []tlog.Hash, err error) {
	for _, i := range indexes {
		if i >= int64(len(f.hashes)) {
			return nil, errors.New("the tree is smaller")
		}
		list = append(list, f.hashes[i])
	}
	return list, nil
}

func (s *trees) fold() map[uuid.UUID]*folded {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[uuid.UUID]*folded{}
	for _, e := range eventstoretest.All(s, s.store, 0) {
		if s.asOf > 0 && e.Position > s.asOf {
			break
		}
		category, id, _ := strings.Cut(e.Stream, "-")
		organization := uuid.MustParse(id)
		t, is := all[organization]
		if !is {
			t = &folded{Tree: audit.Tree{Organization: organization}}
			all[organization] = t
		}
		if cut, is := s.cut[organization]; is && t.Size >= cut {
			t.Position = e.Position
			continue
		}
		kept, err := e.Kept(organization)
		if err != nil {
			panic(err)
		}
		if changed, is := s.changed[organization]; is && t.Size == changed {
			kept.Record[0] ^= 1
		}
		t.add(kept.Record)
		t.Position = e.Position
		switch e := s.codec.DecodeRecorded(e).Event.(type) {
		case *auditlog.KeyAdded:
			if t.Origin != e.Origin {
				t.Origin, t.Verifiers = e.Origin, nil
			}
			t.Verifiers = append(t.Verifiers, e.Verifier)
		case *auditlog.CheckpointSigned:
			t.Checkpoint, t.CheckpointSize, t.Since = e.Note, e.Size, time.Time{}
		case *auditlog.CheckpointCosigned:
			if e.Size == t.CheckpointSize {
				t.Checkpoint += e.Signatures
			}
		}
		if category != stream.Audit {
			if t.happened = t.Size; t.Since.IsZero() {
				t.Since = noon
			}
		}
	}
	return all
}

func (s *trees) Tree(_ context.Context, organization uuid.UUID) (audit.Tree, bool, error) {
	if t, is := s.fold()[organization]; is {
		return t.Tree, true, nil
	}
	return audit.Tree{}, false, nil
}

func (s *trees) Trees(_ context.Context, after *uuid.UUID, limit int) (list []audit.Tree, err error) {
	all := s.fold()
	for _, id := range slices.SortedFunc(maps.Keys(all), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }) {
		if after == nil || bytes.Compare(id[:], after[:]) > 0 {
			list = append(list, all[id].Tree)
		}
	}
	return list[:min(limit, len(list))], nil
}

func (s *trees) Due(_ context.Context, limit int) (list []audit.Tree, err error) {
	for _, t := range s.fold() {
		if t.happened > t.CheckpointSize {
			list = append(list, t.Tree)
		}
	}
	slices.SortFunc(list, func(a, b audit.Tree) int { return cmp.Compare(a.Position, b.Position) })
	return list[:min(limit, len(list))], nil
}

func (s *trees) Reader(_ context.Context, organization uuid.UUID) tlog.HashReader {
	return s.fold()[organization]
}

func (s *trees) Tile(
	_ context.Context, organization uuid.UUID, level int, n int64, width int,
) (tile []byte, ok bool, err error) {
	t := s.fold()[organization]
	if level >= 0 {
		tile, err = tlog.ReadTileData(tlog.Tile{H: 8, L: level, N: n, W: width}, t)
		return tile, err == nil, err
	}
	for _, r := range t.records[n*256 : n*256+int64(width)] {
		tile = append(binary.BigEndian.AppendUint16(tile, sha256.Size), r[:]...)
	}
	return tile, true, nil
}
