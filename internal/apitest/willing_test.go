package apitest_test

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/readapi"
)

func (okStub) PutIdentity(
	_ context.Context, call commands.Call, name string, traits map[string]string,
) (commands.IdentityReceipt, error) {
	if traits == nil {
		traits = map[string]string{}
	}
	return commands.IdentityReceipt{
		ID:        uuid.New(),
		Identity:  name,
		Traits:    traits,
		Origin:    identity.OriginAPI,
		CreatedAt: call.ReceivedAt,
		UpdatedAt: call.ReceivedAt,
	}, nil
}

func (w okStub) PatchIdentity(
	ctx context.Context, call commands.Call, name string, set map[string]string, _ []string,
) (commands.IdentityReceipt, error) {
	return w.PutIdentity(ctx, call, name, set)
}

func (okStub) DeleteIdentity(context.Context, commands.Call, string) error { return nil }

func (okStub) BulkIdentities(
	_ context.Context, _ commands.Call, rows []identity.Row,
) ([]commands.IdentityStatus, error) {
	statuses := make([]commands.IdentityStatus, len(rows))
	for i, row := range rows {
		statuses[i] = commands.IdentityStatus{Identity: row.Identity, Status: identity.Updated}
	}
	return statuses, nil
}

func (okStub) LastSeen(_ context.Context, _ auth.Project, _ uuid.UUID, createdAt time.Time) (*time.Time, error) {
	return &createdAt, nil
}

func (okStub) Identities(context.Context, auth.Project, directory.Listing) (directory.Identities, error) {
	record := directory.Identity{
		Identity:  "ana",
		Traits:    json.RawMessage(`{"team":"a"}`),
		Origin:    "api",
		CreatedAt: time.Unix(1, 0).UTC(),
		UpdatedAt: time.Unix(2, 0).UTC(),
	}
	return directory.Identities{
		List: []directory.Identity{record},
		More: true,
		End:  &directory.Cursor{CreatedAt: record.CreatedAt, ID: uuid.New()},
	}, nil
}

func (w okStub) Identity(ctx context.Context, project auth.Project, name string) (directory.Identity, bool, error) {
	page, err := w.Identities(ctx, project, directory.Listing{})
	page.List[0].Identity, page.List[0].Audiences = name, []string{"team"}
	return page.List[0], true, err
}

func (okStub) PutAudience(
	_ context.Context, _ commands.Call, in commands.AudiencePut,
) (commands.AudienceReceipt, error) {
	return commands.AudienceReceipt{ID: uuid.New(), Slug: in.Slug, Created: in.Name == nil}, nil
}

func (okStub) DeleteAudience(context.Context, commands.Call, string) error { return nil }

func (okStub) RecomputeAudience(_ context.Context, _ commands.Call, slug string) (commands.AudienceReceipt, error) {
	return commands.AudienceReceipt{ID: uuid.New(), Slug: slug}, nil
}

func (w okStub) ViewAudience(ctx context.Context, project auth.Project, slug string) (any, bool, error) {
	return readapi.AudienceViews{Queries: w}.ViewAudience(ctx, project, slug)
}

func (w okStub) Audiences(ctx context.Context, project auth.Project) iter.Seq2[directory.Audience, error] {
	return func(yield func(directory.Audience, error) bool) {
		fixed, _, err := w.Audience(ctx, project, "team")
		fixed.Kind, fixed.Rule, fixed.Identities = audience.KindFixed, nil, []string{"ana"}
		if yield(
			directory.Audience{
				Slug:      audience.Default,
				Name:      "Project",
				Kind:      audience.KindDefault,
				CreatedAt: time.Unix(1, 0).UTC(),
			},
			nil,
		) {
			yield(fixed, err)
		}
	}
}

// Audience is a rule. What no slug can be, it finds none of.
func (okStub) Audience(_ context.Context, _ auth.Project, slug string) (directory.Audience, bool, error) {
	if audience.CheckSlug(slug) != nil {
		return directory.Audience{}, false, nil
	}
	at := time.Unix(1, 0).UTC()
	return directory.Audience{
		Slug: slug, Name: slug, Kind: audience.KindRule, MemberCount: 1, MemoryCount: 2, RecomputedAt: &at, CreatedAt: at,
		Rule: json.RawMessage(`{"match":"all","conditions":[{"trait":"team","operator":"exists","values":[]}]}`),
	}, true, nil
}

func (okStub) Usage(_ context.Context, p auth.Principal, at time.Time) (account.Usage, error) {
	end, ingestions := metering.MonthEnd(at), int64(7)
	return account.Usage{
		Month:   account.Month{From: end.AddDate(0, -1, 0), To: end, ResetsAt: &end},
		Balance: metering.Balance{Plan: metering.PayAsYouGo, IncludedTenths: 125}, SpendCapTenths: &ingestions,
		Projects: []account.Project{{
			Project: access.Project{Project: auth.Project{Slug: "default"}, IngestionCap: &ingestions},
			Used:    usage.Used{Ingestions: 1, Recalls: 2}, ChargedTenths: new(int64(125)),
		}},
	}, nil
}
