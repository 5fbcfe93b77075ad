package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/identity"
)

// traits are those of a record on their way into its row.
type traits struct {
	// stored says that they are in the row already: of those only the marks are known.
	stored bool
	text   string
	marks  marks
	// values or big are what the event brought; they are let go once text and marks are made of them.
	values map[string]string
	big    *blob.Ref
}

// traitsOf are the traits of an event.
func traitsOf(t identity.Traits) traits {
	if t.Blob != nil {
		return traits{big: t.Blob}
	}
	return made(t.Inline)
}

func made(values map[string]string) traits {
	if values == nil {
		values = map[string]string{}
	}
	return traits{values: values}
}

// finish makes text and marks. The text is the same for the same traits, whoever wrote them and in whatever order.
func (g *page) finish(ctx context.Context, project uuid.UUID, t *traits) error {
	switch {
	case t.stored || t.text != "":
		return nil
	case t.big != nil:
		var err error
		if t.values, err = g.readTraits(ctx, *t.big); err != nil {
			return err
		}
	}
	text, err := encode(t.values)
	if err != nil {
		return fmt.Errorf("encode traits: %w", err)
	}
	t.text, t.marks = text, marksOf(project, t.values)
	t.values, t.big = nil, nil
	return nil
}

// readTraits reads traits that are in a blob: none where it is gone, or is no object of strings.
func (g *page) readTraits(ctx context.Context, ref blob.Ref) (map[string]string, error) {
	data, ok, err := g.readBlob(ctx, ref, "traits")
	if err != nil || !ok {
		return map[string]string{}, err
	}
	var values map[string]string
	if err := json.Unmarshal(data, &values); err != nil || values == nil {
		g.projector.log.WarnContext(ctx, "traits in a blob cannot be read", "blob", ref.Stream, "err", err)
		return map[string]string{}, nil
	}
	return values, nil
}

// read are the values of the traits of a record, also of one whose row has them.
func (g *page) read(ctx context.Context, id, project uuid.UUID, t *traits) (map[string]string, error) {
	if err := g.finish(ctx, project, t); err != nil {
		return nil, err
	}
	text := t.text
	if t.stored {
		if err := g.tx.QueryRow(ctx, `select traits from identities where id = $1`, [16]byte(id)).Scan(&text); err != nil {
			return nil, fmt.Errorf("read the traits of identity %s: %w", id, err)
		}
	}
	values := map[string]string{}
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, fmt.Errorf("decode the traits of identity %s: %w", id, err)
	}
	return values, nil
}

// encode is JSON with sorted keys, and without the escapes for HTML.
func encode(value any) (string, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}
