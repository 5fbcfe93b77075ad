package eventstore_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
)

// What a leaf belongs to is the same whether the event is decoded or not, for each event of the catalogue.
func TestLeafOwner_DecodedOrNot(t *testing.T) {
	owner, owned := uuid.New(), 0
	for _, construct := range domain.Catalog {
		e := construct()
		data, err := os.ReadFile("../domain/testdata/events/" + e.EventType() + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, e); err != nil {
			t.Fatal(err)
		}
		category, _, _ := strings.Cut(e.EventType(), ".")
		names := []string{stream.Name(category, owner)}
		switch category {
		case stream.Registry, stream.Pipeline:
			names = []string{category}
		case stream.Usage:
			names = []string{stream.UsageName(owner, "2026-11")}
		case "audience":
			names = []string{stream.Name(stream.Audiences, owner)}
		case stream.Reads:
			names = []string{stream.ReadsName(owner, "2026-11-05")}
		case "visit":
			names = []string{stream.VisitsName(owner, owner, "2026-11")}
		case stream.Audit:
			names = append(names, stream.RecordsName(stream.Name(stream.Identity, owner)))
		}
		for _, name := range names {
			decoded := eventstore.DecodedEvent{Recorded: eventstore.Recorded{Stream: name, Data: data}, Event: e}
			passed := eventstore.DecodedEvent{Recorded: decoded.Recorded, Event: eventstore.PassedOver{}}
			organization, project := decoded.LeafOwner()
			if o, p := passed.LeafOwner(); o != organization || p != project {
				t.Errorf("%s is of %s and %s, and not decoded of %s and %s", e.EventType(), organization, project, o, p)
			}
			if organization != uuid.Nil || project != uuid.Nil {
				owned++
			}
		}
	}
	if owned < len(domain.Catalog)/2 {
		t.Errorf("%d of %d events belong to an organization", owned, len(domain.Catalog))
	}
}
