package writeapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
)

// identityCommands changes the directory of a project. Every later recall uses an answered change.
type identityCommands interface {
	PutIdentity(
		ctx context.Context, call engine.Call, name string, traits map[string]string,
	) (identities.IdentityReceipt, error)
	PatchIdentity(
		ctx context.Context, call engine.Call, name string, set map[string]string, removed []string,
	) (identities.IdentityReceipt, error)
	DeleteIdentity(ctx context.Context, call engine.Call, name string) error
	BulkIdentities(ctx context.Context, call engine.Call, rows []identity.Row) ([]identities.IdentityStatus, error)
}

// lastSeenReader returns when a record created at createdAt was last seen, nil if not since.
type lastSeenReader interface {
	LastSeen(ctx context.Context, project auth.Project, id uuid.UUID, createdAt time.Time) (*time.Time, error)
}

type identityAPI struct {
	commands identityCommands
	lastSeen lastSeenReader
}

// put is PUT /api/v1/identities/:identity: 200 with the record, created or with its traits
// replaced. traits that are omitted, null or empty remove all; a trait that is null is absent. The
// faults are invalid-request for an identity outside its limits or a body that is not an object,
// and traits-invalid for traits that are not an object of strings, outside their limits, or too
// many or too big together.
func (a identityAPI) put(c echo.Context) error {
	name, changes, err := identityChange(c)
	if err != nil {
		return err
	}
	receipt, err := a.commands.PutIdentity(c.Request().Context(), callOf(c), name, changes.set)
	if err != nil {
		return err
	}
	return a.show(c, receipt)
}

// patch is PATCH /api/v1/identities/:identity: 200 with the record, created if there is none. A
// trait that is null is removed, and an omitted one is unchanged. Its faults are those of put.
func (a identityAPI) patch(c echo.Context) error {
	name, changes, err := identityChange(c)
	if err != nil {
		return err
	}
	receipt, err := a.commands.PatchIdentity(c.Request().Context(), callOf(c), name, changes.set, changes.removed)
	if err != nil {
		return err
	}
	return a.show(c, receipt)
}

// remove is DELETE /api/v1/identities/:identity: 204, or not-found.
func (a identityAPI) remove(c echo.Context) error {
	name, err := identityOf(c)
	if err != nil {
		return err
	}
	if err := a.commands.DeleteIdentity(c.Request().Context(), callOf(c), name); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// bulk is POST /api/v1/identities/bulk: 200 with one status for each distinct identity, in the
// order of first appearance. The fault is bulk-invalid-rows, with the position of the first wrong
// row in data.row, for a body that is not an array of 1 to 1,000 rows, for an invalid row or one
// with more traits than a record can have, and for rows with too many traits together. It is
// conflict if another write of the same records ran at the same time.
func (a identityAPI) bulk(c echo.Context) error {
	body, err := httpx.Body(c, limit.BulkIdentityBody)
	if err != nil {
		return err
	}
	rows, err := rowsOf(body)
	if err != nil {
		return err
	}
	statuses, err := a.commands.BulkIdentities(c.Request().Context(), callOf(c), rows)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct {
		Identities []client.BulkStatus `json:"identities"`
	}{identityStatusesOf(statuses)})
}

func (a identityAPI) show(c echo.Context, r identities.IdentityReceipt) error {
	seen, err := a.lastSeen.LastSeen(c.Request().Context(), httpx.Principal(c).Project, r.ID, r.CreatedAt)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, client.Identity{ // only the read of one identity returns its audiences
		Identity: r.Identity, Traits: r.Traits, Origin: string(r.Origin), LastSeenAt: seen,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	})
}

// identityOf returns the identity that the path names.
func identityOf(c echo.Context) (string, error) {
	name, err := httpx.PathParam(c, "identity")
	if err != nil {
		return "", err
	}
	if err := fields.CheckName(name, 1, limit.Identity); err != nil {
		return "", fields.Invalid("identity", "%v", err)
	}
	httpx.NoteOf(c).Identity = name
	return name, nil
}

