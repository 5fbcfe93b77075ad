package eventstore

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
)

// LeafOwner returns what the leaf of the event belongs to: an organization, or a project, whose organization it is.
// Both are zero for an event of none. It follows from the stream and the stored bytes alone, so it is the same whether
// the event can be decoded or is set aside, and in every version of the program.
func (f DecodedEvent) LeafOwner() (organization, project uuid.UUID) {
	category := stream.Category(f.Stream)
	switch category {
	case stream.Registry, stream.Pipeline, stream.Person, stream.Address:
		return uuid.Nil, uuid.Nil
	case stream.Organization, stream.Visits, stream.Audit:
		return stream.Owner(f.Stream), uuid.Nil
	}
	if f.Event != nil && !f.IsPassedOver() && category != stream.Offer && category != stream.Records {
		return uuid.Nil, event.ProjectOf(f.Event)
	}
	var named struct {
		OrganizationID uuid.UUID `json:"organizationId"`
		ProjectID      uuid.UUID `json:"projectId"`
	}
	if json.Unmarshal(f.Data, &named) != nil {
		return uuid.Nil, uuid.Nil
	}
	if category == stream.Offer || category == stream.Records {
		return named.OrganizationID, uuid.Nil
	}
	return uuid.Nil, named.ProjectID
}
