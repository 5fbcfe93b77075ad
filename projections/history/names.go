package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
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

// Principals are some principals of events as people read them, by how the events have them.
func (q Reader) Principals(ctx context.Context, texts []string) (map[string]Principal, error) {
	n := &namer{asked: map[string]map[string]struct{}{}}
	for _, text := range texts {
		n.principal(text)
	}
	if err := q.find(ctx, n); err != nil {
		return nil, err
	}
	named := map[string]Principal{}
	for _, text := range texts {
		named[text] = n.principal(text)
	}
	return named, nil
}

// maxSends is how many events of a data point are read to find one of its sends.
const maxSends = 64

// SentBy is who sent something: a batch, or the send of one text that brought a revision of a data point. ok is false
// if it is not known: the event left the log with the text.
func (q Reader) SentBy(ctx context.Context, send, dataPoint uuid.UUID) (by Principal, ok bool, err error) {
	principal, err := q.principalOf(ctx, stream.Name(stream.Ingestion, send), eventstore.Forwards, uuid.Nil)
	if err == nil && principal == "" && dataPoint != uuid.Nil {
		principal, err = q.principalOf(ctx, stream.Name(stream.DataPoint, dataPoint), eventstore.Backwards, send)
	}
	if err != nil || principal == "" {
		return by, false, err
	}
	named, err := q.Principals(ctx, []string{principal})
	return named[principal], err == nil, err
}

// principalOf is who caused the first event of a stream that is of a send, from one of its ends; zero is any send.
func (q Reader) principalOf(
	ctx context.Context, name string, direction eventstore.Direction, send uuid.UUID,
) (string, error) {
	from, most := eventstore.Revision(0), 1
	if direction == eventstore.Backwards {
		from, most = eventstore.EndOfStream, maxSends
	}
	list, err := q.Log.Read(ctx, name, from, direction, most)
	if err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return "", err
	}
	for _, r := range list {
		var of struct {
			IngestionID uuid.UUID `json:"ingestionId"`
		}
		var meta event.Meta
		if json.Unmarshal(r.Data, &of) != nil || json.Unmarshal(r.Meta, &meta) != nil {
			continue // an operator set it aside
		}
		if send == uuid.Nil || of.IngestionID == send {
			return meta.Principal, nil
		}
	}
	return "", nil
}