// identityNames are the names of a change of one identity.
var identityNames = fields.NewNames("traits")

// identityChange reads the request of put and patch.
func identityChange(c echo.Context) (name string, changes traitChanges, err error) {
	if name, err = identityOf(c); err != nil {
		return "", changes, err
	}
	changes, err = httpx.Decode(c, limit.IdentityBody, identityNames, traitsOf)
	return name, changes, err
}

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

// audienceCommands changes the audiences of a project. Every later read shows an answered change.
type audienceCommands interface {
	PutAudience(ctx context.Context, call engine.Call, in identities.AudiencePut) (identities.AudienceReceipt, error)
	DeleteAudience(ctx context.Context, call engine.Call, slug string) error
	RecomputeAudience(ctx context.Context, call engine.Call, slug string) (identities.AudienceReceipt, error)
}

// audienceViewer returns an audience as GET /api/v1/audiences/:slug does; ok is false if the
// project has none with that slug.
type audienceViewer interface {
	ViewAudience(ctx context.Context, project auth.Project, slug string) (view any, ok bool, err error)
}

type audienceAPI struct {
	commands audienceCommands
	views    audienceViewer
}

// put is PUT /api/v1/audiences/:slug: 201 with the audience if it is new, 200 if it replaced one.
func (a audienceAPI) put(c echo.Context) error {
	slug, err := httpx.PathParam(c, "slug")
	if err != nil {
		return err
	}
	in, err := httpx.Decode(c, limit.AudienceBody, audienceNames, func(f fields.Object) (identities.AudiencePut, error) {
		return audienceOf(slug, f)
	})
	if err != nil {
		return err
	}
	receipt, err := a.commands.PutAudience(c.Request().Context(), callOf(c), in)
	if err != nil {
		return err
	}
	if receipt.Created {
		return a.show(c, http.StatusCreated, slug)
	}
	return a.show(c, http.StatusOK, slug)
}

// recompute is POST /api/v1/audiences/:slug/recompute. It does not read the body.
func (a audienceAPI) recompute(c echo.Context) error {
	slug, err := httpx.PathParam(c, "slug")
	if err != nil {
		return err
	}
	if _, err := a.commands.RecomputeAudience(c.Request().Context(), callOf(c), slug); err != nil {
		return err
	}
	return a.show(c, http.StatusOK, slug)
}

