package directory

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/identity"
)

// traits are the traits of a record, from an event or from its row.
type traits struct {
	// stored is set if the row already holds them: then only traitKeys are known.
	stored    bool
	text      string
	traitKeys audience.TraitKeys
	// values or blob are from an event. encodeTraits clears them once text and traitKeys are set.
	values map[string]string
	blob   *blob.Ref
}

// traitsOf returns the traits of an event.
func traitsOf(t identity.Traits) traits {
	if t.Blob != nil {
		return traits{blob: t.Blob}
	}
	return newTraits(t.Inline)
}

func newTraits(values map[string]string) traits {
	if values == nil {
		values = map[string]string{}
	}
	return traits{values: values}
}

// encodeTraits sets text and traitKeys. Equal traits yield equal text, in whatever order they were
// sent.
func (f *fold) encodeTraits(ctx context.Context, project uuid.UUID, t *traits) error {
	switch {
	case t.stored || t.text != "":
		return nil
	case t.blob != nil:
		var err error
		if t.values, err = f.readTraits(ctx, *t.blob); err != nil {
			return err
		}
	}
	text, err := encode(t.values)
	if err != nil {
		return fmt.Errorf("encode traits: %w", err)
	}
	t.text, t.traitKeys = text, audience.TraitKeysOf(project, t.values)
	t.values, t.blob = nil, nil
	return nil
}

// readTraits reads traits from a blob. It returns none if the blob is missing, damaged, or not an
// object of strings.
func (f *fold) readTraits(ctx context.Context, ref blob.Ref) (map[string]string, error) {
	data, ok, err := f.readBlob(ctx, ref, "traits")
	if err != nil || !ok {
		return map[string]string{}, err
	}
	var values map[string]string
	if err := json.Unmarshal(data, &values); err != nil || values == nil {
		f.projector.logger.WarnContext(ctx, "traits in a blob cannot be decoded", "blob", ref.Stream, "err", err)
		return map[string]string{}, nil
	}
	return values, nil
}

// traitValues returns the traits of a record, also if only its row holds them.
func (f *fold) traitValues(ctx context.Context, id, project uuid.UUID, t *traits) (map[string]string, error) {
	if err := f.encodeTraits(ctx, project, t); err != nil {
		return nil, err
	}
	text := t.text
	if t.stored {
		if err := f.tx.QueryRow(ctx, `select traits from identities where id = $1`, id).Scan(&text); err != nil {
			return nil, fmt.Errorf("read the traits of identity %s: %w", id, err)
		}
	}
	values := map[string]string{}
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, fmt.Errorf("decode the traits of identity %s: %w", id, err)
	}
	return values, nil
}

// encode returns JSON with sorted keys and without HTML escapes.
func encode(value any) (string, error) {
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}
