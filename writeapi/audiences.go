package writeapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/rawjson"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/fields"
	"github.com/annals-project/annals/internal/httpx"
)

// audienceCommands changes the audiences of a project. Every later read shows an answered change.
type audienceCommands interface {
	PutAudience(ctx context.Context, call commands.Call, in commands.AudiencePut) (commands.AudienceReceipt, error)
	DeleteAudience(ctx context.Context, call commands.Call, slug string) error
	RecomputeAudience(ctx context.Context, call commands.Call, slug string) (commands.AudienceReceipt, error)
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
	in, err := httpx.Decode(c, limit.AudienceBody, audienceNames, func(f fields.Object) (commands.AudiencePut, error) {
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
func audienceOf(slug string, f fields.Object) (commands.AudiencePut, error) {
	in := commands.AudiencePut{Slug: slug}
	if f.Has("kind") {
		kind, _ := rawjson.Text(f.Raw("kind")) // a kind of another type is missing
		in.Kind = audience.Kind(kind)
	}
	draft := audience.Draft{Slug: slug, Kind: in.Kind, HasIdentities: f.Has("identities"), HasRule: f.Has("rule")}
	if err := draft.Check(); err != nil {
		return commands.AudiencePut{}, err
	}
	in.Name = f.Name("name", 1, limit.AudienceName)
	err := f.Err()
	if err == nil && draft.HasIdentities {
		in.Identities, err = membersOf(f.Raw("identities"))
	}
	if err == nil && draft.HasRule {
		in.Rule, err = ruleOf(f.Raw("rule"))
	}
	return in, err
}

// membersOf reads the members of a fixed audience: each once, in the order of its first mention. It
// is not nil.
func membersOf(raw []byte) (identities []string, err error) {
	if kind := rawjson.KindOf(raw); kind != rawjson.Array {
		return nil, fields.Invalid("identities", "want an array, got %s", kind)
	}
	identities = []string{}
	seen := map[string]bool{}
	for i, element := range rawjson.Elements(raw) {
		at := fmt.Sprintf("identities[%d]", i)
		name, ok := rawjson.Text(element)
		if !ok {
			return nil, fields.Invalid(at, "want a string, got %s", rawjson.KindOf(element))
		}
		if wrong := fields.CheckName(name, 1, limit.Identity); wrong != nil {
			return nil, fields.Invalid(at, "%v", wrong)
		}
		if !seen[name] {
			seen[name] = true
			identities = append(identities, name)
		}
		if len(identities) > limit.AudienceMembers {
			return nil, fault.New(fault.Invalid, fault.CodeAudienceLimitReached,
				"identities: there are more than %d", limit.AudienceMembers)
		}
	}
	return identities, nil
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
