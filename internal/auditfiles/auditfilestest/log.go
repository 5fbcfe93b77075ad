// Package auditfilestest makes logs with signed checkpoints, proofs and bundles of them, for tests.
package auditfilestest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/transparency-dev/formats/log"
	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auditfiles"
)

// Log is the tree of an organization, with its keys. Equal seeds make equal logs.
type Log struct {
	Organization uuid.UUID
	Origin       string
	Events       []audit.Event
	// Keys are the private keys, the newest last, and Verifiers the public ones.
	Keys, Verifiers []string
	random          *rand.ChaCha8
	hashes          hashes
	entries         [][]byte
}

type hashes []tlog.Hash

// ReadHashes implements tlog.HashReader.
func (h hashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	found := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		found[i] = h[n]
	}
	return found, nil
}

// New makes a log with one key.
func New(t testing.TB, seed byte) *Log {
	l := &Log{random: rand.NewChaCha8([32]byte{seed})}
	l.Organization = l.id()
	l.Origin = audit.Origin(l.id(), l.Organization, 1)
	l.NewKey(t)
	return l
}

func (l *Log) id() (id uuid.UUID) {
	l.read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

func (l *Log) read(b []byte) {
	if _, err := l.random.Read(b); err != nil {
		panic(err)
	}
}

// NewKey makes another key of the log, and returns its public part.
func (l *Log) NewKey(t testing.TB) string {
	t.Helper()
	private, public, err := note.GenerateKey(l.random, l.Origin)
	if err != nil {
		t.Fatal(err)
	}
	l.Keys, l.Verifiers = append(l.Keys, private), append(l.Verifiers, public)
	return public
}

// Add adds an event to the log, and returns its number.
func (l *Log) Add(t testing.TB, name string, revision int64, e event.Event) int64 {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 5, 1, 0, 0, len(l.Events), 0, time.UTC)
	meta, err := json.Marshal(event.NewMeta("pipeline", at))
	if err != nil {
		t.Fatal(err)
	}
	var salt [event.SaltSize]byte
	l.read(salt[:])
	stored := audit.Event{
		Organization: l.Organization, ID: l.id(), Stream: name, Revision: revision, Type: e.EventType(),
		Meta: event.WithSalt(meta, salt), Data: data,
	}
	record, err := stored.Record()
	if err != nil {
		t.Fatal(err)
	}
	l.Events = append(l.Events, stored)
	l.AddEntry(t, record[:])
	return int64(len(l.Events)) - 1
}

// Some adds made-up events.
func (l *Log) Some(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		l.Add(t, stream.Name(stream.Pipeline, l.Organization), int64(i), made{Text: fmt.Sprintf("text %d", i)})
	}
}

type made struct{ Text string }

func (made) EventType() string { return "made.up.v1" }

// AddEntry adds an entry that is of no event.
func (l *Log) AddEntry(t testing.TB, entry []byte) {
	t.Helper()
	added, err := tlog.StoredHashes(int64(len(l.entries)), entry, l.hashes)
	if err != nil {
		t.Fatal(err)
	}
	l.entries, l.hashes = append(l.entries, entry), append(l.hashes, added...)
}

