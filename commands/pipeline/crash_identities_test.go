package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/stream"
)

// people that the operations on identities are about.
var actors = []string{"ana", "bo", "cy"}

// wide is traits that do not fit into an event.
func wide(n int) map[string]string {
	traits := make(map[string]string, n)
	for i := range n {
		traits[fmt.Sprint("key", i)] = strings.Repeat("x", limit.TraitValue)
	}
	return traits
}

func identityOperations() []operation {
	known := func(s *scene) {
		for _, name := range []string{"ana", "bo"} {
			s.ok(s.write.PutIdentity(s.t.Context(), s.call, name, wide(130)))
		}
	}
	member := func(s *scene) {
		known(s)
		s.ok(s.write.PutAudience(s.t.Context(), s.call,
			commands.AudiencePut{Slug: "team", Kind: audience.KindFixed, Identities: []string{"ana"}}))
	}
	return []operation{
		{name: "put of an identity", method: "PutIdentity", act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.PutIdentity(s.t.Context(), s.call, "ana", wide(130))
			return err
		}},
		{name: "sign-in of a person", method: "EnsureSignedIn", act: func(s *scene, c *commands.Service, _ *Finisher) error {
			return c.EnsureSignedIn(s.t.Context(), s.call, "ana")
		}},
		{name: "patch of an identity", method: "PatchIdentity", prepare: known, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.PatchIdentity(s.t.Context(), s.call, "ana", map[string]string{"key0": "other"}, []string{"key1"})
			return err
		}},
		{name: "removal of an identity", method: "DeleteIdentity", prepare: member, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			return c.DeleteIdentity(s.t.Context(), s.call, "ana")
		}},
		{name: "bulk write of identities", method: "BulkIdentities", prepare: member, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.BulkIdentities(s.t.Context(), s.call, []identity.Row{
				{Identity: "ana", Traits: map[string]string{"a": "1"}}, {Identity: "cy", Traits: wide(130)}, {Identity: "bo"}, {Identity: "ana", Traits: map[string]string{"a": "2"}},
			})
			return err
		}},
		{name: "put of an audience", method: "PutAudience", prepare: func(s *scene) {
			known(s)
			s.ok(s.write.PutIdentity(s.t.Context(), s.call, "cy", nil))
		}, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.PutAudience(s.t.Context(), s.call,
				commands.AudiencePut{Slug: "team", Kind: audience.KindFixed, Identities: actors})
			return err
		}},
		{name: "finishing bulk writes and removals", prepare: func(s *scene) {
			member(s)
			// A write more or less, and the process dies within the fan-out, or after the removal.
			s.dead(s.stop(3).BulkIdentities(s.t.Context(), s.call,
				[]identity.Row{{Identity: "bo"}, {Identity: "cy", Traits: map[string]string{"c": "3"}}}))
			s.must(s.stop(1).DeleteIdentity(s.t.Context(), s.call, "ana"))
			s.passHead()
		}, act: func(s *scene, _ *commands.Service, f *Finisher) error {
			_, err := f.EraseNow(s.t.Context())
			return err
		}},
	}
}

// directory is what stands of the identities and audiences, without ids, positions and times.
func (s *scene) people() []string {
	s.t.Helper()
	project := s.call.Principal.Project
	var all []string
	for _, name := range actors {
		facts, err := s.log.ReadFrom(s.t.Context(), stream.Name(stream.Identity,
			stream.IdentityID(project.Namespace, name)), 0)
		s.must(err)
		types := make([]string, len(facts))
		for i, f := range facts {
			types[i] = f.Type
		}
		// The author of a send appears before it, whether or not that comes to stand.
		if len(types) > 0 && !slices.Equal(types, []string{"identity.appeared.v1"}) {
			all = append(all, fmt.Sprint("record of ", name, ": ", strings.Join(types, " ")))
		}
	}
	for table, where := range map[string]string{
		"identities": "origin <> 'ingest'", "audiences": "true",
		"removals": "true", "bulks": "true", "bulk_rows": "true",
	} {
		rows, err := s.db.Query(s.t.Context(),
			fmt.Sprintf(`select (to_jsonb(r) - $2::text[])::text from directory.%s r where project_id = $1 and %s`, table,
				where),
			project.ID, []string{"id", "project_id", "position", "bulk_id", "identity_id", "marks", "private", "born"})
		s.must(err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		s.must(err)
		for _, row := range list {
			all = append(all, "directory."+table+" "+row)
		}
	}
	audiences, err := s.harness.directory.AudienceList(s.t.Context(), project)
	s.must(err)
	for _, a := range audiences {
		if a.Slug == audience.Default {
			continue // counts such an author
		}
		all = append(all, fmt.Sprintf("audiences %s: %d members, %v", a.Slug, a.MemberCount, a.Identities))
	}
	rows, err := s.db.Query(s.t.Context(), `select private from directory.identities where project_id = $1`, project.ID)
	s.must(err)
	private, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	s.must(err)
	for _, name := range actors {
		reached, err := s.harness.directory.Reach(s.t.Context(), project, name)
		s.must(err)
		// Without what is its own: an author has that before its send, whether or not that comes to stand.
		all = append(all, fmt.Sprintf("%s reaches %d", name, len(slices.DeleteFunc(reached.Audiences,
			func(id uuid.UUID) bool { return id == uuid.Nil || slices.Contains(private, id) }))))
	}
	return all
}
