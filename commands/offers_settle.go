package commands

import (
	"context"
	"time"

	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/work"
)

// abandonedTime is how long the address of an offer is left to the command that makes the offer. None takes as long.
const abandonedTime = time.Minute

// SettleOffer ends an offer that has expired, and tombstones the stream of one that has ended or was never made.
// erased reports whether it is tombstoned. An open offer is left alone.
func (l *Journal) SettleOffer(ctx context.Context, o work.Offer, now time.Time) (erased bool, err error) {
	if now.Sub(o.AddressedAt) < abandonedTime {
		return false, nil
	}
	open := false
	meta := func() event.Meta { return event.NewMeta("finisher", now).Of(o.ID) }
	_, err = l.decideOrganization(ctx, o.Organization, meta, func(state organization.State) ([]event.Event, error) {
		events, err := state.End(o.ID, o.Organization, organization.Expired, now)
		_, is := state.Offers[o.ID]
		open = is && len(events) == 0
		return events, err
	})
	if err != nil || open {
		return false, err
	}
	streams := erasure.Streams{
		Journal: l.Journal, Projects: l, Logger: l.Logger, Now: func() time.Time { return now },
	}
	err = streams.EraseOffer(ctx, o.Organization, o.ID)
	return err == nil, err
}
