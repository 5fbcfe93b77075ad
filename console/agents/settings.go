package agents

import (
	"context"
	"embed"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/console/web"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/authmd"
	"github.com/annals-project/annals/projections/access"
)

//go:embed *.html
var templates embed.FS

const (
	agentsPath      = "/settings/agents"
	connectionsPath = "/settings/connections"
)

// Area returns the endpoints and the pages.
func (s *Service) Area() web.Area {
	routes := web.AnyOrigin(
		web.Route{Pattern: "GET " + authmd.Path, Public: true, Serve: s.document},
		web.Route{Pattern: "POST /agent/identity", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.identity)},
		web.Route{Pattern: "POST /agent/identity/claim", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.attempt)},
		web.Route{
			Pattern: "POST /agent/identity/claim/complete", Public: true, Refuse: s.refuse, Serve: s.endpoint(s.complete),
		},
	)
	return web.Area{Templates: templates, Routes: append(routes,
		web.Route{Pattern: "GET " + claimPath, Needs: web.SignedIn, Leaves: true, Serve: s.claimPage},
		web.Route{Pattern: "POST " + claimPath, Needs: web.SignedIn, Leaves: true, Serve: s.decide},
		web.Route{Pattern: "GET " + agentsPath, Needs: web.Member, Auditors: web.Audited, Serve: s.agentsPage},
		web.Route{Pattern: "POST " + agentsPath + "/revoke", Needs: web.Member, Serve: s.revoke},
		web.Route{Pattern: "POST " + agentsPath + "/stop", Needs: web.Owner, Serve: s.stop},
		web.Route{Pattern: "GET " + connectionsPath, Needs: web.SignedIn, Serve: s.connectionsPage},
		web.Route{Pattern: "POST " + connectionsPath + "/revoke", Needs: web.SignedIn, Serve: s.disconnect},
	)}
}

// document is auth.md.
func (s *Service) document(r *web.Request) error {
	text, err := authmd.Render(s.URLs)
	if err != nil {
		return err
	}
	authmd.Header(r.Writer().Header())
	_, _ = r.Writer().Write(text) // a client that left reads no more
	return nil
}

// agentView is an agent in the list. Its name is what it called itself.
type agentView struct {
	access.Agent

	Name, Prefix string
	// Claimed reports that it has its first token, UsedAt is the last one.
	Claimed bool
	UsedAt  *time.Time
	Own     bool
}

// agentsPage lists the agents of the person and, for an Admin or auditor, of all members.
func (s *Service) agentsPage(r *web.Request) error {
	of := r.Person.ID
	if r.May(web.Admin) || r.Audits() {
		of = uuid.Nil
	}
	list, err := s.Access.Agents(r.Context(), r.Membership.Organization, of)
	if err != nil {
		return err
	}
	views := make([]agentView, len(list))
	at := make(map[uuid.UUID]*agentView, len(list))
	ids := make([]uuid.UUID, len(list))
	for i, a := range list {
		prefix := auth.AgentID(a.ID)
		views[i] = agentView{Agent: a, Name: prefix, Prefix: prefix[:18], Own: a.PersonID == r.Person.ID}
		at[a.ID], ids[i] = &views[i], a.ID
	}
	if err := s.addUses(r.Context(), ids, at); err != nil {
		return err
	}
	return r.Render("agents.html", map[string]any{
		"Agents": views, "All": of == uuid.Nil, "Most": access.MaxAgents, "MayStop": r.May(web.Owner),
	})
}

// addUses adds names and last uses to agents.
func (s *Service) addUses(ctx context.Context, ids []uuid.UUID, at map[uuid.UUID]*agentView) error {
	rows, err := s.DB.Query(ctx, `select id, client_name, claimed_at is not null, used_at from ops.agent_registrations
		where id = any($1)`, ids)
	if err != nil {
		return err
	}
	var id uuid.UUID
	var name string
	var claimed bool
	var used *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &claimed, &used}, func() error {
		v := at[id]
		if v.Claimed, v.UsedAt = claimed, used; name != "" {
			v.Name = name
		}
		return nil
	})
	return err
}

// revoke ends the registration of an agent: an Admin that of any member, others their own.
func (s *Service) revoke(r *web.Request) error {
	of := r.Person.ID
	if r.May(web.Admin) {
		of = uuid.Nil
	}
	id, err := agentOf(r)
	if err == nil {
		err = s.Commands.RevokeAgent(r.Context(), r.Command(), r.Membership.Organization, id, of)
	}
	if err != nil {
		return err
	}
	return r.Done(agentsPath, "revoked")
}

// stop ends the registration of an agent, and its tokens at once.
func (s *Service) stop(r *web.Request) error {
	id, err := agentOf(r)
	if err == nil {
		err = s.Commands.StopAgent(r.Context(), r.Command(), r.Membership.Organization, id)
	}
	if err != nil {
		return err
	}
	return r.Done(agentsPath, "ended")
}

func agentOf(r *web.Request) (uuid.UUID, error) {
	id, err := uuid.Parse(r.Field("agent"))
	if err != nil {
		return id, fault.New(fault.NotFound, fault.CodeNotFound, "there is no such agent")
	}
	return id, nil
}

// connectionsPage lists the programs that the person connected by OAuth.
func (s *Service) connectionsPage(r *web.Request) error {
	list, err := s.Connections.Grants(r.Context(), r.Person.ID)
	if err != nil {
		return err
	}
	return r.Render("connections.html", list)
}

// disconnect ends the access of a program, and its tokens, at once.
func (s *Service) disconnect(r *web.Request) error {
	id, err := uuid.Parse(r.Field("connection"))
	found := err == nil
	if found {
		found, err = s.Connections.RevokeGrant(r.Context(), r.Command(), r.Person.ID, id)
		if err != nil {
			return err
		}
	}
	if !found {
		return fault.New(fault.NotFound, fault.CodeNotFound, "there is no such connection of yours")
	}
	return r.Done(connectionsPath, "revoked")
}
