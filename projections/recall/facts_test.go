package recall_test

import (
	"context"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
)

// facts is a log that the index reads texts from.
type facts []eventstore.Fact

func (l facts) Event(_ context.Context, name string, at eventstore.Revision) (event.Event, bool, error) {
	for _, f := range l {
		if f.Stream == name && f.Revision == at {
			return f.Event, true, nil
		}
	}
	return nil, false, nil
}

func (facts) Blob(context.Context, blob.Ref) ([]byte, bool, error) { return nil, false, nil }