// remove is DELETE /api/v1/audiences/:slug.
func (a audienceAPI) remove(c echo.Context) error {
	slug, err := httpx.PathParam(c, "slug")
	if err != nil {
		return err
	}
	if err := a.commands.DeleteAudience(c.Request().Context(), callOf(c), slug); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// show answers with the audience after a write.
func (a audienceAPI) show(c echo.Context, status int, slug string) error {
	view, ok, err := a.views.ViewAudience(c.Request().Context(), httpx.Principal(c).Project, slug)
	if err != nil {
		return err
	}
	if !ok {
		return fault.New(fault.Conflict, fault.CodeConflict,
			"the write is stored, and another call deleted the audience before it was shown").
			With("committed", true)
	}
	return c.JSON(status, view)
}

// The names of an audience, of its rule, and of a condition of the rule.
var (
	audienceNames  = fields.NewNames("kind", "name", "identities", "rule")
	ruleNames      = fields.NewNames("match", "conditions")
	conditionNames = fields.NewNames("trait", "operator", "values")
)

// audienceOf reads an audience to put. The faults are audience-slug-invalid,
// audience-slug-reserved, audience-kind-invalid, audience-kind-mismatch, invalid-request about name
// and identities or for misspelt names, audience-limit-reached for too many of them, and audience-rule-invalid for
// an invalid rule.
func audienceOf(slug string, f fields.Object) (identities.AudiencePut, error) {
	in := identities.AudiencePut{Slug: slug}
	if f.Has("kind") {
		kind, _ := rawjson.Text(f.Raw("kind")) // a kind of another type is missing
		in.Kind = audience.Kind(kind)
	}
	draft := audience.Draft{Slug: slug, Kind: in.Kind, HasIdentities: f.Has("identities"), HasRule: f.Has("rule")}
	if err := draft.Check(); err != nil {
		return identities.AudiencePut{}, err
	}
	in.Name = f.Name("name", 1, limit.AudienceName)
	err := f.Err()
	if err == nil && draft.HasIdentities {
		in.Identities, err = membersOf(f)
	}
	if err == nil && draft.HasRule {
		in.Rule, err = ruleOf(f.Raw("rule"))
	}
	return in, err
}

// membersOf reads the members of a fixed audience: each once, in the order of its first mention. It
// is not nil.
func membersOf(f fields.Object) ([]string, error) {
	names, err := f.DistinctNames("identities", limit.Identity, limit.AudienceMembers)
	if len(names) > limit.AudienceMembers {
		err = fault.New(fault.Invalid, fault.CodeAudienceLimitReached,
			"identities: there are more than %d", limit.AudienceMembers)
	}
	return names, err
}

// ruleOf reads a rule. Its fault is audience-rule-invalid, also for members of another type, and invalid-request for
// misspelt names.
func ruleOf(raw []byte) (*audience.Rule, error) {
	return rulePart(raw, "rule", ruleNames, ruleIn)
}

func ruleIn(f fields.Object) (*audience.Rule, error) {
	match, err := ruleText(f, "match")
	if err != nil {
		return nil, err
	}
	rule := &audience.Rule{Match: audience.Match(match)}
	conditions := f.Raw("conditions")
	if conditions == nil {
		return nil, audience.RuleInvalid("rule.conditions", "is required")
	}
	if kind := rawjson.KindOf(conditions); kind != rawjson.Array {
		return nil, audience.RuleInvalid("rule.conditions", "want an array, got %s", kind)
	}
	for i, element := range rawjson.Elements(conditions) {
		at := fmt.Sprintf("rule.conditions[%d]", i)
		condition, err := rulePart(element, at, conditionNames, conditionIn)
		if err != nil {
			return nil, err
		}
		if rule.Conditions = append(rule.Conditions, condition); len(rule.Conditions) > limit.RuleConditions {
			break // the check refuses it
		}
	}
	return rule, rule.Check()
}

func conditionIn(f fields.Object) (c audience.Condition, err error) {
	if c.Trait, err = ruleText(f, "trait"); err != nil {
		return c, err
	}
	operator, err := ruleText(f, "operator")
	if err != nil {
		return c, err
	}
	c.Operator, c.Values = audience.Operator(operator), []string{}
	if !f.Has("values") {
		return c, nil
	}
	values, at := f.Raw("values"), f.Path("values")
	if kind := rawjson.KindOf(values); kind != rawjson.Array {
		return c, audience.RuleInvalid(at, "want an array, got %s", kind)
	}
	for i, element := range rawjson.Elements(values) {
		value, ok := rawjson.Text(element)
		if !ok {
			return c, audience.RuleInvalid(fmt.Sprintf("%s[%d]", at, i), "want a string, got %s", rawjson.KindOf(element))
		}
		if c.Values = append(c.Values, value); len(c.Values) > limit.RuleValues {
			break // the check of the rule refuses it
		}
	}
	return c, nil
}

// rulePart reads the members of a rule or of a condition.
func rulePart[T any](raw []byte, at string, names fields.Names, read func(fields.Object) (T, error)) (v T, err error) {
	if kind := rawjson.KindOf(raw); kind != rawjson.Object {
		return v, audience.RuleInvalid(at, "want an object, got %s", kind)
	}
	return fields.Decode(raw, at, names, read)
}

// ruleText is a string member of a rule, which is required.
func ruleText(f fields.Object, name string) (string, error) {
	raw, at := f.Raw(name), f.Path(name)
	if raw == nil {
		return "", audience.RuleInvalid(at, "is required")
	}
	text, ok := rawjson.Text(raw)
	if !ok {
		return "", audience.RuleInvalid(at, "want a string, got %s", rawjson.KindOf(raw))
	}
	return text, nil
}
