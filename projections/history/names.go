package history

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/person"
)

// Principal is who caused an event. Kind is "person", "key", "management-key", "webhook", "agent", "operator" or a part
// of the service.
type Principal struct {
	Kind string `json:"kind"`
	ID   string `json:"id,omitempty"`
	// Name is what people read: the address of a person, the name of a key. It is person.RemovedName for somebody who is
	// no member any more.
	Name string `json:"name"`
	// isName is false for words such as "the operator".
	isName bool
}

// namer knows the names of things. Before find, it notes which are asked for.
type namer struct {
	hides bool
	asked map[string]map[string]struct{} // ids by form
	known map[string]map[string]string
}

// The names of what has none: of an identity that was removed, of a text that was deleted or that is not shown.
const (
	Erased      = "erased"
	SomeText    = "a text"
	unknownName = "not known"
)

// name is the name of the thing of an id.
func (n *namer) name(form, id string) string {
	if id == "" {
		return ""
	}
	if form == OfMember {
		form = formPerson
	}
	if n.known == nil {
		if n.asked[form] == nil {
			n.asked[form] = map[string]struct{}{}
		}
		n.asked[form][id] = struct{}{}
	}
	name := n.known[form][id]
	switch form {
	case formPerson:
		return cmp.Or(name, person.RemovedName)
	case formIdentity:
		if n.hides {
			return "…"
		}
		return cmp.Or(name, Erased)
	case formDataPoint:
		if n.hides {
			return SomeText
		}
		return cmp.Or(name, SomeText)
	default:
		return cmp.Or(name, id)
	}
}

// principal reads the principal of an event (auth.Principal.Name).
func (n *namer) principal(text string) Principal {
	if name, is := strings.CutPrefix(text, OfOperator); is {
		p := Principal{Kind: OfOperator}
		p.Name, p.isName = operatorName(strings.TrimSpace(name))
		return p
	}
	kind, id, _ := strings.Cut(text, ":")
	p := Principal{Kind: kind, ID: id}
	switch kind {
	case formPerson, formWebhook:
		p.Name, p.isName = n.name(kind, id), true
	case formKey:
		p.Name = "key " + n.name(kind, id)
	case "management-key":
		p.Name = "the management key"
	case OfAgent:
		p.Name = "an agent"
	case "":
		p.Name = unknownName
	default:
		p.Name = "the service"
	}
	return p
}

// OfOperator is how the principal of somebody at the machine of the service begins. The user of that machine follows,
// and perhaps, in parentheses, the name that the person gave.
const OfOperator = "operator"

func operatorName(text string) (name string, isName bool) {
	user, given, both := strings.Cut(text, " (says: ")
	switch {
	case both:
		return strings.TrimSuffix(given, ")") + " (operator " + user + ")", true
	case user == "":
		return "the operator", false
	default:
		return "operator " + user, false
	}
}

// find finds the names that were asked for.
func (q Reader) find(ctx context.Context, n *namer) error {
	n.known = map[string]map[string]string{}
	var ids []uuid.UUID
	for _, form := range []string{formPerson, formKey, formProject} {
		for text := range n.asked[form] {
			if id, err := uuid.Parse(text); err == nil {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) > 0 {
		found, err := q.Names.Names(ctx, ids)
		if err != nil {
			return err
		}
		all := make(map[string]string, len(found))
		for id, name := range found {
			all[id.String()] = name
		}
		n.known[formPerson], n.known[formKey], n.known[formProject] = all, all, all
	}
	for form, sql := range map[string]string{
		formWebhook:   `select substr(thing, 9), name from history.names where thing = any($1)`,
		formAudience:  `select substr(thing, 10), name from history.names where thing = any($1)`,
		formIdentity:  `select id::text, identity from directory.identities where id = any($1::uuid[]) and identity is not null`,
		formDataPoint: `select id::text, source_id from datapoints.data_points where id = any($1::uuid[])`,
	} {
		if len(n.asked[form]) == 0 {
			continue
		}
		var asked []string
		for id := range n.asked[form] {
			if form == formWebhook || form == formAudience {
				id = form + ":" + id
			}
			asked = append(asked, id)
		}
		rows, err := q.DB.Query(ctx, sql, asked)
		if err != nil {
			return fmt.Errorf("find names: %w", err)
		}
		n.known[form] = map[string]string{}
		var id, name string
		if _, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error {
			n.known[form][id] = name
			return nil
		}); err != nil {
			return fmt.Errorf("find names: %w", err)
		}
	}
	return nil
}
