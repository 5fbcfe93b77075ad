package writeapi

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/fields"
)

// traitChanges is an object of strings and nulls. No key is in both.
type traitChanges struct {
	set     map[string]string
	removed []string
}

// traitsOf reads member traits; none and null are no changes. The fault is traits-invalid, also for
// more traits than a record can have.
func traitsOf(f fields.Object) (traitChanges, error) {
	if !f.Has("traits") {
		return traitChanges{}, nil
	}
	changes, err := traitsIn(f.Raw("traits"))
	if err != nil {
		return traitChanges{}, fault.New(fault.Invalid, fault.CodeTraitsInvalid, "traits: %v", err)
	}
	if err := identity.CheckTraits(nil, changes.set); err != nil {
		return traitChanges{}, err
	}
	return changes, identity.CheckRemoved(len(changes.removed))
}

// traitsIn reads an object of traits. If a key occurs twice, the last value counts.
func traitsIn(value []byte) (traitChanges, error) {
	if kind := rawjson.KindOf(value); kind != rawjson.Object {
		return traitChanges{}, fmt.Errorf("want an object of strings, got %s", kind)
	}
	changes := traitChanges{set: map[string]string{}}
	gone := map[string]bool{}
	for key, member := range rawjson.Each(value) {
		if wrong := fields.CheckName(key, 1, limit.TraitKey); wrong != nil {
			return traitChanges{}, fmt.Errorf("a key %w", wrong)
		}
		// A key remains in one of the two: beyond the sum of their limits, one of them is exceeded
		// whatever follows.
		if len(changes.set)+len(gone) > 2*limit.Traits {
			break
		}
		if rawjson.KindOf(member) == rawjson.Null {
			gone[key] = true
			delete(changes.set, key)
			continue
		}
		text, ok := rawjson.Text(member)
		if !ok {
			return traitChanges{}, fmt.Errorf("the value of %q: want a string, got %s", key, rawjson.KindOf(member))
		}
		if wrong := fields.CheckName(text, 1, limit.TraitValue); wrong != nil {
			return traitChanges{}, fmt.Errorf("the value of %q %w", key, wrong)
		}
		changes.set[key] = text
		delete(gone, key)
	}
	for key := range gone {
		changes.removed = append(changes.removed, key)
	}
	return changes, nil
}

// rowNames are the names of a row of a bulk write.
var rowNames = fields.NewNames("identity", "traits")

// rowsOf reads the rows of a bulk write, in the order sent. The fault is bulk-invalid-rows, or invalid-request for
// misspelt names.
func rowsOf(body []byte) ([]identity.Row, error) {
	var texts [][]byte
	count := 0
	for _, element := range rawjson.Elements(body) {
		if count++; count <= limit.BulkRows {
			texts = append(texts, element)
		}
	}
	switch kind := rawjson.KindOf(body); {
	case kind != rawjson.Array:
		return nil, fault.New(fault.Invalid, fault.CodeBulkInvalidRows, "want an array of rows, got %s", kind)
	case count == 0 || count > limit.BulkRows:
		return nil, fault.New(fault.Invalid, fault.CodeBulkInvalidRows,
			"there are %d rows: want 1 to %d", count, limit.BulkRows)
	}
	rows, traits := make([]identity.Row, len(texts)), 0
	for i, text := range texts {
		var err error
		if rows[i], err = rowIn(text, i); err != nil {
			return nil, err
		}
		traits += len(rows[i].Traits)
		if err := identity.CheckBulkTraits(traits); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// rowIn reads a row. The fault has its position.
func rowIn(text []byte, i int) (identity.Row, error) {
	if kind := rawjson.KindOf(text); kind != rawjson.Object {
		return identity.Row{}, rowFault(i, "want an object, got %s", kind)
	}
	row, err := fields.Decode(text, fmt.Sprintf("rows[%d]", i), rowNames, func(f fields.Object) (identity.Row, error) {
		return rowOf(f, i)
	})
	if f, ok := errors.AsType[*fault.Error](err); ok {
		err = f.With("row", i)
	}
	return row, err
}

func rowFault(i int, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return fault.New(fault.Invalid, fault.CodeBulkInvalidRows, "rows[%d]: %s", i, message).With("row", i)
}

func messageOf(err error) string {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Msg
	}
	return err.Error()
}

func rowOf(f fields.Object, i int) (row identity.Row, err error) {
	name := f.Name("identity", 1, limit.Identity)
	if name == nil && !f.Has("identity") {
		f.Problem("identity", "is required")
	}
	changes, err := traitsOf(f)
	if err := cmp.Or(f.Err(), err); err != nil {
		return row, rowFault(i, "%s", strings.TrimPrefix(messageOf(err), f.Path("")+"."))
	}
	return identity.Row{Identity: *name, Traits: changes.set}, nil
}
