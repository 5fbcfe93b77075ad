package directory

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
)

const (
	addIdentityDeltas = `update projects p set identities = p.identities + c.count from unnest($1::uuid[],
		$2::bigint[]) as c (id, count) where p.project_id = c.id`
	addMemberDeltas = `update audiences a set member_count = a.member_count + c.count from unnest($1::uuid[],
		$2::bigint[]) as c (id, count) where a.id = c.id`
	addRecountDeltas = `update audiences a set recounted = a.recounted + c.count from unnest($1::uuid[],
		$2::bigint[]) as c (id, count) where a.id = c.id`
)

// adjustCounts computes how the changed identities change the member counts, for all identities of
// a project at once.
func (f *fold) adjustCounts(ctx context.Context) error {
	changed := map[uuid.UUID][]*identityState{}
	for _, x := range f.identities {
		if x.changed && (x.before.visible() || x.now.visible()) {
			changed[x.Project] = append(changed[x.Project], x)
			f.identityDeltas[x.Project] += asInt(x.now.visible()) - asInt(x.before.visible())
		}
	}
	for id, identities := range changed {
		project := f.projects[id]
		if project == nil {
			return fmt.Errorf("project %s of an identity was not created", id)
		}
		if project.before == 0 {
			continue
		}
		read := func() (*audience.Matcher, error) { return readRules(ctx, f.tx, selectRules, id) }
		rules, err := f.projector.rules.load(id, project.before, read)
		if err != nil {
			return err
		}
		if len(rules.Audiences()) > 0 {
			f.adjust(rules, identities)
		}
	}
	return nil
}

func asInt(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// adjust computes the changes of the counts of a project. It leaves out the counts that a put makes
// outdated. A recount that runs counts what is after it with the traits of then.
func (f *fold) adjust(rules *audience.Matcher, identities []*identityState) {
	audiences, ran := rules.Audiences(), map[uuid.UUID]bool{} // the identities up to which recounts have counted
	for n, delta := range deltas(rules, identities) {
		id := audiences[n]
		if !f.staysDefined(id) {
			continue
		}
		r, runs := f.recounts[id]
		if delta != 0 && !r.outdated {
			f.memberDeltas[id] += delta
		}
		if runs && r.to != uuid.Nil && !f.restarts(id) {
			ran[r.to] = true
		}
	}
	for to := range ran {
		var counted []*identityState
		for _, x := range identities {
			if bytes.Compare(x.ID[:], to[:]) <= 0 {
				counted = append(counted, x)
			}
		}
		for n, delta := range deltas(rules, counted) {
			id := audiences[n]
			if r := f.recounts[id]; delta != 0 && r.to == to && f.staysDefined(id) && !f.restarts(id) {
				f.recountDeltas[id] += delta
			}
		}
	}
}

// staysDefined reports whether the page neither puts nor removes an audience.
func (f *fold) staysDefined(id uuid.UUID) bool {
	a := f.audiences[id]
	return !f.removed.has(id) && (a == nil || !a.put)
}

// restarts reports whether the page lets the recount of an audience begin again.
func (f *fold) restarts(id uuid.UUID) bool {
	a := f.audiences[id]
	return a != nil && a.needsRecount
}

// deltas returns, by rule, how the changes of identities change the number of its members.
func deltas(rules *audience.Matcher, identities []*identityState) []int64 {
	t := audience.NewTally(rules, 2*len(identities))
	for _, x := range identities {
		if x.before.visible() {
			t.Add(x.before.traits.traitKeys, false)
		}
		if x.now.visible() {
			t.Add(x.now.traits.traitKeys, true)
		}
	}
	return t.Counts()
}
