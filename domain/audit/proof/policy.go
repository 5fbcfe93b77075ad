package proof

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/transparency-dev/formats/log"
	cosignature "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/formats/witness"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// maxPolicy and maxPolicyLines bound a policy.
const (
	maxPolicy      = 1 << 18
	maxPolicyLines = 1 << 10
)

// Policy is whose signatures make a checkpoint valid: a key of a log, and the quorum of witnesses (C2SP tlog-policy).
type Policy struct {
	logs, witnesses []note.Verifier
	quorum          witness.Group
}

// ParsePolicy reads a policy. Witnesses need no address.
func ParsePolicy(text []byte) (p Policy, err error) {
	if len(text) > maxPolicy || strings.Count(string(text), "\n") > maxPolicyLines {
		return p, errors.New("policy: it is too long")
	}
	var lines, keys []string
	quorums := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch key := ""; {
		case fields[0] == "log" && len(fields) > 1 && len(fields) < 4:
			key = fields[1]
			v, err := cosignature.NewVerifier(key)
			if err != nil {
				return p, fmt.Errorf("policy: key of a log: %w", err)
			}
			p.logs, keys = append(p.logs, v), append(keys, key)
			continue
		case fields[0] == "witness" && len(fields) == 3: // the parser wants an address
			fields = append(fields, "https://witness.invalid/"+fields[1])
			fallthrough
		case fields[0] == "witness" && len(fields) == 4:
			keys = append(keys, fields[2])
		case fields[0] == "quorum":
			quorums++
		case fields[0] == "group" && len(fields) > 3 && strings.TrimLeft(fields[2], "0") != "" && !repeats(fields[3:]):
		default:
			return p, fmt.Errorf("policy: invalid line %q", strings.TrimSpace(line))
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	for i, key := range keys {
		keys[i] = key[strings.LastIndexByte(key, '+')+1:]
	}
	if quorums != 1 || len(p.logs) == 0 || repeats(keys) {
		return p, errors.New("policy: it needs the key of a log and one quorum, and has no key twice")
	}
	if p.quorum, err = witness.ParsePolicy([]byte(strings.Join(lines, "\n"))); err != nil {
		return p, fmt.Errorf("policy: %w", err)
	}
	p.witnesses = slices.Collect(maps.Values(p.quorum.Endpoints()))
	return p, nil
}

func repeats(list []string) bool {
	seen := map[string]bool{}
	for _, s := range list {
		if seen[s] {
			return true
		}
		seen[s] = true
	}
	return false
}

// Checkpoint is a checkpoint whose signatures a policy accepts.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
	// Keys are the keys of the log that signed it, as name and hash, and Witnesses those of the policy. Unknown counts
	// signatures of others, which prove nothing.
	Keys, Witnesses []string
	Unknown         int
}

// Open checks the signatures of a checkpoint: one of a key of the log, and those of the quorum.
func (p Policy) Open(checkpoint []byte) (c Checkpoint, err error) {
	n, err := note.Open(checkpoint, note.VerifierList(slices.Concat(p.logs, p.witnesses)...))
	if err != nil {
		return c, fmt.Errorf("checkpoint: %w", err)
	}
	for _, s := range slices.Concat(n.Sigs, n.UnverifiedSigs) { // package note passes over bits that mean nothing
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err != nil {
			return c, fmt.Errorf("checkpoint: signature of %q: %w", s.Name, err)
		}
	}
	var text log.Checkpoint
	if _, err = text.Unmarshal([]byte(n.Text)); err != nil {
		return c, fmt.Errorf("checkpoint: %w", err)
	}
	if text.Size > math.MaxInt64 || len(text.Hash) != tlog.HashSize {
		return c, errors.New("checkpoint: its size or root is none")
	}
	c = Checkpoint{
		Origin: text.Origin, Size: int64(text.Size), Root: tlog.Hash(text.Hash), Unknown: len(n.UnverifiedSigs),
	}
	for _, s := range n.Sigs {
		key := fmt.Sprintf("%s+%08x", s.Name, s.Hash)
		if by := (known{s.Name, s.Hash}); by.in(p.witnesses) {
			c.Witnesses = append(c.Witnesses, key)
		} else if s.Name == c.Origin {
			c.Keys = append(c.Keys, key)
		}
	}
	if len(c.Keys) == 0 {
		return c, fmt.Errorf("checkpoint of %q: no key of this log in the policy signed it", c.Origin)
	}
	if !p.quorum.Satisfied(checkpoint) {
		return c, fmt.Errorf("checkpoint of %q, size %d: not enough witnesses of the policy signed it", c.Origin, c.Size)
	}
	return c, nil
}

// LogAlone returns the policy without its quorum: that of a rotation, which needs no witness. Who has the key before
// can sign any tree, and the checkpoint of that needs the quorum.
func (p Policy) LogAlone() Policy {
	p.quorum = witness.Group{}
	return p
}

// known is a key, by what signatures name it by.
type known struct {
	name string
	hash uint32
}

func (k known) in(list []note.Verifier) bool {
	return slices.ContainsFunc(list, func(v note.Verifier) bool { return v.Name() == k.name && v.KeyHash() == k.hash })
}