// Checkpoint signs the tree of the first so many leaves with keys, and with witnesses.
func (l *Log) Checkpoint(t testing.TB, size int64, keys []string, witnesses ...string) []byte {
	t.Helper()
	root, err := tlog.TreeHash(size, l.hashes)
	if err != nil {
		t.Fatal(err)
	}
	var signers []note.Signer
	for _, key := range keys {
		s, err := note.NewSigner(key)
		if err != nil {
			t.Fatal(err)
		}
		signers = append(signers, s)
	}
	for _, key := range witnesses {
		s, err := cosignature.NewSignerForCosignatureV1(key)
		if err != nil {
			t.Fatal(err)
		}
		signers = append(signers, s)
	}
	text := log.Checkpoint{Origin: l.Origin, Size: uint64(size), Hash: root[:]}.Marshal()
	signed, err := note.Sign(&note.Note{Text: string(text)}, signers...)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// NewWitness makes a witness, and returns its private key and its line in a policy.
func (l *Log) NewWitness(t testing.TB, name string) (private, line string) {
	t.Helper()
	private, public, err := note.GenerateKey(l.random, name)
	if err == nil {
		public, err = cosignature.VKeyToCosignatureV1(public)
	}
	if err != nil {
		t.Fatal(err)
	}
	return private, "witness " + name + " " + public
}

// Policy returns a policy with keys of logs and the lines for witnesses.
func Policy(keys []string, lines ...string) []byte {
	text := ""
	for _, key := range keys {
		text += "log " + key + "\n"
	}
	if len(lines) == 0 {
		lines = []string{"quorum none"}
	}
	return []byte(text + strings.Join(lines, "\n") + "\n")
}

// Extra is what the proof of an event holds, with its metadata and data if full is true.
func (l *Log) Extra(t testing.TB, n int64, full bool) (e proof.Extra) {
	t.Helper()
	var err error
	if e.Leaf, err = l.Events[n].Leaf(); err != nil {
		t.Fatal(err)
	}
	if full {
		e.Metadata, e.Data = l.Events[n].Meta, l.Events[n].Data
	}
	return e
}

// Prove makes the file for an entry under a checkpoint of a size.
func (l *Log) Prove(t testing.TB, n, size int64, checkpoint []byte, e proof.Extra) []byte {
	t.Helper()
	extra, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	path, err := tlog.ProveRecord(size, n, l.hashes)
	if err != nil {
		t.Fatal(err)
	}
	return proof.Proof{Index: n, Path: path, Checkpoint: checkpoint, Extra: extra}.Encode()
}

// Sink takes files.
type Sink interface {
	Create(name string) (io.Writer, error)
}

// WriteTree writes a checkpoint of a size with the tiles of its tree.
func (l *Log) WriteTree(t testing.TB, to Sink, size int64, checkpoint []byte) {
	t.Helper()
	write(t, to, auditfiles.CheckpointFile, checkpoint)
	err := auditfiles.EachTile(size, func(level int, n int64, width int) error {
		tile := tlog.Tile{H: 8, L: level, N: n, W: width}
		var data []byte
		if level < 0 {
			for _, entry := range l.entries[n*auditfiles.TileWidth:][:width] {
				data = append(binary.BigEndian.AppendUint16(data, uint16(len(entry))), entry...)
			}
		} else {
			read, err := tlog.ReadTileData(tile, l.hashes)
			if err != nil {
				return err
			}
			data = read
		}
		write(t, to, auditfiles.TilePath(level, n, width), data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// WriteLeaves writes the list of some leaves. Those of erased are listed as left the log.
func (l *Log) WriteLeaves(t testing.TB, to Sink, first, end int64, erased map[int64]bool) {
	t.Helper()
	text, err := json.Marshal(auditfiles.Listed{Format: auditfiles.LeavesFormat, First: first, End: end})
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	for n := first; n < end; n++ {
		leaf, err := l.Events[n].Leaf()
		if err != nil {
			t.Fatal(err)
		}
		line := auditfiles.Leaf{Index: n}
		if erased[n] {
			sum := sha256.Sum256(leaf)
			line.Record = sum[:]
		} else {
			fields, err := audit.ParseLeaf(leaf)
			if err != nil {
				t.Fatal(err)
			}
			line.Leaf = &fields
		}
		more, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, more...), '\n')
	}
	write(t, to, auditfiles.LeavesFile, text)
}

func write(t testing.TB, to Sink, name string, data []byte) {
	t.Helper()
	w, err := to.Create(name)
	if err == nil {
		_, err = w.Write(data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Damage returns a copy of a file with a byte changed, left out, doubled or swapped with another one, or cut.
func Damage(random *rand.Rand, file []byte) []byte {
	at := random.IntN(len(file))
	damaged := bytes.Clone(file)
	switch random.IntN(6) {
	case 0, 1:
		damaged[at] ^= byte(1 + random.IntN(255))
	case 2:
		return append(damaged[:at], file[at+1:]...)
	case 3:
		return append(append(damaged[:at], file[at]), file[at:]...)
	case 4:
		other := random.IntN(len(file))
		damaged[at], damaged[other] = file[other], file[at]
	case 5:
		return damaged[:at]
	}
	return damaged
}
