// Package domain lists every fact that Annals stores. Its subpackages hold the facts and the
// decisions of each aggregate: no clock, no I/O, no logging.
package domain

import (
	"encoding/json"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/registry"
)

// Entry is one stored event name. An entry has New where the name is written today, or Up where it
// is only read: Up turns a payload of the old name into one of a newer name.
type Entry struct {
	Name string
	New  func() event.Event
	Up   func(json.RawMessage) (newer string, payload json.RawMessage, err error)
}

// Catalog lists every name that was ever stored. Each has a golden payload in testdata/events that
// every later version must decode. blob.ChunkType is not here: its data is not JSON.
var Catalog = []Entry{
	{Name: "registry.log-opened.v1", New: func() event.Event { return new(registry.LogOpened) }},
	{Name: "registry.organization-created.v1", Up: registry.UpOrganizationCreated},
	{Name: "registry.organization-created.v2", New: func() event.Event { return new(registry.OrganizationCreated) }},
	{Name: "registry.project-created.v1", Up: registry.UpProjectCreated},
	{Name: "registry.project-created.v2", New: func() event.Event { return new(registry.ProjectCreated) }},
	{Name: "registry.hash-key-set.v1", New: func() event.Event { return new(registry.HashKeySet) }},
	{Name: "registry.event-set-aside.v1", New: func() event.Event { return new(registry.EventSetAside) }},
	{Name: "organization.management-key-set.v1", New: func() event.Event { return new(organization.ManagementKeySet) }},
	{Name: "organization.member-added.v1", New: func() event.Event { return new(organization.MemberAdded) }},
	{Name: "organization.plan-set.v1", New: func() event.Event { return new(organization.PlanSet) }},
	{Name: "organization.credits-granted.v1", New: func() event.Event { return new(organization.CreditsGranted) }},
	{Name: "organization.spend-cap-set.v1", New: func() event.Event { return new(organization.SpendCapSet) }},
	{Name: "organization.prepared.v1", New: func() event.Event { return new(organization.Prepared) }},
	{Name: "project.key-created.v1", New: func() event.Event { return new(project.KeyCreated) }},
	{Name: "project.key-revoked.v1", New: func() event.Event { return new(project.KeyRevoked) }},
	{Name: "project.key-revealed.v1", New: func() event.Event { return new(project.KeyRevealed) }},
	{Name: "project.archived.v1", New: func() event.Event { return new(project.Archived) }},
	{Name: "project.unarchived.v1", New: func() event.Event { return new(project.Unarchived) }},
	{Name: "project.caps-set.v1", New: func() event.Event { return new(project.CapsSet) }},
	{Name: "project.webhook-created.v1", New: func() event.Event { return new(project.WebhookCreated) }},
	{Name: "project.webhook-changed.v1", New: func() event.Event { return new(project.WebhookChanged) }},
	{Name: "project.webhook-paused.v1", New: func() event.Event { return new(project.WebhookPaused) }},
	{Name: "project.webhook-resumed.v1", New: func() event.Event { return new(project.WebhookResumed) }},
	{Name: "project.webhook-token-rotated.v1", New: func() event.Event { return new(project.WebhookTokenRotated) }},
	{Name: "project.webhook-deleted.v1", New: func() event.Event { return new(project.WebhookDeleted) }},
	{Name: "identity.appeared.v1", New: func() event.Event { return new(identity.Appeared) }},
	{Name: "identity.traits-replaced.v1", New: func() event.Event { return new(identity.TraitsReplaced) }},
	{Name: "identity.traits-merged.v1", New: func() event.Event { return new(identity.TraitsMerged) }},
	{Name: "identity.bulk-row-applied.v1", New: func() event.Event { return new(identity.BulkRowApplied) }},
	{Name: "identity.removed.v1", New: func() event.Event { return new(identity.Removed) }},
	{Name: "identity.cleared.v1", New: func() event.Event { return new(identity.Cleared) }},
	{Name: "bulk.accepted.v1", New: func() event.Event { return new(identity.BulkAccepted) }},
	{Name: "bulk.fanned-out.v1", New: func() event.Event { return new(identity.BulkFannedOut) }},
	{Name: "audience.put.v1", New: func() event.Event { return new(audience.Put) }},
	{Name: "audience.removed.v1", New: func() event.Event { return new(audience.Removed) }},
	{Name: "audience.recomputed.v1", New: func() event.Event { return new(audience.Recomputed) }},
	{Name: "usage.charged.v1", Up: metering.UpCharged},
	{Name: "usage.charged.v2", New: func() event.Event { return new(metering.Charged) }},
	{Name: "datapoint.revision-accepted.v1", New: func() event.Event { return new(datapoint.RevisionAccepted) }},
	{Name: "datapoint.moved.v1", Up: datapoint.UpMoved},
	{Name: "datapoint.moved.v2", New: func() event.Event { return new(datapoint.Moved) }},
	{Name: "datapoint.resent.v1", Up: datapoint.UpResent},
	{Name: "datapoint.resent.v2", New: func() event.Event { return new(datapoint.Resent) }},
	{Name: "datapoint.deleted.v1", New: func() event.Event { return new(datapoint.Deleted) }},
	{Name: "memory.derivation-started.v1", New: func() event.Event { return new(memory.DerivationStarted) }},
	{Name: "memory.derived.v1", New: func() event.Event { return new(memory.Derived) }},
	{Name: "memory.failed.v1", New: func() event.Event { return new(memory.Failed) }},
	{Name: "memory.embedded.v1", New: func() event.Event { return new(memory.Embedded) }},
	{Name: "ingestion.claimed.v1", New: func() event.Event { return new(ingestion.Claimed) }},
	{Name: "ingestion.accepted.v1", Up: ingestion.UpAccepted},
	{Name: "ingestion.accepted.v2", New: func() event.Event { return new(ingestion.Accepted) }},
	{Name: "ingestion.fanned-out.v1", New: func() event.Event { return new(ingestion.FannedOut) }},
	{Name: "ingestion.indexed.v1", New: func() event.Event { return new(ingestion.Indexed) }},
	{Name: "ingestion.failed.v1", New: func() event.Event { return new(ingestion.Failed) }},
	{Name: "ingestion.retried.v1", New: func() event.Event { return new(ingestion.Retried) }},
	{Name: "pipeline.searchable.v1", New: func() event.Event { return new(pipeline.Searchable) }},
	{Name: "deletion.accepted.v1", New: func() event.Event { return new(deletion.Accepted) }},
	{Name: "deletion.fanned-out.v1", New: func() event.Event { return new(deletion.FannedOut) }},
	{Name: "deletion.facts-kept.v1", Up: deletion.UpFactsKept},
	{Name: "deletion.facts-kept.v2", Up: deletion.UpFactsKept},
	{Name: "deletion.facts-kept.v3", Up: deletion.UpFactsKept},
	{Name: "deletion.facts-kept.v4", New: func() event.Event { return new(deletion.FactsKept) }},
	{Name: "deletion.cleaned.v1", New: func() event.Event { return new(deletion.Cleaned) }},
	{Name: "erasure.requested.v1", New: func() event.Event { return new(erasure.Requested) }},
	{Name: "erasure.data-points-deleted.v1", New: func() event.Event { return new(erasure.DataPointsDeleted) }},
	{Name: "erasure.person-forgotten.v1", New: func() event.Event { return new(erasure.PersonForgotten) }},
	{Name: "erasure.purged.v1", New: func() event.Event { return new(erasure.Purged) }},
	{Name: "erasure.ended.v1", New: func() event.Event { return new(erasure.Ended) }},
	{Name: "blob.opened.v1", Up: blob.UpOpened},
	{Name: "blob.opened.v2", New: func() event.Event { return new(blob.Opened) }},
}
