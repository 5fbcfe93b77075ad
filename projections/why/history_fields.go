package why

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/eventstore"
)

// shown lists the fields of each event that are shown, as paths in its payload; after "=" the name that is shown. Of
// lists and objects the size is shown. What is not listed is not shown: texts, traits, hashes, and who is in an
// audience.
var shown = map[string]string{
	"registry.organization-created":   "name plan ownerId=person",
	"registry.project-created":        "name slug",
	"organization.management-key-set": "prefix suffix",
	"organization.member-added":       "memberId=person role",
	"organization.member-role-set":    "memberId=person role",
	"organization.member-removed":     "memberId=person",
	"organization.project-access-set": "memberId=person projectId=project access",
	"organization.member-offered":     "offerId=offer role expiresAt access=projects",
	"organization.offer-ended":        "offerId=offer end memberId=person",
	"organization.second-factor-set":  "required",
	"organization.sign-in-reset":      "memberId=person reset",
	"organization.grant-approved":     "memberId=person grantId=grant projectId=project scopes",
	"organization.grant-revoked":      "memberId=person grantId=grant",
	"organization.agent-approved":     "agentId=agent memberId=person scopes projectId=project",
	"organization.agent-denied":       "agentId=agent memberId=person",
	"organization.agent-revoked":      "agentId=agent",
	"organization.agent-stopped":      "agentId=agent",
	"organization.plan-set":           "plan",
	"organization.credits-granted":    "kind tenths=credits",
	"organization.spend-cap-set":      "tenths=credits",
	"project.key-created":             "keyId=key name suffix",
	"project.key-revoked":             "keyId=key",
	"project.key-revealed":            "keyId=key",
	"project.caps-set":                "ingestionCap creditCapTenths=creditCap",
	"project.described":               "name",
	"project.reads-set":               "mode days",
	"project.webhook-created":         "webhookId=webhook settings.name=name settings.audience=audience",
	"project.webhook-changed":         "webhookId=webhook settings.name=name settings.audience=audience",
	"project.webhook-paused":          "webhookId=webhook",
	"project.webhook-resumed":         "webhookId=webhook",
	"project.webhook-token-rotated":   "webhookId=webhook",
	"project.webhook-deleted":         "webhookId=webhook",
	"identity.appeared":               "origin",
	"identity.traits-replaced":        "record.origin=origin record.traits.inline=traits",
	"identity.traits-merged":          "patch.set=set patch.removed=removed record.traits.inline=traits",
	"identity.bulk-row-applied":       "status record.traits.inline=traits",
	"audience.put":                    "slug kind members rule.conditions=conditions",
	"datapoint.revision-accepted":     "effect.revision=revision bytes ingestionId=send",
	"datapoint.moved":                 "effect.revision=revision ingestionId=send",
	"datapoint.resent":                "effect.revision=revision ingestionId=send",
	"datapoint.deleted":               "deletionId=deletion",
}

// eventOf makes what is shown of a recorded event. is is false if it concerns another thing. Of an event that cannot be
// read, the name is shown, so that a page with it can be read.
func eventOf(t Thing, r eventstore.Recorded) (e Event, is bool) {
	var payload any
	var meta event.Meta
	decoder := json.NewDecoder(bytes.NewReader(r.Data))
	decoder.UseNumber()
	if decoder.Decode(&payload) != nil || json.Unmarshal(r.Meta, &meta) != nil {
		payload, meta = nil, event.Meta{At: r.Created}
	}
	if id, _ := valueAt(payload, t.field).(string); t.field != "" && id != t.id {
		return Event{}, false
	}
	e = Event{
		At: meta.At, Name: r.Type, By: principalOf(meta.Principal), RequestID: meta.RequestID, Fields: []Field{},
		position: r.Position,
	}
	if name, version := r.Type, strings.LastIndex(r.Type, ".v"); version > 0 {
		e.Name = name[:version]
	}
	if t.event != "" && e.Name != t.event {
		return Event{}, false
	}
	for _, path := range strings.Fields(shown[e.Name]) {
		path, name, renamed := strings.Cut(path, "=")
		if !renamed {
			name = path
		}
		if f, has := field(name, path, valueAt(payload, path)); has {
			e.Fields = append(e.Fields, f)
		}
	}
	return e, true
}

// valueAt returns the value at a path of names, nil for none.
func valueAt(payload any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := payload.(map[string]any)
		payload = object[name]
	}
	return payload
}

// none is shown for a cap that was removed, and for an access that ended.
const none = "none"

func field(name, path string, value any) (f Field, has bool) {
	f.Name = name
	switch value := value.(type) {
	case nil:
		f.Value = none
		return f, strings.HasSuffix(name, "Cap") || name == "credits"
	case string:
		f.Value = value
		switch name {
		case "access":
			f.Value = cmp.Or(value, none)
		case "person", "key", "project":
			f.ID = value
		}
		return f, f.Value != ""
	case json.Number:
		f.Value = value.String()
		if n, err := value.Int64(); err == nil && strings.HasSuffix(strings.ToLower(path), "tenths") {
			f.Value = metering.Credits(n).String()
		}
	case bool:
		f.Value = map[bool]string{true: "yes", false: "no"}[value]
	case []any:
		f.Value = strconv.Itoa(len(value))
	case map[string]any:
		f.Value = strconv.Itoa(len(value))
	}
	return f, true
}
