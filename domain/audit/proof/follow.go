package proof

import (
	"encoding/json"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/stream"
)

// Follow returns the policy with the keys that its logs have added since: each is proved by the event that added it,
// under a checkpoint that a key known before and the new one have signed (LogAlone). Other proofs add none.
func (p Policy) Follow(proofs []Proof) Policy {
	for added := true; added; {
		added = false
		for _, file := range proofs {
			if v := p.added(file); v != nil && !(known{v.Name(), v.KeyHash()}).in(p.logs) {
				p.logs, added = append(slices.Clone(p.logs), v), true
			}
		}
	}
	return p
}

// added returns the key that the event of a proof added, nil if the proof shows none.
func (p Policy) added(file Proof) note.Verifier {
	s, err := file.Verify(p.LogAlone())
	if err != nil || s.Data == nil {
		return nil
	}
	var e audit.KeyAdded
	if s.Fields.Type != e.EventType() || json.Unmarshal(s.Data, &e) != nil || e.Origin != s.Origin ||
		s.Fields.Stream != stream.Name(stream.Audit, s.Fields.Organization) {
		return nil
	}
	v, err := note.NewVerifier(e.Verifier)
	if err != nil || v.Name() != e.Origin {
		return nil
	}
	if _, err := note.Open(file.Checkpoint, note.VerifierList(v)); err != nil {
		return nil
	}
	return v
}
