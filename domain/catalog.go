// Package domain lists every fact that Annals stores. Its subpackages hold the facts and the
// decisions of each aggregate: no clock, no I/O, no logging.
package domain

import (
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/offer"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/pipeline"
	"github.com/annals-project/annals/domain/project"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/registry"
	"github.com/annals-project/annals/domain/visit"
)

// Constructor returns a new event of one type, to decode a payload into. The name that the event is
// stored under is its EventType.
type Constructor func() event.Event

// Catalog lists every event that is stored. Each has a golden payload in testdata/events, which never
// changes and which every later version must decode. A fact may get an optional field, with a golden payload of its
// step next to the one of before ("datapoint.moved.v1+2.json"; see event.Event). One that needs another shape gets a
// type of its own with the next name ("datapoint.moved.v2"), and the type of the former name stays here and
// is handled wherever it is read, as long as a log may hold it.
//
// blob.ChunkType is not here: its data is not JSON.
var Catalog = []Constructor{
	of[registry.LogOpened],
	of[registry.OrganizationCreated],
	of[registry.ProjectCreated],
	of[registry.HashKeySet],
	of[registry.EventSetAside],
	of[organization.ManagementKeySet],
	of[organization.MemberAdded],
	of[organization.MemberRoleSet],
	of[organization.MemberRemoved],
	of[organization.ProjectAccessSet],
	of[organization.MemberOffered],
	of[organization.OfferEnded],
	of[organization.SecondFactorSet],
	of[organization.SignInReset],
	of[organization.GrantApproved],
	of[organization.GrantRevoked],
	of[organization.AgentApproved],
	of[organization.AgentDenied],
	of[organization.AgentRevoked],
	of[organization.AgentStopped],
	of[organization.PlanSet],
	of[organization.CreditsGranted],
	of[organization.SpendCapSet],
	of[organization.Prepared],
	of[organization.VisitsKeptSet],
	of[organization.AuditorTextsSet],
	of[person.Registered],
	of[person.JoinBegun],
	of[person.AddressChanged],
	of[person.Removed],
	of[person.AddressClaimed],
	of[person.AddressReleased],
	of[offer.Addressed],
	of[project.KeyCreated],
	of[project.KeyRevoked],
	of[project.KeyRevealed],
	of[project.Archived],
	of[project.Unarchived],
	of[project.CapsSet],
	of[project.Described],
	of[project.ReadsSet],
	of[project.WebhookCreated],
	of[project.WebhookChanged],
	of[project.WebhookPaused],
	of[project.WebhookResumed],
	of[project.WebhookTokenRotated],
	of[project.WebhookDeleted],
	of[identity.Appeared],
	of[identity.TraitsReplaced],
	of[identity.TraitsMerged],
	of[identity.BulkRowApplied],
	of[identity.Removed],
	of[identity.Cleared],
	of[identity.BulkAccepted],
	of[identity.BulkFannedOut],
	of[audience.Put],
	of[audience.Removed],
	of[audience.Recomputed],
	of[metering.Charged],
	of[datapoint.RevisionAccepted],
	of[datapoint.Moved],
	of[datapoint.Resent],
	of[datapoint.Deleted],
	of[memory.DerivationStarted],
	of[memory.Derived],
	of[memory.Failed],
	of[memory.Embedded],
	of[ingestion.Claimed],
	of[ingestion.Accepted],
	of[ingestion.FannedOut],
	of[ingestion.Indexed],
	of[ingestion.Failed],
	of[ingestion.Retried],
	of[pipeline.Searchable],
	of[deletion.Accepted],
	of[deletion.FannedOut],
	of[deletion.FactsKept],
	of[deletion.Cleaned],
	of[audit.RecordsKept],
	of[audit.KeyAdded],
	of[audit.CheckpointSigned],
	of[audit.CheckpointCosigned],
	of[reads.Rooted],
	of[reads.Recorded],
	of[erasure.Requested],
	of[erasure.DataPointsDeleted],
	of[erasure.PersonForgotten],
	of[erasure.Purged],
	of[erasure.Ended],
	of[blob.Opened],
	of[visit.SignedIn],
	of[visit.SignInRefused],
	of[visit.LinkMade],
	of[visit.LinkUsed],
	of[visit.PasswordChanged],
	of[visit.SecondFactorChanged],
	of[visit.SessionsEnded],
	of[visit.Exported],
	of[visit.ReadOpened],
	of[visit.OperatorRead],
}

func of[E any, P interface {
	*E
	event.Event
}]() event.Event {
	return P(new(E))
}
